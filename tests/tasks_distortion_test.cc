#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/tasks/data/distortion.h"
#include "lopt/tasks/data/glyphs.h"
#include "lopt/tasks/image/image_task.h"

namespace lopt {
namespace {

TEST_CASE("Inverted and dim images are computed pixel by pixel") {
  const RawImages plain = GenerateImages();
  RawImages inverted = plain;
  RawImages dim = plain;
  Distort(Distortion::kInverted, &inverted);
  Distort(Distortion::kDim, &dim);
  CHECK(inverted.labels == plain.labels);
  for (size_t i = 0; i < plain.pixels.size(); i += 997) {
    CHECK(inverted.pixels[i] == 255 - plain.pixels[i]);
    CHECK(dim.pixels[i] == plain.pixels[i] / 4);
  }
}

TEST_CASE("Noise has its standard deviation where no pixel is cut off") {
  RawImages images = GenerateImages();
  std::ranges::fill(images.pixels, uint8_t{128});
  Distort(Distortion::kNoisy, &images);
  double sum = 0;
  double squares = 0;
  for (const uint8_t pixel : images.pixels) {
    const double noise = pixel - 128.0;
    sum += noise;
    squares += noise * noise;
  }
  const auto n = static_cast<double>(images.pixels.size());
  // Cutting off at 3.2 standard deviations takes 0.5 % off; n is 7,840,000.
  CHECK(std::abs(sum / n) < 0.1);
  CHECK(std::sqrt(squares / n) == doctest::Approx(40).epsilon(0.01));
}

TEST_CASE("Every channel of every pixel has noise of its own") {
  RawImages images{.count = 10, .height = 4, .width = 4, .channels = 3};
  images.pixels.assign(10 * 4 * 4 * 3, 128);
  Distort(Distortion::kNoisy, &images);
  int64_t same = 0;
  int64_t plain = 0;
  for (size_t i = 0; i < images.pixels.size(); ++i) {
    plain += images.pixels[i] == 128 ? 1 : 0;
    same += i > 0 && images.pixels[i] == images.pixels[i - 1] ? 1 : 0;
  }
  // A value has probability 0.01, and 0.007 that of its neighbour; of 480.
  CHECK(plain < 20);
  CHECK(same < 20);
}

TEST_CASE("A fifth of the train labels are drawn anew, and no others") {
  const RawImages plain = GenerateImages();
  RawImages images = plain;
  Distort(Distortion::kMislabeled, &images);
  CHECK(images.pixels == plain.pixels);
  const auto [first, last] = plain.splits[static_cast<size_t>(Split::kTrain)];
  int64_t changed = 0;
  for (int64_t i = 0; i < plain.count; ++i) {
    const bool differs = images.labels[i] != plain.labels[i];
    if (i < first || i >= last) CHECK_FALSE(differs);
    changed += differs ? 1 : 0;
  }
  // One of ten new labels is the old one: 0.2 * 0.9 of 7,000, four standard errors.
  CHECK(std::abs(static_cast<double>(changed) - 1260) < 4 * std::sqrt(7000 * 0.18 * 0.82));
}

TEST_CASE("A distorted data set is another one, and the same each time") {
  const TaskResources resources("");
  const auto plain = GetImages({}, resources);
  const auto noisy = GetImages({.distortion = Distortion::kNoisy}, resources);
  CHECK(plain != noisy);
  CHECK(GetImages({.distortion = Distortion::kNoisy}, resources) == noisy);
  const auto again = GetImages({.distortion = Distortion::kNoisy}, TaskResources(""));
  CHECK(std::equal(noisy->images(), noisy->images() + 19000 * noisy->stride(), again->images()));
}

TEST_CASE("An unknown distortion is answered with the names") {
  CHECK_THROWS_WITH_AS(GetImages({.distortion = static_cast<Distortion>(9)}, TaskResources("")),
                       "image task: distortion must be one of none, inverted, dim, noisy, "
                       "mislabeled, got number 9",
                       Error);
}

}  // namespace
}  // namespace lopt
