#include <doctest/doctest.h>

#include <cmath>

#include "base/parallel.h"
#include "evaluation/held_out.h"
#include "evaluation/inner_training.h"
#include "lopt/learnable.h"
#include "tasks/quadratic.h"

namespace lopt {
namespace {

MetaTrainConfig Experiment(const std::string& eval_tasks) {
  return ReadOptions<MetaTrainConfig>(
      Config::Parse(R"({"learned_optimizer": {"type": "LearnableSGD"}, "theta_opt": {"type": "SGD"},
        "estimators": [{"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily"},
                        "schedule": {"type": "ConstantTruncationSchedule"}}],
        "eval_every": 1, "eval_steps": 20, "eval_seeds": 3, "eval_tasks": )" +
                        eval_tasks + "}",
                    "test"));
}

Eigen::VectorXf ThetaOf(double learning_rate) {
  return LearnableSGD({.learning_rate = learning_rate}).InitTheta(Key{});
}

TEST_CASE("The ratio of a quadratic under gradient descent is known") {
  // Each step takes the distance to the optimum times 1 - 2 lr.
  HeldOutEvaluation evaluation(Experiment("[]"));
  const Metrics metrics = evaluation.Evaluate(ThetaOf(0.01));
  const double ratio = std::pow(0.98, 40);
  CHECK(metrics.at("eval_ratio/0_FixedDimQuadraticFamily") == doctest::Approx(ratio));
  CHECK(metrics.at("eval_loss") == doctest::Approx(ratio));
  CHECK(metrics.at("eval_test_loss/0_FixedDimQuadraticFamily") > 0);
  CHECK(metrics.at("eval_train_loss/0_FixedDimQuadraticFamily") >
        metrics.at("eval_test_loss/0_FixedDimQuadraticFamily"));
}

TEST_CASE("Tasks of the config's own replace those of the estimators and count alike") {
  HeldOutEvaluation evaluation(Experiment(R"([{"type": "QuadraticTask", "dim": 2},
                     {"type": "ImageMLP", "hidden": [4], "batch_size": 8, "data": "glyphs"}])"));
  const Metrics metrics = evaluation.Evaluate(ThetaOf(0.1));
  CHECK(metrics.size() == 7);
  CHECK(metrics.at("eval_loss") ==
        doctest::Approx(
            (metrics.at("eval_ratio/0_QuadraticTask") + metrics.at("eval_ratio/1_ImageMLP")) / 2));
}

TEST_CASE("A training that diverges makes the held-out loss infinite") {
  HeldOutEvaluation evaluation(Experiment("[]"));
  CHECK(std::isinf(evaluation.Evaluate(ThetaOf(1e10)).at("eval_loss")));
}

TEST_CASE("The same theta is judged the same, on any number of threads") {
  HeldOutEvaluation evaluation(Experiment(R"([{"type": "ImageMLP", "data": "glyphs"}])"));
  const Metrics alone = evaluation.Evaluate(ThetaOf(0.1));
  ThreadPool(3).Run([&] { CHECK(evaluation.Evaluate(ThetaOf(0.1)) == alone); });
}

}  // namespace
}  // namespace lopt
