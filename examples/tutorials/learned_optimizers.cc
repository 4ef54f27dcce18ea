// A learned optimizer is a map from theta to an optimizer: its parts, one step by hand, and a whole
// training with a theta that meta-training has made.
#include <fmt/core.h>

#include "lopt/base/eigen.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"

// The test loss of a new ImageMLP after 300 steps with an optimizer.
float TestLoss(const lopt::LearnedOptimizer& optimizer, std::span<const float> theta) {
  const auto task = lopt::TaskRegistry().Make(
      lopt::Config::Parse(R"({"type": "ImageMLP", "image_size": 8, "hidden": [32]})", "task"),
      lopt::TaskResources(""));
  const auto rule = optimizer.Bind(task->params_layout(), theta);
  const int64_t steps[] = {300};
  lopt::Workspace scratch;
  const lopt::TrainingCurve curve =
      TrainTask(*task, *rule, steps, lopt::Split::kTest, {.key = lopt::KeyFromSeed(1)}, scratch);
  return curve.judged.back().loss;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print("usage: learned_optimizers trained/recommended.safetensors\n");
    return 2;
  }
  // An optimizer by its name, as in a config, and the names and shapes of its weights.
  const auto optimizer = lopt::OptimizerRegistry().Make(
      lopt::Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 4})", "optimizer"));
  for (const lopt::LayoutEntry& tensor : optimizer->theta_layout().entries()) {
    fmt::print("{} {}\n", tensor.name, lopt::ToString(tensor.shape));
  }
  const Eigen::VectorXf fresh = optimizer->InitTheta(lopt::KeyFromSeed(0));

  // With theta bound it is an ordinary optimizer for parameters of one layout. All that it keeps
  // between two steps is in `state`.
  const auto rule = optimizer->Bind(lopt::Layout({{"w", {2}}}), lopt::AsSpan(fresh));
  std::vector<float> w = {1, -2};
  std::vector<float> state(rule->state_layout().size());
  lopt::Workspace scratch;
  rule->InitState({}, w, state);
  for (int64_t step = 0; step < 3; ++step) {
    const std::vector<float> gradient = {2 * w[0], 2 * w[1]};
    rule->Update({.step = step, .loss = w[0] * w[0] + w[1] * w[1]}, gradient, w, state, scratch);
    fmt::print("step {}: w = {:.6f}, {:.6f}\n", step, w[0], w[1]);
  }

  // A fresh theta hardly moves; one that was meta-trained is an optimizer. Adam is the case where
  // theta is a learning rate and the like.
  const lopt::ThetaFile file = lopt::ReadThetaFile(argv[1]);
  const auto trained = lopt::OptimizerRegistry().Make(file.learned_optimizer);
  const auto adam = lopt::OptimizerRegistry().Make(
      lopt::Config::Parse(R"({"type": "LearnableAdam", "learning_rate": 0.01})", "optimizer"));
  const float loss_fresh = TestLoss(*optimizer, lopt::AsSpan(fresh));
  const float loss_trained = TestLoss(*trained, lopt::AsSpan(file.theta));
  const float loss_adam = TestLoss(*adam, lopt::AsSpan(adam->InitTheta(lopt::KeyFromSeed(0))));
  fmt::print("test loss: fresh theta {:.2f}, trained {:.2f}, Adam {:.2f}\n", loss_fresh,
             loss_trained, loss_adam);
  return loss_trained < loss_adam && loss_adam < loss_fresh ? 0 : 1;
}
