#pragma once

#include <cstdint>
#include <string_view>

#include "lopt/base/choices.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/augment/ctaugment/byte_image.h"

namespace lopt {

// The operations of CTAugment (Berthelot et al. 2020, "ReMixMatch", and the code of FixMatch), in
// the order of their names. Pixels are those of Pillow 9.4, bit for bit.
enum class Operation {
  kAutocontrast,
  kBlur,
  kBrightness,
  kColor,
  kContrast,
  kCutout,
  kEqualize,
  kIdentity,
  kInvert,
  kPosterize,
  kRescale,
  kRotate,
  kSharpness,
  kShearX,
  kShearY,
  kSmooth,
  kSolarize,
  kTranslateX,
  kTranslateY,
};

// An operation's name, how many arguments in [0, 1] it takes, and the bins of each.
struct OperationEntry {
  std::string_view name;  // as in the rates' layout
  int arguments;          // up to 2
  int bins[2];            // of as many as there are
};
// How many there are.
inline constexpr int kOperationCount = 19;
// All, in their order.
inline constexpr OperationEntry kOperations[kOperationCount] = {
    {"autocontrast", 1, {17}}, {"blur", 1, {17}},       {"brightness", 1, {17}},
    {"color", 1, {17}},        {"contrast", 1, {17}},   {"cutout", 1, {17}},
    {"equalize", 1, {17}},     {"identity", 0, {}},     {"invert", 1, {17}},
    {"posterize", 1, {8}},     {"rescale", 2, {17, 6}}, {"rotate", 1, {17}},
    {"sharpness", 1, {17}},    {"shear_x", 1, {17}},    {"shear_y", 1, {17}},
    {"smooth", 1, {17}},       {"solarize", 1, {17}},   {"translate_x", 1, {17}},
    {"translate_y", 1, {17}},
};
// The entry of one.
inline constexpr const OperationEntry& EntryOf(Operation operation) {
  return kOperations[static_cast<int>(operation)];
}

// How far translate_x and translate_y move an image at level l: (2 l - 1) .3 pixels, which is what
// was published and, as the nearest pixel is taken, moves nothing; or that fraction of its width or
// height.
enum class TranslateUnit { kPixels, kFraction };
inline constexpr Named<TranslateUnit> kTranslateUnits[] = {{TranslateUnit::kPixels, "pixels"},
                                                           {TranslateUnit::kFraction, "fraction"}};

// One operation with its arguments.
struct OperationCall {
  Operation operation = Operation::kIdentity;  // what is done
  double levels[2] = {};                       // as many as it has arguments
  int64_t centre_x = 0;                        // column of the middle of a cutout
  int64_t centre_y = 0;                        // its row
};

// Changes the image in place.
void Apply(const OperationCall& call, TranslateUnit translate, const ByteImage& image,
           Workspace& scratch);

}  // namespace lopt
