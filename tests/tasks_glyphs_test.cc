#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/tasks/data/data_checksums.h"
#include "lopt/tasks/data/glyphs.h"
#include "lopt/tasks/data/glyphs_kernel.h"
#include "lopt/tasks/image/image_mlp.h"
#include "tests/adam_training.h"
#include "tests/reference/glyphs_reference.h"

namespace lopt {
namespace {

TEST_CASE("Glyphs are a pure function of the key, whatever the threads and the count") {
  const Key key = KeyFromSeed(3);
  const Glyphs some = DrawGlyphs(key, 250);
  CHECK(some.pixels.size() == 250 * 28 * 28);
  CHECK(some.labels.size() == 250);
  ThreadPool pool(2);
  pool.Run([&] {
    const Glyphs more = DrawGlyphs(key, 420);
    CHECK(std::equal(some.pixels.begin(), some.pixels.end(), more.pixels.begin()));
    CHECK(std::equal(some.labels.begin(), some.labels.end(), more.labels.begin()));
  });
  CHECK(DrawGlyphs(KeyFromSeed(4), 250).pixels != some.pixels);
}

TEST_CASE("Segments anywhere in and beyond the image are drawn as by plain loops") {
  constexpr int64_t kPixels = Glyphs::kSide * Glyphs::kSide;
  for (const std::string& isa : SupportedIsas()) {
    const IsaScope scope(isa);
    for (uint64_t i = 0; i < 300; ++i) {
      CAPTURE(isa);
      CAPTURE(i);
      const Key key = FoldIn(KeyFromSeed(5), i);
      std::vector<uint32_t> words(kPixels);
      Bits(FoldIn(key, 0), words);
      std::vector<float> numbers(40);
      Uniform(FoldIn(key, 1), numbers);
      for (float& x : numbers) x = 44 * x - 8;
      std::vector<GlyphSegment> segments;
      for (size_t k = 0; k < i % 10; ++k) {
        const float* at = &numbers[4 * k];
        segments.push_back({at[0], at[1], at[2], at[3]});
      }
      // A point, of which nothing is left of its length.
      if (i % 3 == 0) segments.push_back({27, 27, 27, 27});
      const GlyphPen pen = {.radius = 0.9f + static_cast<float>(i % 7) / 7,
                            .ink = 150 + static_cast<float>(i % 100),
                            .noise = 5 + static_cast<float>(i % 30)};
      std::vector<uint8_t> drawn(kPixels + 64, 7);
      DrawSegments(segments, pen, words, drawn.data());
      std::vector<uint8_t> wanted(kPixels + 64, 7);
      ReferenceDrawSegments(segments, pen, words, wanted.data());
      CHECK(drawn == wanted);
    }
  }
}

TEST_CASE("The drawn digits stay what they were, on every instruction set") {
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    const IsaScope scope(isa);
    CHECK(ChecksumOf(GenerateImages()) == 2995722548U);
  }
}

TEST_CASE("The ten classes are equally frequent and well mixed") {
  const RawImages images = GenerateImages();
  CHECK(images.count == 19000);
  for (const auto& [first, last] : images.splits) {
    std::vector<int64_t> count(10);
    for (int64_t row = first; row < last; ++row) ++count[images.labels[row]];
    const double wanted = static_cast<double>(last - first) / 10;
    for (const int64_t n : count) {
      CHECK(std::abs(static_cast<double>(n) - wanted) < 4 * std::sqrt(0.9 * wanted));
    }
  }
  CHECK(images.splits[0] == std::pair<int64_t, int64_t>(0, 7000));
  CHECK(images.splits[3] == std::pair<int64_t, int64_t>(9000, 19000));
}

TEST_CASE("Glyphs have ink in the middle and little of it at the border") {
  const RawImages images = GenerateImages();
  double middle = 0;
  double border = 0;
  for (int64_t row = 0; row < 1000; ++row) {
    const uint8_t* image = &images.pixels[row * 784];
    for (int64_t i = 0; i < 28; ++i) {
      border += image[i] + image[28 * 27 + i];
      middle += image[28 * 13 + i] + image[28 * 14 + i];
    }
  }
  CHECK(middle / 56000 > 30);
  CHECK(border / 56000 < 15);
}

TEST_CASE("Glyphs are a real learning problem for a tuned Adam") {
  const ImageMlp task({}, GetImages({}, TaskResources("")));
  for (const uint64_t seed : {0, 1}) {
    AdamTraining training(task, 0.02, KeyFromSeed(seed));
    constexpr int kSteps = 2500;
    CHECK(training.Train(0, 1, kSteps) > 2.2);
    CHECK(training.Train(1, 5, kSteps) > 2.0);
    CHECK(training.Accuracy(Split::kTest) < 0.5);
    training.Train(5, 20, kSteps);
    CHECK(training.Train(20, 30, kSteps) > 0.8);
    training.Train(30, 290, kSteps);
    const double after_300 = training.Train(290, 300, kSteps);
    CHECK(after_300 > 0.1);
    CHECK(after_300 < 0.4);
    training.Train(300, kSteps, kSteps);
    const double accuracy = training.Accuracy(Split::kTest);
    MESSAGE("test accuracy " << accuracy << ", loss after 300 steps " << after_300);
    CHECK(accuracy > 0.9);
    CHECK(accuracy < 0.99);
  }
}

}  // namespace
}  // namespace lopt
