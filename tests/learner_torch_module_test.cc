#include <doctest/doctest.h>

#include "learner/job/meta_trainer.h"

namespace lopt {
namespace {

Eigen::VectorXf Train(int threads) {
  const auto config = ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "MLPLOpt", "hidden_size": 8},
          "theta_opt": {"type": "Adam", "learning_rate": 0.001}, "workers": 2, "meta_steps": 4,
          "estimators": [
            {"type": "TruncatedPES", "num_tasks": 3, "trunc_length": 5,
             "task": {"type": "TorchImageMLP", "hidden": [16], "batch_size": 32},
             "schedule": {"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 12}},
            {"type": "FullES", "num_tasks": 2, "task": {"type": "TorchImageMLP", "image_size": 5,
                                                        "hidden": [7], "activation": "tanh"},
             "schedule": {"type": "ConstantTruncationSchedule", "total_length": 10}},
            {"type": "FullGrad", "num_tasks": 2, "task": {"type": "QuadraticTask"},
             "schedule": {"type": "ConstantTruncationSchedule", "total_length": 6}},
            {"type": "TruncatedGrad", "num_tasks": 3, "trunc_length": 4,
             "task": {"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 8},
             "schedule": {"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 9}}
          ]})",
      "test"));
  MetaTrainerOptions options;
  options.threads = threads;
  return RunMetaTraining(config, options).learner.theta;
}

}  // namespace

TEST_CASE("Meta-training on torch tasks gives the same theta on 1, 2 and 4 threads") {
  const Eigen::VectorXf theta = Train(1);
  REQUIRE(theta.allFinite());
  CHECK(theta == Train(2));
  CHECK(theta == Train(4));
}

}  // namespace lopt
