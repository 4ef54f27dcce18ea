// A torch task of one's own, gradients by autograd, and a learned optimizer trained for it.
#include "lopt/torch/torch_task.h"

#include <fmt/core.h>

#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/lopt/registry.h"

// The initial params of one task, from its key.
lopt::NamedTensors Init(lopt::Key key, const torch::Tensor& /*config*/) {
  return {{"w1", lopt::NormalTensor(FoldIn(key, 0), {1, 16})},
          {"b1", lopt::NormalTensor(FoldIn(key, 1), {1, 16})},
          {"w2", lopt::NormalTensor(FoldIn(key, 2), {16, 1}) / 4},
          {"b2", torch::zeros({1, 1})}};
}

// The losses of n replicas: a network with 16 hidden units learns sin(x) from 32 new points a step.
lopt::TorchLoss Loss(const lopt::TorchEvaluation& e) {
  const std::vector<torch::Tensor>& p = e.params;
  const torch::Tensor x = 6 * lopt::UniformTensor(e.keys, {32, 1}).to(e.device) - 3;
  const torch::Tensor hidden = torch::tanh(torch::matmul(x, p[0]) + p[1]);
  const torch::Tensor y = torch::matmul(hidden, p[2]) + p[3];
  return (y - torch::sin(x)).square().mean({1, 2});
}

int main() {
  const auto task = std::make_shared<lopt::TorchTaskFamily>(Init, Loss);
  const auto optimizer = lopt::OptimizerRegistry().Make(
      lopt::Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 16})", "learned_optimizer"));
  const auto problem = std::make_shared<lopt::LoptProblem>(
      task, optimizer,
      std::make_shared<lopt::ConstantTruncationSchedule>(
          lopt::ConstantTruncationSchedule::Options{.total_length = 100}),
      lopt::LoptProblemOptions());
  lopt::ConfiguredEstimator estimator;
  estimator.task = "sine";
  estimator.estimator = std::make_shared<lopt::TruncatedPES>(
      problem, lopt::TruncatedOptions{.num_tasks = 16, .trunc_length = 20});
  const auto theta_opt =
      lopt::Config::Parse(R"({"type": "Adam", "learning_rate": 0.01})", "theta_opt");
  const lopt::SingleMachineGradientLearner learner(
      lopt::GradientLearner(optimizer, theta_opt),
      {std::make_shared<lopt::ConfiguredEstimator>(estimator)}, {});

  const lopt::Key run_key = lopt::KeyFromSeed(0);
  auto state = learner.Init(run_key);
  double first = 0;
  double last = 0;
  for (int update = 1; update <= 100; ++update) {
    last = learner.Update(run_key, &state).mean_loss;
    if (update == 1) first = last;
    if (update % 10 == 0) fmt::print("update {:3}: loss {:.3f}\n", update, last);
  }
  return last < 0.7 * first ? 0 : 1;
}
