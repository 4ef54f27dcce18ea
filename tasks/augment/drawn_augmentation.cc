#include "lopt/tasks/augment/drawn_augmentation.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/augment/drawn_kernel.h"

namespace lopt {
namespace {

// Where the numbers are in the config.
constexpr size_t kStrokeAt = 0;
constexpr size_t kAffineAt = 1;
constexpr size_t kContrastAt = 7;
constexpr size_t kBrightnessAt = 8;
constexpr size_t kPermutationAt = 9;

Layout DrawnLayout(const DrawnAugmentationOptions& options, const ImageExtent& extent) {
  std::vector<std::pair<std::string, Shape>> tensors = {{"augment/stroke", {}},
                                                        {"augment/affine", {2, 3}},
                                                        {"augment/contrast", {}},
                                                        {"augment/brightness", {}}};
  if (options.permute > 0) {
    tensors.push_back({"augment/permutation", {extent.height * extent.width}});
  }
  return Layout(std::move(tensors));
}

// Rotation, shear and scales as one matrix, and a translation in pixels.
void WriteAffine(double angle, double shear, double scale_x, double scale_y, double x, double y,
                 std::span<float> affine) {
  const double cos = std::cos(angle);
  const double sin = std::sin(angle);
  const double matrix[] = {cos * scale_x, (cos * shear - sin) * scale_y, x,
                           sin * scale_x, (sin * shear + cos) * scale_y, y};
  std::ranges::transform(matrix, affine.begin(), [](double v) { return static_cast<float>(v); });
}

// What an output pixel is made of: four input pixels, the weight 0 where one is outside.
struct Corners {
  int64_t pixels[4];
  float weights[4];
};

Corners CornersOf(std::span<const float> a, const ImageExtent& extent, int64_t x, int64_t y) {
  const float middle_x = static_cast<float>(extent.width - 1) / 2;
  const float middle_y = static_cast<float>(extent.height - 1) / 2;
  const float from_x = static_cast<float>(x) - middle_x;
  const float from_y = static_cast<float>(y) - middle_y;
  // Far outside is as good as just outside, and fits an integer.
  const auto limited = [](float at, int64_t size) {
    return std::clamp(at, -2.0F, static_cast<float>(size) + 1);
  };
  const float x_in = limited(a[0] * from_x + a[1] * from_y + a[2] + middle_x, extent.width);
  const float y_in = limited(a[3] * from_x + a[4] * from_y + a[5] + middle_y, extent.height);
  const float left = std::floor(x_in);
  const float top = std::floor(y_in);
  Corners corners{};
  for (int64_t corner = 0; corner < 4; ++corner) {
    const auto column = static_cast<int64_t>(left) + corner % 2;
    const auto line = static_cast<int64_t>(top) + corner / 2;
    if (column < 0 || column >= extent.width || line < 0 || line >= extent.height) continue;
    const float along_x = corner % 2 == 0 ? 1 - (x_in - left) : x_in - left;
    const float along_y = corner / 2 == 0 ? 1 - (y_in - top) : y_in - top;
    corners.pixels[corner] = line * extent.width + column;
    corners.weights[corner] = along_x * along_y;
  }
  return corners;
}

}  // namespace

void DrawnAugmentationOptions::Visit(FieldVisitor& v) {
  v.Field("rotation", &rotation, Between(0, 180),
          "Tasks rotate their images by up to so many degrees, either way.");
  v.Field("scale", &scale, Between(1, 10),
          "Tasks stretch or shrink the width and the height by up to this factor.");
  v.Field("shear", &shear, Between(0, 10), "Tasks shear by up to so many pixels a line.");
  v.Field("translation", &translation, Between(0, 1),
          "Tasks move images by up to this part of the width and of the height.");
  v.Field("stroke", &stroke, Between(0, 1),
          "Tasks make bright strokes thicker or thinner by up to this part of a pixel on each "
          "side.");
  v.Field("contrast", &contrast, Between(1, 100),
          "Tasks stretch or shrink the contrast by up to this factor.");
  v.Field("brightness", &brightness, Between(0, 1),
          "Tasks add up to this number to every pixel, or take it away.");
  v.Field("permute", &permute, Between(0, 1),
          "Probability that a task exchanges its pixels, by one permutation for all images.");
}

DrawnAugmentation::DrawnAugmentation(const DrawnAugmentationOptions& options,
                                     const ImageExtent& extent)
    : Augmentation(DrawnLayout(CheckOptions("Drawn", options), extent)),
      options_(options),
      extent_(extent) {}

void DrawnAugmentation::Sample(Key key, std::span<float> config) const {
  std::vector<float> draws(10);
  Uniform(FoldIn(key, 0), draws);
  auto next = draws.begin();
  // Uniform on [-by, by); and a factor whose logarithm is, between 1 / by and by.
  const auto either_way = [&](double by) { return by * (2 * double{*next++} - 1); };
  const auto factor = [&](double by) { return std::exp(either_way(std::log(by))); };
  const double angle = either_way(options_.rotation * std::numbers::pi / 180);
  const double shear = either_way(options_.shear);
  const double scale_x = factor(options_.scale);
  const double scale_y = factor(options_.scale);
  const double x = either_way(options_.translation * static_cast<double>(extent_.width));
  const double y = either_way(options_.translation * static_cast<double>(extent_.height));
  WriteAffine(angle, shear, scale_x, scale_y, x, y, config.subspan(kAffineAt, 6));
  config[kStrokeAt] = static_cast<float>(either_way(options_.stroke));
  config[kContrastAt] = static_cast<float>(factor(options_.contrast));
  config[kBrightnessAt] = static_cast<float>(either_way(options_.brightness));
  if (options_.permute == 0) return;
  const std::span<float> permutation = config.subspan(kPermutationAt);
  for (size_t i = 0; i < permutation.size(); ++i) permutation[i] = static_cast<float>(i);
  if (*next >= options_.permute) return;
  std::vector<uint32_t> words(permutation.size());
  Bits(FoldIn(key, 1), words);
  std::ranges::stable_sort(permutation, {}, [&](float i) { return words[static_cast<size_t>(i)]; });
}

void DrawnAugmentation::Augment(const AugmentedRow& row, const ImageBatch& batch, float* out,
                                Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  const std::span<const float> config = row.config;
  const int64_t stride = batch.stride;
  const std::span<int32_t> inputs = scratch.Take<int32_t>(4 * stride);
  const std::span<float> weights = scratch.Take<float>(4 * stride);
  std::ranges::fill(inputs, 0);
  std::ranges::fill(weights, 0.0F);
  const int64_t pixels = extent_.height * extent_.width;
  for (int64_t p = 0; p < pixels; ++p) {
    const Corners from =
        CornersOf(config.subspan(kAffineAt, 6), extent_, p % extent_.width, p / extent_.width);
    int64_t to = p;
    if (options_.permute > 0) {
      const float place = config[kPermutationAt + p];  // it may come from a file
      Require(place >= 0 && place < static_cast<float>(pixels),
              "Drawn: the config moves a pixel to place {}, there are {}", place, pixels);
      to = static_cast<int64_t>(place);
    }
    for (int64_t k = 0; k < 4; ++k) {
      for (int64_t c = 0; c < extent_.channels; ++c) {
        const int64_t at = k * stride + to * extent_.channels + c;
        inputs[at] = static_cast<int32_t>(from.pixels[k] * extent_.channels + c);
        weights[at] = from.weights[k];
      }
    }
  }
  const float contrast = config[kContrastAt];
  ApplyDrawnChange({.extent = extent_,
                    .stroke = config[kStrokeAt],
                    .inputs = inputs.data(),
                    .weights = weights.data(),
                    .contrast = contrast,
                    .shift = 0.5F - 0.5F * contrast + config[kBrightnessAt]},
                   batch, out, scratch);
}

}  // namespace lopt
