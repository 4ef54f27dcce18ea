#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/evaluation/held_out.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

// Trains with gradient descent.
HeldOutEvaluation Judge(const std::vector<std::string>& tasks) {
  HeldOutOptions options = {.steps = 20, .seeds = 3};
  for (const std::string& task : tasks) options.tasks.push_back(Config::Parse(task, "test"));
  return {std::make_shared<LearnableSGD>(LearnableSGDOptions{}), TaskResources(""), options};
}

constexpr char kQuadratic[] = R"({"type": "FixedDimQuadraticFamily"})";
constexpr char kGlyphs[] = R"({"type": "ImageMLP", "data": "glyphs"})";

Eigen::VectorXf ThetaOf(double learning_rate) {
  return LearnableSGD({.learning_rate = learning_rate}).InitTheta(Key{});
}

TEST_CASE("The ratio of a quadratic under gradient descent is known") {
  // Each step takes the distance to the optimum times 1 - 2 lr.
  HeldOutEvaluation evaluation = Judge({kQuadratic});
  const HeldOutResult result = evaluation.Evaluate(ThetaOf(0.01));
  const Metrics& metrics = result.metrics;
  const double ratio = std::pow(0.98, 40);
  CHECK(metrics.at("eval_ratio/0_FixedDimQuadraticFamily") == doctest::Approx(ratio));
  CHECK(result.loss == doctest::Approx(ratio));
  CHECK(metrics.at("eval_loss") == result.loss);
  CHECK(metrics.at("eval_valid_loss/0_FixedDimQuadraticFamily") > 0);
  CHECK(metrics.at("eval_train_loss/0_FixedDimQuadraticFamily") >
        metrics.at("eval_valid_loss/0_FixedDimQuadraticFamily"));
}

TEST_CASE("Theta is judged on outer_valid and not on the split that evaluations judge on") {
  HeldOutOptions options = {.tasks = {Config::Parse(kGlyphs, "test")}, .steps = 20, .seeds = 1};
  const auto optimizer = std::make_shared<LearnableSGD>(LearnableSGDOptions{});
  const Eigen::VectorXf theta = ThetaOf(0.1);
  const double loss = HeldOutEvaluation(optimizer, TaskResources(""), options)
                          .Evaluate(theta)
                          .metrics.at("eval_valid_loss/0_ImageMLP");
  const auto task = TaskRegistry().Make(options.tasks[0], TaskResources(""));
  const Key key = FoldIn(KeyFromSeed(std::numeric_limits<uint64_t>::max()), 0);
  Workspace scratch;
  const auto on = [&](Split split) {
    return double{TrainTask(*task, *optimizer->Bind(task->params_layout(), AsSpan(theta)),
                            {&options.steps, 1}, split, {.key = key}, scratch)
                      .judged[0]
                      .loss};
  };
  CHECK(loss == on(Split::kOuterValid));
  CHECK(loss != on(Split::kTest));
}

TEST_CASE("Tasks with losses of any size count alike") {
  HeldOutEvaluation evaluation =
      Judge({R"({"type": "QuadraticTask", "dim": 2})",
             R"({"type": "ImageMLP", "hidden": [4], "batch_size": 8, "data": "glyphs"})"});
  const Metrics metrics = evaluation.Evaluate(ThetaOf(0.1)).metrics;
  CHECK(metrics.size() == 7);
  CHECK(metrics.at("eval_loss") ==
        doctest::Approx(
            (metrics.at("eval_ratio/0_QuadraticTask") + metrics.at("eval_ratio/1_ImageMLP")) / 2));
}

TEST_CASE("What a task shows comes with its evaluation: the first images of the split") {
  HeldOutEvaluation evaluation = Judge({kQuadratic, kGlyphs});
  const std::map<std::string, Pictures> pictures = evaluation.Evaluate(ThetaOf(0.1)).pictures;
  REQUIRE(pictures.size() == 1);
  const Pictures& batch = pictures.at("1_ImageMLP/batch");
  CHECK(batch.count == 64);
  const auto data = GetImages({.data = ImageSource::kGlyphs}, TaskResources(""));
  const float* first = data->images() + data->range(kHeldOutSplit).first * data->stride();
  CHECK(std::vector<float>(first, first + 64) ==
        std::vector<float>(batch.pixels.begin(), batch.pixels.begin() + 64));
}

TEST_CASE("A training that diverges makes the held-out loss infinite") {
  HeldOutEvaluation evaluation = Judge({kQuadratic});
  CHECK(std::isinf(evaluation.Evaluate(ThetaOf(1e10)).loss));
}

struct FallingOptions {
  double first = 1;
  double held_out = 1;
  void Visit(FieldVisitor& v) {
    v.Field("first", &first, Range{}, "Of params of 0 on train; 0.25 stands for infinity.");
    v.Field("held_out", &held_out, Range{}, "Of params of 0.");
  }
};

// Its loss falls with its only param, from 0 on.
class FallingTask : public TaskFamily {
 public:
  explicit FallingTask(const FallingOptions& options)
      : TaskFamily({.params = Layout({{"x", Shape{}}})}), options_(options) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 0;
  }
  void DoEvaluate(const TaskEvaluation& e, Workspace&) const override {
    const double at_start = e.split != Split::kTrain ? options_.held_out
                            : options_.first == 0.25 ? std::numeric_limits<double>::infinity()
                                                     : options_.first;
    e.losses[0] = static_cast<float>(at_start) + e.params[0];
    if (!e.gradients.empty()) e.gradients[0] = 1;
  }

  FallingOptions options_;
};

TEST_CASE("A first loss that is no positive number leaves the lower of two losses the better") {
  TaskRegistry().Add<FallingOptions>("Falling", "For this test.",
                                     [](const FallingOptions& options, const TaskResources&) {
                                       return std::make_shared<FallingTask>(options);
                                     });
  // 20 steps of 1/4 lower the loss by 5.
  const auto ratio = [](const std::string& options) {
    return Judge({R"({"type": "Falling", )" + options + "}"}).Evaluate(ThetaOf(0.25)).loss;
  };
  CHECK(ratio(R"("first": 10, "held_out": 9)") == doctest::Approx(0.4));
  CHECK(ratio(R"("first": 10, "held_out": 1)") == doctest::Approx(-0.4));
  CHECK(ratio(R"("first": -0.5, "held_out": -0.5)") == doctest::Approx(-9));
  CHECK(ratio(R"("first": -2, "held_out": 5)") == doctest::Approx(2));
  CHECK(ratio(R"("first": 0, "held_out": 4)") == doctest::Approx(0));
  CHECK(std::isinf(ratio(R"("first": 0.25, "held_out": 9)")));
}

TEST_CASE("The same theta is judged the same, on any number of threads") {
  HeldOutEvaluation evaluation = Judge({kGlyphs});
  const Metrics alone = evaluation.Evaluate(ThetaOf(0.1)).metrics;
  ThreadPool(3).Run([&] { CHECK(evaluation.Evaluate(ThetaOf(0.1)).metrics == alone); });
}

TEST_CASE("An evaluation without tasks, steps or seeds is an error") {
  const auto make = [](const HeldOutOptions& options) {
    HeldOutEvaluation(std::make_shared<LearnableSGD>(LearnableSGDOptions{}), TaskResources(""),
                      options);
  };
  const std::vector<Config> tasks = {Config::Parse(kQuadratic, "test")};
  CHECK_NOTHROW(make({.tasks = tasks}));
  CHECK_THROWS_WITH_AS(make({}),
                       "a held-out evaluation needs a task, a step and a seed at least, got 0 "
                       "tasks, 300 steps and 8 seeds",
                       Error);
  CHECK_THROWS_AS(make({.tasks = tasks, .steps = 0}), Error);
  CHECK_THROWS_AS(make({.tasks = tasks, .seeds = 0}), Error);
}

}  // namespace
}  // namespace lopt
