#include "lopt/evaluation/evaluated_optimizers.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/evaluation/summary.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/scaled_steps.h"
#include "lopt/lopt/rules/unknown_length.h"

namespace lopt {
namespace {

constexpr char kUnknownLength[] = "UnknownLength";

TunedOptimizer TunedBaseline(const Baseline& baseline) {
  return {.name = baseline.name,
          .tuned = baseline.tuned,
          .scheduled = baseline.scheduled(),
          .random_search = baseline.random_search,
          .bind = [baseline](const Layout& params, std::span<const double> values) {
            const auto optimizer = baseline.Make(values);
            const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
            return optimizer->Bind(params, AsSpan(theta));
          }};
}

TunedOptimizer TunedLearned(const NamedLearnedOptimizer& learned) {
  return {.name = learned.name,
          .tuned = {{.name = kStepMultiplier, .lowest = 1. / 32, .highest = 32}},
          .scheduled = !learned.optimizer->needs_num_steps().empty(),
          .bind = [optimizer = learned.optimizer, theta = learned.theta](
                      const Layout& params, std::span<const double> values) {
            return ScaleSteps(optimizer->Bind(params, AsSpan(theta)),
                              static_cast<float>(values[0]));
          }};
}

// Its rule for some params.
std::unique_ptr<UpdateRule> BindSomewhere(const NamedLearnedOptimizer& learned) {
  return learned.optimizer->Bind(Layout({{"w", {2, 2}}}), AsSpan(learned.theta));
}

// What `make` does, with errors that name the optimizer.
void Naming(const NamedLearnedOptimizer& learned, const std::function<void()>& make) {
  try {
    make();
  } catch (const Error& error) {
    Fail("{}: {}", learned.name, error.what());
  }
}

void RequireScalableSteps(const NamedLearnedOptimizer& learned) {
  Naming(learned, [&] { ScaleSteps(BindSomewhere(learned), 2); });
}

bool HaveSameWeights(const NamedLearnedOptimizer& a, const NamedLearnedOptimizer& b) {
  return a.source == b.source && std::ranges::equal(AsSpan(a.theta), AsSpan(b.theta));
}

}  // namespace

NamedLearnedOptimizer NamedLearnedOptimizerOf(std::string name, const ThetaFile& file,
                                              std::string source) {
  return {.name = std::move(name),
          .optimizer = OptimizerRegistry().Make(file.learned_optimizer),
          .theta = file.theta,
          .config = file.learned_optimizer,
          .source = std::move(source),
          .trained_horizon = file.trained_horizon,
          .trained_range = file.trained_range,
          .meta_training = file.config,
          .seed = file.seed};
}

std::unique_ptr<UpdateRule> BindLearned(const NamedLearnedOptimizer& learned,
                                        const Layout& params) {
  auto rule = learned.optimizer->Bind(params, AsSpan(learned.theta));
  return learned.step_multiplier == 1
             ? std::move(rule)
             : ScaleSteps(std::move(rule), static_cast<float>(learned.step_multiplier));
}

NamedLearnedOptimizer WithTunedSteps(NamedLearnedOptimizer learned) {
  learned.tuned = true;
  learned.name += "-tuned";
  RequireScalableSteps(learned);
  return learned;
}

bool HasScalableSteps(const NamedLearnedOptimizer& learned) {
  return StepsMakeParams(*BindSomewhere(learned));
}

bool IsUnknownLength(const NamedLearnedOptimizer& learned) {
  return !learned.config.empty() && learned.config.Type() == kUnknownLength;
}

NamedLearnedOptimizer WithUnknownLength(NamedLearnedOptimizer learned) {
  // Types of plug-ins know no config of their own.
  Config inner = learned.config.empty() ? learned.optimizer->config() : learned.config;
  learned.config =
      WriteOptions(kUnknownLength, UnknownLengthOptions{.optimizer = std::move(inner)});
  learned.unknown_length = true;
  learned.name += "-unknown";
  Naming(learned, [&] {
    learned.optimizer = OptimizerRegistry().Make(learned.config);
    BindSomewhere(learned);
  });
  return learned;
}

NamedLearnedOptimizer StartOf(NamedLearnedOptimizer learned, Eigen::VectorXf theta,
                              double step_multiplier) {
  learned.is_start = true;
  learned.theta = std::move(theta);
  learned.step_multiplier = step_multiplier;
  learned.name += "-start";
  if (step_multiplier == 1) return learned;
  learned.name += fmt::format("-{}", step_multiplier);
  RequireScalableSteps(learned);
  return learned;
}

void AddTunedSteps(EvaluatedOptimizers* optimizers) {
  Require(!optimizers->learned.empty(),
          "evaluation: there is no learned optimizer to tune the steps of; give a theta file");
  std::vector<NamedLearnedOptimizer> all;
  for (const NamedLearnedOptimizer& learned : optimizers->learned) {
    all.push_back(learned);
    if (learned.step_multiplier == 1 && !learned.unknown_length) {
      all.push_back(WithTunedSteps(learned));
    }
  }
  optimizers->learned = std::move(all);
}

void AddUnknownLengths(EvaluatedOptimizers* optimizers) {
  std::vector<NamedLearnedOptimizer> all;
  for (const NamedLearnedOptimizer& learned : optimizers->learned) {
    all.push_back(learned);
    if (!learned.is_start && !learned.tuned && !IsUnknownLength(learned)) {
      all.push_back(WithUnknownLength(learned));
    }
  }
  Require(
      all.size() > optimizers->learned.size(),
      "evaluation: there is no learned optimizer to judge without the length of trainings; give "
      "a theta file of one that was meta-trained with the length");
  optimizers->learned = std::move(all);
}

std::vector<TunedOptimizer> TunedOf(const EvaluatedOptimizers& optimizers) {
  std::vector<TunedOptimizer> tuned;
  for (const Baseline& baseline : optimizers.baselines) {
    if (!baseline.tuned.empty()) tuned.push_back(TunedBaseline(baseline));
  }
  for (const NamedLearnedOptimizer& learned : optimizers.learned) {
    if (learned.tuned) tuned.push_back(TunedLearned(learned));
  }
  return tuned;
}

std::vector<NamedLearnedOptimizer> MetaTrained(const EvaluatedOptimizers& optimizers) {
  std::vector<NamedLearnedOptimizer> found;
  for (const NamedLearnedOptimizer& learned : optimizers.learned) {
    const auto same = [&](const auto& earlier) { return HaveSameWeights(earlier, learned); };
    if (!learned.is_start && std::ranges::none_of(found, same)) found.push_back(learned);
  }
  return found;
}

void WarnBeyondHorizon(const NamedLearnedOptimizer& learned,
                       const std::vector<std::pair<std::string, int64_t>>& trainings) {
  if (learned.trained_horizon == 0) return;
  std::vector<std::string> longer;
  for (const auto& [name, steps] : trainings) {
    if (steps > learned.trained_horizon) longer.push_back(fmt::format("{} ({})", name, steps));
  }
  if (longer.empty()) return;
  spdlog::warn(
      "{} was meta-trained on trainings of at most {} inner steps and may blow up in longer ones, "
      "which are: {}",
      learned.name, learned.trained_horizon, fmt::join(longer, ", "));
}

std::vector<std::string> NamesOf(const EvaluatedOptimizers& optimizers) {
  std::vector<std::string> names;
  for (const Baseline& baseline : optimizers.baselines) names.push_back(baseline.name);
  for (const NamedLearnedOptimizer& learned : optimizers.learned) names.push_back(learned.name);
  Require(!names.empty(), "evaluation: there is nothing to judge; give a theta file or a baseline");
  std::set<std::string> different;
  for (const std::string& name : names) {
    Require(different.insert(name).second,
            "evaluation: two optimizers are called '{}'; give one another name", name);
  }
  for (const NamedLearnedOptimizer& learned : optimizers.learned) {
    Require(learned.name != kReferenceBaseline,
            "evaluation: a learned optimizer is called '{}', as the baseline that others are "
            "compared with; give it another name",
            learned.name);
  }
  return names;
}

}  // namespace lopt
