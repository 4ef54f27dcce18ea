// Rosenbrock's function as a task, in a program of one's own: known by name in configs, checked
// where its minimum is, and a learned optimizer trained for it, on any number of ranks.
#include "rosenbrock.h"

#include <fmt/core.h>

#include <vector>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/transport/job.h"
#include "lopt/tasks/registry.h"

// The loss and the gradient's largest number at x.
std::pair<float, float> At(const lopt::TaskFamily& task, const std::vector<float>& x) {
  float loss = 0;
  std::vector<float> gradient(x.size());
  lopt::Workspace scratch;
  const lopt::Key key = lopt::KeyFromSeed(0);
  task.Evaluate({.params = x, .keys = {&key, 1}, .losses = {&loss, 1}, .gradients = gradient},
                scratch);
  return {loss, std::ranges::max(gradient)};
}

int Run(lopt::Transport* ranks) {
  const auto config =
      lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Load(EXAMPLE_DIR "/rosenbrock.json"));

  const Rosenbrock task({.dim = 3});
  const auto [loss, slope] = At(task, {1, 1, 1});
  const auto [start_loss, start_slope] = At(task, {0, 0, 0});
  fmt::print("loss {} at ones, where it is least, and {} at zeros\n", loss, start_loss);
  if (loss != 0 || slope != 0 || start_loss != 2 || start_slope != 0) return 1;

  double first = 0;
  lopt::MetaTrainerOptions options;
  options.transport = ranks;
  options.on_step = [&](const lopt::MetaTrainProgress& p) {
    if (p.updates == 1) first = p.summary->mean_loss;
    if (p.updates % 20 == 0)
      fmt::print("update {}: loss {:.3f}, distance {:.3f}\n", p.updates, p.summary->mean_loss,
                 p.summary->estimators[0].metrics.at("task/distance"));
  };
  const lopt::MetaTrainResult result = RunMetaTraining(config, options);
  return ranks->rank() != 0 || result.last.mean_loss < 0.5 * first ? 0 : 1;
}

int main() {
  lopt::TaskRegistry().Add<RosenbrockOptions>(
      "Rosenbrock", "A curved valley with a flat floor.",
      [](const RosenbrockOptions& o, const auto&) { return std::make_shared<Rosenbrock>(o); });
  return lopt::RunJob(Run);
}
