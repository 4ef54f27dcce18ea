#include "lopt/tasks/data/distortion.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/key.h"

namespace lopt {
namespace {

constexpr int64_t kDistortionSeed = 20260;
constexpr float kNoise = 40;
constexpr float kMislabeledPart = 0.2F;

void AddNoise(RawImages* images) {
  const auto pixels = images->pixels.size() / static_cast<size_t>(images->count);
  std::vector<float> noise(pixels);
  for (int64_t i = 0; i < images->count; ++i) {
    Normal(FoldIn(KeyFromSeed(kDistortionSeed), static_cast<uint64_t>(i)), noise);
    uint8_t* image = images->pixels.data() + static_cast<size_t>(i) * pixels;
    for (size_t p = 0; p < pixels; ++p) {
      image[p] = static_cast<uint8_t>(
          std::clamp(std::round(static_cast<float>(image[p]) + kNoise * noise[p]), 0.0F, 255.0F));
    }
  }
}

void Mislabel(RawImages* images) {
  const auto [first, last] = images->splits[static_cast<size_t>(Split::kTrain)];
  const auto count = static_cast<size_t>(last - first);
  const int32_t classes = 1 + *std::ranges::max_element(images->labels);
  std::vector<float> chance(count);
  std::vector<int32_t> label(count);
  Uniform(FoldIn(KeyFromSeed(kDistortionSeed), 0), chance);
  Randint(FoldIn(KeyFromSeed(kDistortionSeed), 1), 0, classes, label);
  for (size_t i = 0; i < count; ++i) {
    if (chance[i] < kMislabeledPart) {
      images->labels[static_cast<size_t>(first) + i] = static_cast<uint8_t>(label[i]);
    }
  }
}

}  // namespace

void Distort(Distortion distortion, RawImages* images) {
  switch (distortion) {
    case Distortion::kNone:
      break;
    case Distortion::kInverted:
      for (uint8_t& pixel : images->pixels) pixel = static_cast<uint8_t>(255 - pixel);
      break;
    case Distortion::kDim:
      for (uint8_t& pixel : images->pixels) pixel = static_cast<uint8_t>(pixel / 4);
      break;
    case Distortion::kNoisy:
      AddNoise(images);
      break;
    case Distortion::kMislabeled:
      Mislabel(images);
      break;
  }
}

}  // namespace lopt
