#include "lopt/tasks/augment/ctaugment/operations.h"

#include <algorithm>
#include <cmath>

#include "lopt/tasks/augment/ctaugment/colours.h"
#include "lopt/tasks/augment/ctaugment/geometry.h"

namespace lopt {

void Apply(const OperationCall& call, TranslateUnit translate, const ByteImage& image,
           Workspace& scratch) {
  const double level = call.levels[0];
  const double factor = 0.1 + 1.9 * level;
  const double offset = (2 * level - 1) * 0.3;
  const auto distance = [&](int64_t size) {
    return translate == TranslateUnit::kFraction ? offset * static_cast<double>(size) : offset;
  };
  switch (call.operation) {
    case Operation::kAutocontrast:
      return Autocontrast(level, image);
    case Operation::kBlur:
      return Blur(level, image, scratch);
    case Operation::kBrightness:
      return Brightness(factor, image, scratch);
    case Operation::kColor:
      return Color(factor, image, scratch);
    case Operation::kContrast:
      return Contrast(factor, image, scratch);
    case Operation::kCutout: {
      const auto side = static_cast<double>(std::min(image.width, image.height));
      return Cutout(call.centre_x, call.centre_y, 1 + static_cast<int64_t>(level * side * 0.499),
                    image);
    }
    case Operation::kEqualize:
      return Equalize(level, image);
    case Operation::kIdentity:
      return;
    case Operation::kInvert:
      return Invert(level, image);
    case Operation::kPosterize:
      return Posterize(1 + static_cast<int>(level * 7.999), image);
    case Operation::kRescale:
      return CropAndResize(level * 0.25, static_cast<ResizeMethod>(call.levels[1] * 5.99), image,
                           scratch);
    case Operation::kRotate:
      return Rotate(static_cast<int>(std::nearbyint((2 * level - 1) * 45)), image, scratch);
    case Operation::kSharpness:
      return Sharpness(factor, image, scratch);
    case Operation::kShearX:
      return ShearX(offset, image, scratch);
    case Operation::kShearY:
      return ShearY(offset, image, scratch);
    case Operation::kSmooth:
      return Smooth(level, image, scratch);
    case Operation::kSolarize:
      return Solarize(static_cast<int>(level * 255.999), image);
    case Operation::kTranslateX:
      return Translate(distance(image.width), 0, image, scratch);
    case Operation::kTranslateY:
      return Translate(0, distance(image.height), image, scratch);
  }
}

}  // namespace lopt
