#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "tasks/glyphs.h"
#include "tasks/image_mlp.h"

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

TEST_CASE("The ten classes are equally frequent and well mixed") {
  const RawImages images = GenerateImages();
  CHECK(images.count == 10000);
  for (const auto& [first, last] : images.splits) {
    std::vector<int64_t> count(10);
    for (int64_t row = first; row < last; ++row) ++count[images.labels[row]];
    const double wanted = static_cast<double>(last - first) / 10;
    for (const int64_t n : count) {
      CHECK(std::abs(static_cast<double>(n) - wanted) < 4 * std::sqrt(0.9 * wanted));
    }
  }
  CHECK(images.splits[0] == std::pair<int64_t, int64_t>(0, 7000));
  CHECK(images.splits[3] == std::pair<int64_t, int64_t>(9000, 10000));
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

// Plain Adam with the learning rate falling to 0 as a cosine over the second half.
class AdamTraining {
 public:
  AdamTraining(const ImageMlp& task, double learning_rate, Key key)
      : task_(task),
        learning_rate_(learning_rate),
        key_(key),
        params_(task.params_layout().size()),
        gradient_(params_.size()),
        m_(params_.size()),
        v_(params_.size()) {
    task.Init({}, FoldIn(key, 0), params_, {});
  }

  // The mean loss of steps [first, last).
  double Train(int first, int last, int total) {
    double sum = 0;
    for (int step = first; step < last; ++step) {
      const Key key = FoldIn(FoldIn(key_, 1), static_cast<uint64_t>(step));
      sum += Loss({.keys = {&key, 1}, .gradients = gradient_});
      const double late = std::max(0.0, 2.0 * step / total - 1);
      const double rate = learning_rate_ * 0.5 * (1 + std::cos(3.14159265 * late));
      const double m_scale = 1 / (1 - std::pow(0.9, step + 1));
      const double v_scale = 1 / (1 - std::pow(0.999, step + 1));
      for (size_t i = 0; i < params_.size(); ++i) {
        m_[i] = 0.9 * m_[i] + 0.1 * gradient_[i];
        v_[i] = 0.999 * v_[i] + 0.001 * gradient_[i] * gradient_[i];
        params_[i] -=
            static_cast<float>(rate * m_scale * m_[i] / (std::sqrt(v_scale * v_[i]) + 1e-8));
      }
    }
    return sum / (last - first);
  }

  double Accuracy(Split split) {
    const auto [first, last] = task_.ExampleRange(split);
    std::vector<int32_t> examples(last - first);
    std::iota(examples.begin(), examples.end(), first);
    float accuracy = 0;
    Loss({.split = split, .examples = examples, .aux = {&accuracy, 1}});
    return accuracy;
  }

 private:
  double Loss(TaskEvaluation evaluation) {
    float loss = 0;
    evaluation.params = params_;
    evaluation.losses = {&loss, 1};
    task_.Evaluate(evaluation, scratch_);
    return loss;
  }

  const ImageMlp& task_;
  double learning_rate_;
  Key key_;
  std::vector<float> params_;
  std::vector<float> gradient_;
  std::vector<double> m_;
  std::vector<double> v_;
  Workspace scratch_;
};

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
