#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/replay.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/registry.h"
#include "tests/row_task.h"

namespace lopt {
namespace {

std::unique_ptr<UpdateRule> Sgd(const TaskFamily& task, double learning_rate) {
  const LearnableSGD optimizer({.learning_rate = learning_rate});
  const Eigen::VectorXf theta = optimizer.InitTheta(Key{});
  return optimizer.Bind(task.params_layout(), AsSpan(theta));
}

TEST_CASE("A quadratic under gradient descent shrinks by the known factor each step") {
  const FixedDimQuadraticFamily task({.dim = 10});
  const auto rule = Sgd(task, 0.1);
  Workspace scratch;
  const std::vector<int64_t> judge_at = {3, 8};
  const TrainingCurve curve =
      TrainTask(task, *rule, judge_at, Split::kTest, {.key = KeyFromSeed(5)}, scratch);
  REQUIRE(curve.train_loss.size() == 8);
  REQUIRE(curve.judged.size() == 2);
  CHECK(curve.train_accuracy.empty());
  for (size_t step = 1; step < 8; ++step) {
    CHECK(curve.train_loss[step] == doctest::Approx(0.64 * curve.train_loss[step - 1]));
  }
  // The loss after step 3 is the one that step 4 starts from.
  CHECK(curve.judged[0].loss == doctest::Approx(curve.train_loss[3]));
  CHECK(curve.judged[1].loss == doctest::Approx(0.64 * curve.train_loss[7]));
  CHECK(std::isnan(curve.judged[1].accuracy));
}

// Walks away, and stands for where it began.
class Walking : public UpdateRule {
 public:
  explicit Walking(const Layout& params) : UpdateRule(params, params) {}

 private:
  void DoInitState(const StepInfo&, std::span<const float> params,
                   std::span<float> state) const override {
    std::ranges::copy(params, state.begin());
  }
  void DoUpdate(const StepInfo&, std::span<const float>, std::span<float> params, std::span<float>,
                Workspace&) const override {
    for (float& p : params) p += 100;
  }
  std::span<const float> DoEvalParams(std::span<const float>,
                                      std::span<const float> state) const override {
    return state;
  }
};

TEST_CASE("What is judged and kept are the params that the rule stands for") {
  const FixedDimQuadraticFamily task({.dim = 10});
  const Walking rule(task.params_layout());
  Workspace scratch;
  const std::vector<int64_t> judge_at = {3, 8};
  const TrainingCurve curve =
      TrainTask(task, rule, judge_at, Split::kTest, {.key = KeyFromSeed(5)}, scratch);
  CHECK(curve.train_loss[1] > 1e4);
  for (const SplitScore& score : curve.judged) CHECK(score.loss == curve.train_loss[0]);
  CHECK(std::ranges::all_of(curve.params, [](float p) { return std::abs(p) < 50; }));
}

TEST_CASE("The same key gives two optimizers the same task, start and data") {
  const ImageMlp task({.images = {.batch_size = 16}}, GetImages({}, TaskResources("")));
  Workspace scratch;
  const std::vector<int64_t> judge_at = {5};
  const auto train = [&](double learning_rate, uint64_t seed) {
    return TrainTask(task, *Sgd(task, learning_rate), judge_at, Split::kTest,
                     {.key = KeyFromSeed(seed)}, scratch);
  };
  const TrainingCurve slow = train(0.01, 1);
  const TrainingCurve fast = train(0.5, 1);
  CHECK(slow.train_loss[0] == fast.train_loss[0]);
  CHECK(slow.train_loss[1] != fast.train_loss[1]);
  CHECK(train(0.01, 2).train_loss[0] != slow.train_loss[0]);
  CHECK(train(0.01, 1).train_loss == slow.train_loss);
}

TEST_CASE("A training goes through its data by epochs, and a whole split is judged as it is") {
  const RowTask task(9, 1, Sampling::kEpoch);
  Workspace scratch;
  const std::vector<int64_t> judge_at = {18};
  const auto train = [&](uint64_t seed) {
    return TrainTask(task, *Sgd(task, 0.1), judge_at, Split::kTest, {.key = KeyFromSeed(seed)},
                     scratch);
  };
  const TrainingCurve curve = train(1);
  std::vector<float> first(curve.train_loss.begin(), curve.train_loss.begin() + 9);
  std::vector<float> second(curve.train_loss.begin() + 9, curve.train_loss.end());
  CHECK(first != second);
  for (std::vector<float>* epoch : {&first, &second}) {
    std::ranges::sort(*epoch);
    CHECK(*epoch == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  }
  CHECK(curve.judged[0].loss == 11);
  CHECK(train(1).train_loss == curve.train_loss);
  CHECK(train(2).train_loss != curve.train_loss);
}

TEST_CASE("Judging uses all examples of the split and leaves the training as it was") {
  const ImageMlp task({.images = {.batch_size = 16}}, GetImages({}, TaskResources("")));
  const auto rule = Sgd(task, 0.1);
  Workspace scratch;
  const std::vector<int64_t> often = {1, 2, 3, 4, 5};
  const std::vector<int64_t> once = {5};
  const TrainingSource source{.key = KeyFromSeed(3)};
  const TrainingCurve judged = TrainTask(task, *rule, often, Split::kTest, source, scratch);
  const TrainingCurve plain = TrainTask(task, *rule, once, Split::kTest, source, scratch);
  CHECK(judged.train_loss == plain.train_loss);
  CHECK(judged.params == plain.params);
  CHECK(judged.judged[4].loss == plain.judged[0].loss);

  // The mean over the split's examples, taken one by one.
  const auto [first, last] = task.ExampleRange(Split::kTest);
  double loss = 0;
  double correct = 0;
  for (int64_t row = first; row < last; ++row) {
    const auto example = static_cast<int32_t>(row);
    float one = 0;
    float right = 0;
    task.Evaluate({.params = plain.params,
                   .examples = {&example, 1},
                   .losses = {&one, 1},
                   .aux = {&right, 1}},
                  scratch);
    loss += one;
    correct += right;
  }
  const auto count = static_cast<double>(last - first);
  CHECK(plain.judged[0].loss == doctest::Approx(loss / count).epsilon(1e-5));
  CHECK(plain.judged[0].accuracy == doctest::Approx(correct / count).epsilon(1e-6));
}

TEST_CASE("A training that diverges goes on to its end and keeps what it saw") {
  const FixedDimQuadraticFamily task({.dim = 2});
  const auto rule = Sgd(task, 1e10);
  Workspace scratch;
  const std::vector<int64_t> judge_at = {20};
  const TrainingCurve curve =
      TrainTask(task, *rule, judge_at, Split::kTest, {.key = KeyFromSeed(1)}, scratch);
  CHECK(curve.train_loss.size() == 20);
  CHECK(std::isfinite(curve.train_loss[0]));
  CHECK_FALSE(std::isfinite(curve.train_loss[19]));
  CHECK_FALSE(std::isfinite(curve.judged[0].loss));
}

TEST_CASE("Trainings that are told to stop end before the next step, without curves") {
  const FixedDimQuadraticFamily task({.dim = 3});
  const auto rule = Sgd(task, 1e-3);
  const std::vector<int64_t> judge_at = {int64_t{1} << 24};
  const std::vector<TrainingSource> sources = {{.key = KeyFromSeed(1)}};
  Workspace scratch;
  const std::atomic<bool> stop = true;
  CHECK(TrainTasks(task, *rule, judge_at, Split::kTest, sources, scratch, &stop).empty());
}

TEST_CASE("Trainings that advance together have the curves of each alone, where rows are apart") {
  const ImageMlp images({.images = {.batch_size = 16}}, GetImages({}, TaskResources("")));
  const NoisyQuadraticFamily noisy({.dim = 5});
  const std::vector<int64_t> judge_at = {2, 6};
  const std::vector<TrainingSource> sources = {
      {.key = KeyFromSeed(1)}, {.key = KeyFromSeed(2)}, {.key = KeyFromSeed(1)}};
  for (const TaskFamily* task :
       {static_cast<const TaskFamily*>(&images), static_cast<const TaskFamily*>(&noisy)}) {
    const auto rule = Sgd(*task, 1e-3);
    Workspace scratch;
    const std::vector<TrainingCurve> together =
        TrainTasks(*task, *rule, judge_at, Split::kTest, sources, scratch);
    REQUIRE(together.size() == 3);
    CHECK(together[0].train_loss != together[1].train_loss);
    CHECK(together[0].train_loss == together[2].train_loss);
    for (size_t i = 0; i < sources.size(); ++i) {
      const TrainingCurve alone =
          TrainTask(*task, *rule, judge_at, Split::kTest, sources[i], scratch);
      CHECK(together[i].train_loss == alone.train_loss);
      CHECK(together[i].train_accuracy == alone.train_accuracy);
      CHECK(together[i].params == alone.params);
      REQUIRE(together[i].judged.size() == 2);
      CHECK(together[i].judged[0].loss == alone.judged[0].loss);
      CHECK(together[i].judged[1].loss == alone.judged[1].loss);
      CHECK(together[i].seconds == together[0].seconds);
    }
  }
}

TEST_CASE("Each training takes the params and the examples of its own source") {
  const ImageMlp task({.images = {.batch_size = 16}}, GetImages({}, TaskResources("")));
  const auto rule = Sgd(task, 0.1);
  Workspace scratch;
  const std::vector<int64_t> judge_at = {2};
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()), 0.01F);
  const std::vector<int32_t> first = {0, 1, 2, 3, 4, 5};  // two steps of three examples
  const std::vector<int32_t> second = {9, 8, 7, 6, 5, 4};
  const std::vector<TrainingSource> sources = {{.params = params, .examples = first},
                                               {.params = params, .examples = second}};
  const std::vector<TrainingCurve> together =
      TrainTasks(task, *rule, judge_at, Split::kTest, sources, scratch);
  CHECK(together[0].params ==
        TrainTask(task, *rule, judge_at, Split::kTest, sources[0], scratch).params);
  CHECK(together[1].params ==
        TrainTask(task, *rule, judge_at, Split::kTest, sources[1], scratch).params);
  CHECK(together[0].params != together[1].params);
  const std::vector<TrainingSource> uneven = {{.params = params, .examples = first},
                                              {.params = params}};
  CHECK_THROWS_WITH_AS(TrainTasks(task, *rule, judge_at, Split::kTest, uneven, scratch),
                       "training: one source has 6 examples, another 0; wanted as many of all",
                       Error);
}

TEST_CASE("A replay draws nothing: an augmentation leaves its batches as they are") {
  const auto data = GetImages({}, TaskResources(""));
  const ImageMlp plain({.images = {.batch_size = 4}}, data);
  const ImageMlp augmented(
      {.images = {.batch_size = 4}, .augment = Config::Parse(R"({"type": "CTAugment"})", "test")},
      data);
  Replay replay{.steps = 3, .batch_size = 4, .index = std::vector<int32_t>(12)};
  std::iota(replay.index.begin(), replay.index.end(), 5);
  replay.params.assign(static_cast<size_t>(plain.params_layout().size()), 0.01F);
  Workspace scratch;
  const TrainingCurve wanted = RunReplay(replay, plain, *Sgd(plain, 0.1), scratch);
  const TrainingCurve got = RunReplay(replay, augmented, *Sgd(augmented, 0.1), scratch);
  CHECK(got.train_loss == wanted.train_loss);
  CHECK(got.params == wanted.params);
  CHECK(got.judged[0].loss == wanted.judged[0].loss);
}

TEST_CASE("Steps to judge after must ascend") {
  const FixedDimQuadraticFamily task({.dim = 2});
  const auto rule = Sgd(task, 0.1);
  Workspace scratch;
  for (const std::vector<int64_t>& judge_at :
       std::vector<std::vector<int64_t>>{{}, {0}, {3, 3}, {5, 4}}) {
    CHECK_THROWS_WITH_AS(
        TrainTask(task, *rule, judge_at, Split::kTest, {.key = KeyFromSeed(1)}, scratch),
        "training: the numbers of steps to judge after must be positive and ascending", Error);
  }
}

TEST_CASE("a split is judged in a hundred parts, whose mean is the loss of all its examples") {
  const ImageMlp task({}, GetImages({}, TaskResources("")));
  const auto [first, last] = task.ExampleRange(Split::kTest);
  REQUIRE(last - first > kSplitParts);
  std::vector<float> params(static_cast<size_t>(task.params_layout().size()));
  std::vector<float> config(static_cast<size_t>(task.config_layout().size()));
  for (size_t i = 0; i < params.size(); ++i) params[i] = std::sin(static_cast<float>(i));
  Workspace scratch;
  const SplitScore score =
      JudgeOnSplit(task, config, params, {}, Split::kTest, KeyFromSeed(1), scratch);
  REQUIRE(score.part_losses.size() == 100);

  const auto evaluate = [&](int64_t begin, int64_t end) {
    std::vector<int32_t> examples(static_cast<size_t>(end - begin));
    std::iota(examples.begin(), examples.end(), static_cast<int32_t>(begin));
    float loss = 0;
    std::vector<float> aux(static_cast<size_t>(task.aux_layout().size()));
    const Key key = KeyFromSeed(1);
    task.Evaluate({.config = config,
                   .params = params,
                   .split = Split::kTest,
                   .keys = {&key, 1},
                   .examples = examples,
                   .losses = {&loss, 1},
                   .aux = aux},
                  scratch);
    return loss;
  };
  CHECK(score.loss == doctest::Approx(evaluate(first, last)).epsilon(1e-6));
  const int64_t count = last - first;
  CHECK(score.part_losses[0] == evaluate(first, first + count / 100));
  CHECK(score.part_losses[99] == evaluate(first + 99 * count / 100, last));

  const FixedDimQuadraticFamily no_data({.dim = 2});
  CHECK(JudgeOnSplit(no_data, std::vector<float>(2), std::vector<float>(2), {}, Split::kTest, Key{},
                     scratch)
            .part_losses.empty());
}

}  // namespace
}  // namespace lopt
