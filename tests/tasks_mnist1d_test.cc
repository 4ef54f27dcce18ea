#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/data/mnist1d.h"
#include "lopt/tasks/image/image_batches.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/image/image_task.h"
#include "tests/adam_training.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"

namespace lopt {
namespace {

constexpr size_t kPoints = Mnist1d::kPoints;

const NamedArrays& Golden() {
  static const ArrayFile file = ReadArrayFile(GoldenPath("mnist1d.safetensors"));
  return file.arrays;
}

std::span<const double> Numbers(const char* name) { return Golden().At(name).As<double>(); }

TEST_CASE("A signal is what the published package makes of the same draws") {
  const auto labels = Golden().At("labels").As<int32_t>();
  const std::span<const double> signals = Numbers("signals");
  for (size_t s = 0; s < labels.size(); ++s) {
    CAPTURE(s);
    Mnist1d::Draws draws{.padding = Golden().At("padding").As<int32_t>()[s],
                         .scale = Numbers("scale")[s],
                         .shift = Golden().At("shift").As<int32_t>()[s],
                         .slope = Numbers("shear")[s]};
    std::ranges::copy(Numbers("correlated_noise").subspan(s * Mnist1d::kPadded, Mnist1d::kPadded),
                      draws.correlated_noise.begin());
    std::ranges::copy(Numbers("noise").subspan(s * Mnist1d::kPadded, Mnist1d::kPadded),
                      draws.noise.begin());
    const auto signal = Mnist1dSignal(labels[s], draws);
    CHECK(Farthest(signal, signals.subspan(s * kPoints, kPoints)) < 1e-12);
  }
}

// Sums of a number over `n` signals, and how far its mean lies from that of 20,000 of the package's
// signals, in standard errors.
struct Sums {
  double sum = 0;
  double squares = 0;

  void Add(double value) {
    sum += value;
    squares += value * value;
  }
  double Deviation(double n, double wanted) const {
    const double mean = sum / n;
    const double variance = squares / n - mean * mean;
    return (mean - wanted) / std::sqrt(variance * (1 / n + 1 / 20000.0));
  }
};

TEST_CASE("Signals of every class have the moments of the package's") {
  constexpr int64_t kSignals = 3000;
  // Of 1,190 comparisons the farthest is 4.6 standard errors away with probability 0.005.
  double worst = 0;
  double squares = 0;
  for (int64_t label = 0; label < Mnist1d::kClasses; ++label) {
    const auto at = static_cast<size_t>(label);
    const auto means = Numbers("mean").subspan(at * kPoints, kPoints);
    const auto variances = Numbers("variance").subspan(at * kPoints, kPoints);
    const auto neighbours = Numbers("neighbours").subspan(at * (kPoints - 1), kPoints - 1);
    std::vector<Sums> first(kPoints);
    std::vector<Sums> second(kPoints);
    std::vector<Sums> product(kPoints - 1);
    for (int64_t i = 0; i < kSignals; ++i) {
      const Key key = FoldIn(KeyFromSeed(5), static_cast<uint64_t>(label * kSignals + i));
      const auto signal = Mnist1dSignal(label, DrawMnist1d(key));
      for (size_t p = 0; p < kPoints; ++p) {
        const double here = signal[p] - means[p];
        first[p].Add(here);
        second[p].Add(here * here);
        if (p + 1 < kPoints) product[p].Add(here * (signal[p + 1] - means[p + 1]));
      }
    }
    const auto take = [&](double deviation) {
      worst = Farther(worst, std::abs(deviation));
      squares += deviation * deviation;
    };
    for (size_t p = 0; p < kPoints; ++p) {
      take(first[p].Deviation(kSignals, 0));
      take(second[p].Deviation(kSignals, variances[p]));
      if (p + 1 < kPoints) take(product[p].Deviation(kSignals, neighbours[p]));
    }
  }
  MESSAGE("worst deviation " << worst << ", mean square " << squares / 1190);
  CHECK(worst < 4.6);
  CHECK(squares / 1190 < 1.5);
}

TEST_CASE("The data set is 5,000 signals, balanced, mixed, of mean 0 and deviation 1, and 9,000") {
  const RawSignals all = MakeMnist1d();
  using Range = std::pair<int64_t, int64_t>;
  CHECK(all.count == 14000);
  CHECK(all.height == 40);
  CHECK(all.width == 1);
  CHECK(all.channels == 1);
  CHECK(all.splits[0] == Range(0, 3200));
  CHECK(all.splits[1] == Range(3200, 3600));
  CHECK(all.splits[2] == Range(3600, 4000));
  CHECK(all.splits[3] == Range(4000, 14000));
  for (uint8_t label = 0; label < 10; ++label) {
    const auto labels = std::span(all.labels);
    CHECK(std::ranges::count(labels.first(5000), label) == 500);
    const auto in_test = std::ranges::count(labels.subspan(4000, 1000), label);
    CHECK(std::abs(in_test - 100) < 40);  // 4 standard deviations
    for (size_t hundred = 5000; hundred < 14000; hundred += 100) {
      CHECK(std::ranges::count(labels.subspan(hundred, 100), label) == 10);
    }
  }
  double sum = 0;
  double squares = 0;
  for (const float value : std::span(all.pixels).first(200000)) {
    sum += value;
    squares += double{value} * value;
  }
  CHECK(std::abs(sum) < 1e-3);
  CHECK(squares == doctest::Approx(200000).epsilon(1e-6));
  // The others are new draws of the same distribution: the mean squares of signals, of the same
  // variance in both sets, differ by standard errors.
  const auto energies = [&](int64_t first, int64_t last) {
    Sums energy;
    for (int64_t row = first; row < last; ++row) {
      double of_signal = 0;
      for (const float value : std::span(all.pixels).subspan(static_cast<size_t>(row * 40), 40)) {
        of_signal += double{value} * value;
      }
      energy.Add(of_signal);
    }
    return energy;
  };
  const Sums more = energies(5000, 14000);
  const double variance = more.squares / 9000 - std::pow(more.sum / 9000, 2);
  CHECK(std::abs(more.sum / 9000 - 40) < 4 * std::sqrt(variance * (1 / 5000.0 + 1 / 9000.0)));
}

TEST_CASE("A task on MNIST-1D sees the signals as they are, and takes no option of images") {
  const TaskResources resources("");
  const auto data = GetImages({.image_size = 0, .data = ImageSource::kMnist1d}, resources);
  CHECK(data->height() == 40);
  CHECK(data->width() == 1);
  CHECK(data->channels() == 1);
  CHECK(data->classes() == 10);
  const RawSignals all = MakeMnist1d();
  for (const int64_t row : {0, 13999}) {
    for (int64_t i = 0; i < 40; ++i) {
      CHECK(data->images()[row * data->stride() + i] ==
            all.pixels[static_cast<size_t>(row * 40 + i)]);
    }
  }
  const std::vector<int32_t> examples = {0, 7};
  const ImageBatch batch = {.images = data->images(),
                            .stride = data->stride(),
                            .labels = data->labels(),
                            .examples = examples};
  const std::vector<Pictures> pictures = BatchPictures(*data, batch);
  REQUIRE(pictures.size() == 1);
  CHECK(pictures[0].count == 2);
  CHECK(pictures[0].width == 40);
  // A column of a curve is one line of pixels, beginning or ending at its point's level.
  const float* curve = &pictures[0].pixels[static_cast<size_t>(pictures[0].height * 40)];
  for (int64_t point = 0; point < 40; ++point) {
    const float value = data->images()[7 * data->stride() + point];
    const auto level = static_cast<int64_t>((4 - value) * 3);
    CHECK(curve[level * 40 + point] == 1);
  }

  const auto error = [&](ImageOptions options) {
    options.data = ImageSource::kMnist1d;
    return ErrorOf([&] { GetImages(options, resources); });
  };
  const std::string wanted =
      "image task: data 'mnist1d' are signals of 40 points, wanted image_size 0, image_channels 0 "
      "or 1 and distortion 'none', got ";
  CHECK(error({}) == wanted + "8, 0 and 'none'");
  CHECK(error({.image_size = 0, .channels = 3}) == wanted + "0, 3 and 'none'");
  CHECK(error({.image_size = 0, .distortion = Distortion::kDim}) == wanted + "0, 0 and 'dim'");
  CHECK(ErrorOf([&] { ImageBatches(Config::Parse(R"({"type": "Drawn"})", "test"), data); }) ==
        "augment 'Drawn' is for images, but the data are signals");
}

// Published: 32 % and 68 %, from the 4,000 signals of the training set (arXiv 2011.14439).
TEST_CASE("A linear classifier and a perceptron reach the published accuracies") {
  for (const auto& [hidden, rate, published] : {std::tuple{std::vector<int64_t>{}, 0.01, 0.32},
                                                {std::vector<int64_t>{100, 100}, 0.01, 0.68}}) {
    const ImageMlpOptions options{.images = {.image_size = 0, .data = ImageSource::kMnist1d},
                                  .hidden = hidden};
    const ImageMlp task(options, GetImages(options.images, TaskResources("")));
    double accuracy = 0;
    for (const uint64_t seed : {0, 1}) {
      AdamTraining training(task, rate, KeyFromSeed(seed), std::pair{0, 4000});
      training.Train(0, 4000, 4000);
      accuracy += training.Accuracy(Split::kTest) / 2;
    }
    MESSAGE(hidden.size() << " hidden layers: test accuracy " << accuracy);
    CHECK(std::abs(accuracy - published) < 0.03);
  }
}

}  // namespace
}  // namespace lopt
