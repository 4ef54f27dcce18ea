// What an estimator with short windows misses: a gradient by the logarithm of a learning rate.
#include <fmt/core.h>

#include <cmath>
#include <string>

#include "lopt/learner/worker.h"
#include "lopt/lopt/registry.h"

// The gradients [windows] that an estimator gives at one theta, with a state carried along.
Eigen::ArrayXd Gradients(const std::string& type, const std::string& window, int windows) {
  const auto optimizer = lopt::OptimizerRegistry().Make(
      lopt::Config::Parse(R"({"type": "LearnableSGD", "learning_rate": 0.3})", "optimizer"));
  const auto config = lopt::Config::Parse(
      R"({"task": {"type": "ImageMLP", "hidden": [8], "batch_size": 16},
          "lengths": {"type": "ConstantTruncationSchedule", "total_length": 100},
          "num_tasks": 32, "std": 0.05, "type": ")" +
          type + "\"" + window + "}",
      "estimator");
  const lopt::Estimators estimators = {
      lopt::EstimatorRegistry().Make(config, optimizer, lopt::TaskResources(""))};

  const lopt::Key run_key = lopt::KeyFromSeed(0);
  const lopt::Key key = lopt::WorkerKey(run_key, 0);
  const lopt::WorkerWeights weights = {.theta = optimizer->InitTheta(lopt::ThetaKey(run_key)),
                                       .outer = {}};
  lopt::WorkerState worker = InitWorkerState(weights, estimators, key);
  Eigen::ArrayXd gradients(windows);
  for (double& gradient : gradients) {
    gradient = GradientWorkerCompute(weights, estimators, /*windows=*/1, key, &worker).gradient(0);
  }
  return gradients;
}

int main() {
  // Episodes have 100 steps: FullES runs all of them, the others 5 in a window. The offset lets
  // replicas begin out of step, so that a window sees every part of an episode.
  const std::string short_windows =
      R"(, "trunc_length": 5, "random_initial_iteration_offset": 100)";
  const auto mean = [](const std::string& type, const std::string& window, int windows) {
    // Without those before all phases are seen.
    const Eigen::ArrayXd given = Gradients(type, window, windows).tail(windows - windows / 5);
    const double error = std::sqrt((given - given.mean()).square().mean() / given.size());
    fmt::print("{:12}  {:7.4f} +- {:.4f}\n", type, given.mean(), error);
    return given.mean();
  };
  const double full = mean("FullES", "", 20);
  const double pes = mean("TruncatedPES", short_windows, 400);
  const double es = mean("TruncatedES", short_windows, 400);
  return std::abs(pes / full - 1) < 0.2 && std::abs(es / full) < 0.02 ? 0 : 1;
}
