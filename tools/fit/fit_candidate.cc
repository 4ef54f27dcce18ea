#include "lopt/tools/fit/fit_candidate.h"

#include <fmt/format.h>

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
constexpr const char* kOutputs = "scheduler/out/w";  // weights of the outputs
constexpr const char* kBiases = "scheduler/out/b";   // of the network's outputs, logarithms
constexpr std::string_view kScheduler = "scheduler/";
constexpr std::string_view kDirections = "optimizer/";

// Where theta has the logarithms of 1 minus momenta.
std::vector<const LayoutEntry*> MomentaOf(const Layout& layout) {
  std::vector<const LayoutEntry*> momenta;
  for (const LayoutEntry& entry : layout.entries()) {
    const std::string_view name = entry.name;
    if (name.starts_with(kDirections) &&
        (name.ends_with("/one_minus_momentum") || name.ends_with("/one_minus_beta1"))) {
      momenta.push_back(&entry);
    }
  }
  return momenta;
}

std::shared_ptr<const LearnedOptimizer> OptimizerOf(const ThetaFile& file) {
  return OptimizerRegistry().Make(file.learned_optimizer);
}

Config DirectionsOf(const ThetaFile& start) {
  return ReadOptions<LearnedSchedulerOptions>(start.learned_optimizer).optimizer;
}

// The start with the directions of another optimizer, as before its meta-training.
ThetaFile Untrained(const ThetaFile& start, const std::string& directions) {
  ThetaFile file = start;
  file.learned_optimizer = ResolvedOptimizer(start.learned_optimizer.With("optimizer", directions));
  file.theta = OptimizerOf(file)->InitTheta(Key{});
  return file;
}

// The same with the start's network. What its own directions have in theta comes to be behind
// `kept`, unless that is empty.
ThetaFile WithDirections(const ThetaFile& start, const std::string& directions,
                         const std::string& kept) {
  ThetaFile file = Untrained(start, directions);
  const auto before = OptimizerOf(start);
  const auto after = OptimizerOf(file);
  for (const LayoutEntry& from : before->theta_layout().entries()) {
    std::string name = from.name;
    if (!name.starts_with(kScheduler)) {
      if (kept.empty()) continue;
      name.replace(0, kDirections.size(), kept);
    }
    const LayoutEntry& to = after->theta_layout().Find(name);
    file.theta.segment(to.offset, to.size) = start.theta.segment(from.offset, from.size);
  }
  return file;
}

// The start's directions for matrices and Adam's for vectors.
std::string AdamForVectors(const ThetaFile& start) {
  return fmt::format(R"({{"type": "MatricesAndVectors", "matrices": {}, "vectors": {}}})",
                     DirectionsOf(start).Dump(-1), kAdam);
}

// These directions with a network that says 0. Nothing of the start's theta, so of its training, is
// left.
ThetaFile Plain(const ThetaFile& start, const std::string& directions) {
  ThetaFile file = Untrained(start, directions);
  const auto optimizer = OptimizerOf(file);
  for (const char* name : {kOutputs, kBiases}) {
    const LayoutEntry& entry = optimizer->theta_layout().Find(name);
    file.theta.segment(entry.offset, entry.size).setZero();
  }
  file.config = {};
  file.meta_steps = {};
  file.seed = {};
  return file;
}

ThetaFile StartOfKind(const ThetaFile& start, const std::string& kind) {
  if (kind == kTrainedKind) return start;
  if (kind == kAdamKind) return WithDirections(start, kAdam, "");
  if (kind == kAdamVectorsKind) {
    return WithDirections(start, AdamForVectors(start), "optimizer/matrices/");
  }
  if (kind == kPlainAdamKind) return Plain(start, kAdam);
  Require(kind == kPlainKind,
          "fit: '{}' is no kind of candidates; the kinds are {}, {}, {}, {}, {}", kind,
          kTrainedKind, kAdamKind, kAdamVectorsKind, kPlainKind, kPlainAdamKind);
  return Plain(start, AdamForVectors(start));
}

// Whether the params have tensors of at least two axes, or of fewer.
bool HasTensors(const Layout& params, bool matrices) {
  return std::ranges::any_of(params.entries(), [&](const LayoutEntry& entry) {
    return entry.size > 0 && (entry.shape.size() >= 2) == matrices;
  });
}

}  // namespace

void CheckFitStart(const ThetaFile& start) {
  Require(start.learned_optimizer.Type() == "LearnedScheduler",
          "fit: wanted to start from a LearnedScheduler, such as recommended or fast, got {}",
          start.learned_optimizer.Type());
}

std::vector<std::string> FitKindsOf(const ThetaFile& start, const Layout& params) {
  const Config directions = DirectionsOf(start);
  std::vector<std::string> kinds = {kTrainedKind};
  if (directions.Type() != "LearnableAdam") kinds.emplace_back(kAdamKind);
  const bool by_tensor = OptimizerRegistry().Make(directions)->run_state_size() == 0;
  if (directions.Type() == "OrthogonalSteps" && by_tensor) {
    const bool matrices = HasTensors(params, true);
    if (matrices && HasTensors(params, false)) kinds.emplace_back(kAdamVectorsKind);
    kinds.emplace_back(kPlainKind);
    if (matrices) kinds.emplace_back(kPlainAdamKind);
  }
  return kinds;
}

std::optional<double> OwnMomentum(const ThetaFile& start, const std::string& kind) {
  const ThetaFile file = StartOfKind(start, kind);
  const auto optimizer = OptimizerOf(file);
  const auto momenta = MomentaOf(optimizer->theta_layout());
  if (momenta.empty()) return std::nullopt;
  return 1 - std::exp(double{file.theta[momenta.front()->offset]});
}

ThetaFile MakeCandidate(const ThetaFile& start, const FitTrial& trial) {
  ThetaFile file = StartOfKind(start, trial.kind);
  file.chosen_on = "inner_valid";
  // It is chosen for a task that may be far outside of what the start was trained on.
  file.trained_range = {};
  file.trained_horizon = {};
  const auto optimizer = OptimizerOf(file);
  const LayoutEntry& biases = optimizer->theta_layout().Find(kBiases);
  file.theta[biases.offset] += static_cast<float>(std::log(trial.multiplier));
  // Doubled where the decay is formed.
  file.theta[biases.offset + 1] += static_cast<float>(std::log(trial.decay) / 2);
  if (trial.momentum) {
    for (const LayoutEntry* momentum : MomentaOf(optimizer->theta_layout())) {
      file.theta[momentum->offset] = static_cast<float>(std::log1p(-*trial.momentum));
    }
  }
  return file;
}

std::unique_ptr<UpdateRule> BindCandidate(const ThetaFile& candidate, const TaskFamily& task) {
  return OptimizerOf(candidate)->Bind(task.params_layout(), AsSpan(candidate.theta));
}

}  // namespace lopt
