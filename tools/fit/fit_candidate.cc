#include "lopt/tools/fit/fit_candidate.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learned_scheduler.h"

namespace lopt {
namespace {

// Of steps so large only the directions are left (lopt/rules/learned_scheduler.h).
constexpr const char* kAdam =
    R"({"type": "LearnableAdam", "learning_rate": 1000, "beta2": 0.995, "epsilon_root": 0})";
constexpr const char* kBiases = "scheduler/out/b";  // of the network's outputs, logarithms
constexpr std::string_view kNetwork = "scheduler/";

const LayoutEntry* FindEntry(const Layout& layout, std::string_view name) {
  const auto& entries = layout.entries();
  const auto found = std::ranges::find(entries, name, &LayoutEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

// Where theta has the logarithm of 1 minus the momentum; null if it has none.
const LayoutEntry* FindMomentum(const Layout& layout) {
  const LayoutEntry* momentum = FindEntry(layout, "optimizer/one_minus_momentum");
  return momentum != nullptr ? momentum : FindEntry(layout, "optimizer/one_minus_beta1");
}

std::shared_ptr<const LearnedOptimizer> OptimizerOf(const ThetaFile& file) {
  return OptimizerRegistry().Make(file.learned_optimizer);
}

Config WithAdam(const ThetaFile& start) {
  return ResolvedOptimizer(start.learned_optimizer.With("optimizer", kAdam));
}

// The start with Adam's directions and its own network.
ThetaFile WithAdamDirections(const ThetaFile& start) {
  ThetaFile file = start;
  file.learned_optimizer = WithAdam(start);
  const auto before = OptimizerOf(start);
  const auto after = OptimizerOf(file);
  file.theta = after->InitTheta(Key{});
  for (const LayoutEntry& to : after->theta_layout().entries()) {
    if (!std::string_view(to.name).starts_with(kNetwork)) continue;
    const LayoutEntry* from = FindEntry(before->theta_layout(), to.name);
    file.theta.segment(to.offset, to.size) = start.theta.segment(from->offset, from->size);
  }
  return file;
}

}  // namespace

void CheckFitStart(const ThetaFile& start) {
  Require(start.learned_optimizer.Type() == "LearnedScheduler",
          "fit: wanted to start from a LearnedScheduler, such as recommended or fast, got {}",
          start.learned_optimizer.Type());
}

bool HasOtherDirections(const ThetaFile& start) {
  const auto options = ReadOptions<LearnedSchedulerOptions>(start.learned_optimizer);
  return options.optimizer.Type() != "LearnableAdam";
}

bool HasMomentum(const ThetaFile& start, bool adam) {
  return adam || FindMomentum(OptimizerOf(start)->theta_layout()) != nullptr;
}

ThetaFile MakeCandidate(const ThetaFile& start, const FitTrial& trial) {
  ThetaFile file = trial.adam ? WithAdamDirections(start) : start;
  file.chosen_on = "inner_valid";
  file.trained_range = {};  // it is chosen for a task that may be far outside of the start's
  const auto optimizer = OptimizerOf(file);
  const LayoutEntry* biases = FindEntry(optimizer->theta_layout(), kBiases);
  file.theta[biases->offset] += static_cast<float>(std::log(trial.multiplier));
  // Doubled where the decay is formed.
  file.theta[biases->offset + 1] += static_cast<float>(std::log(trial.decay) / 2);
  if (trial.momentum) {
    const LayoutEntry* momentum = FindMomentum(optimizer->theta_layout());
    file.theta[momentum->offset] = static_cast<float>(std::log1p(-*trial.momentum));
  }
  return file;
}

std::unique_ptr<UpdateRule> BindCandidate(const ThetaFile& candidate, const TaskFamily& task) {
  return OptimizerOf(candidate)->Bind(task.params_layout(), AsSpan(candidate.theta));
}

}  // namespace lopt
