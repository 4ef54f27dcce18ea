#include "evaluation/baselines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/eigen.h"
#include "base/error.h"
#include "lopt/registry.h"

namespace lopt {
namespace {

constexpr const char* kLearningRate = "learning_rate";
constexpr size_t kClassic = 8;

TunedHyperparameter Rate(double lowest, double highest) {
  return {.name = kLearningRate, .lowest = lowest, .highest = highest};
}

std::vector<Baseline> MakeBaselines() {
  std::vector<Baseline> all;
  const auto add = [&](const char* name, const char* optimizer,
                       std::vector<TunedHyperparameter> tuned) {
    all.push_back({.name = name,
                   .optimizer = Config::Parse(optimizer, std::string("the baseline ") + name),
                   .tuned = std::move(tuned)});
  };
  add("SGD", R"({"type": "LearnableSGD"})", {Rate(1e-3, 1e2)});
  add("SGDM", R"({"type": "LearnableSGDM"})", {Rate(1e-4, 1e1)});
  add("Adam", R"({"type": "LearnableAdam", "epsilon_root": 0})", {Rate(1e-4, 1e1)});
  add("AdamW", R"({"type": "LearnableAdam", "epsilon_root": 0, "weight_decay": 0.01})",
      {Rate(1e-4, 1e1)});
  const std::vector<Baseline> constant = all;
  for (const Baseline& baseline : constant) {
    all.push_back({.name = baseline.name + "-cosine",
                   .optimizer = baseline.optimizer.With("schedule", "cosine"),
                   .tuned = baseline.tuned});
  }
  const TunedHyperparameter decay = {.name = "weight_decay", .lowest = 1e-3, .highest = 1};
  add("AdamW-cosine-decay", R"({"type": "LearnableAdam", "epsilon_root": 0, "schedule": "cosine"})",
      {Rate(1e-3, 1), decay});
  add("AdamW-warmup-cosine",
      R"({"type": "LearnableAdam", "epsilon_root": 0, "schedule": "warmup-cosine"})",
      {Rate(1e-3, 1), decay});
  add("Adam-cosine-betas", R"({"type": "LearnableAdam", "epsilon_root": 0, "schedule": "cosine"})",
      {Rate(1e-3, 1),
       {.name = "beta1", .lowest = 0.02, .highest = 0.5, .one_minus = true},
       {.name = "beta2", .lowest = 1e-3, .highest = 0.2, .one_minus = true}});
  add("NAdamW-cosine", R"({"type": "NAdamW", "schedule": "cosine"})", {Rate(1e-3, 1), decay});
  add("Nesterov-cosine", R"({"type": "Nesterov", "schedule": "cosine"})",
      {Rate(1e-2, 1e1), {.name = "weight_decay", .lowest = 1e-5, .highest = 1e-2}});
  add("Lion-cosine", R"({"type": "Lion", "schedule": "cosine"})", {Rate(1e-4, 1e-1), decay});
  add("ScheduleFreeAdamW", R"({"type": "ScheduleFreeAdamW", "warmup_fraction": 0.1})",
      {Rate(1e-3, 1), decay});
  add("SOAP-cosine", R"({"type": "SOAP", "schedule": "cosine"})", {Rate(1e-3, 1), decay});
  add("Muon-cosine", R"({"type": "Muon", "schedule": "cosine"})", {Rate(1e-3, 1), decay});
  return all;
}

// The option's value of a hyperparameter, or the hyperparameter of an option's value.
double Value(const TunedHyperparameter& hyperparameter, double value) {
  return hyperparameter.one_minus ? 1 - value : value;
}

// The first points of a sequence that fills the n-dimensional unit cube evenly, [count, n].
std::vector<std::vector<double>> Points(int64_t count, size_t n) {
  double phi = 2;
  for (int i = 0; i < 100; ++i) phi = std::pow(1 + phi, 1 / static_cast<double>(n + 1));
  std::vector<std::vector<double>> points;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<double>& point = points.emplace_back();
    for (size_t j = 0; j < n; ++j) {
      const double turns =
          0.5 + static_cast<double>(i + 1) / std::pow(phi, static_cast<double>(j + 1));
      point.push_back(turns - std::floor(turns));
    }
  }
  return points;
}

// Points of a box that is this part of every range wide, in logarithms, [count, tuned]; the values
// `at` are in this place of it: 0 is its lowest corner, 0.5 its middle.
std::vector<std::vector<double>> Box(const std::vector<TunedHyperparameter>& tuned,
                                     std::span<const double> at, double width, double place,
                                     int64_t count) {
  std::vector<std::vector<double>> tried = Points(count, tuned.size());
  for (std::vector<double>& point : tried) {
    for (size_t j = 0; j < tuned.size(); ++j) {
      const double range = tuned[j].highest / tuned[j].lowest;
      point[j] =
          Value(tuned[j], Value(tuned[j], at[j]) * std::pow(range, width * (point[j] - place)));
    }
  }
  return tried;
}

}  // namespace

std::shared_ptr<const LearnedOptimizer> Baseline::Make(std::span<const double> values) const {
  Require(values.size() == tuned.size(), "baseline {}: wanted {} values, got {}", name,
          tuned.size(), values.size());
  Config config = optimizer;
  for (size_t j = 0; j < tuned.size(); ++j) {
    config = config.With(tuned[j].name, fmt::format("{}", values[j]));
  }
  return OptimizerRegistry().Make(config);
}

bool Baseline::scheduled() const {
  return !OptimizerRegistry().Make(optimizer)->needs_num_steps().empty();
}

std::vector<std::vector<double>> Baseline::FirstTrials(int64_t trials) const {
  Require(trials >= 2, "baseline {}: wanted at least 2 trials, got {}", name, trials);
  std::vector<std::vector<double>> tried;
  if (tuned.size() == 1) {
    const auto& [option, lowest, highest, one_minus] = tuned[0];
    const double ratio = std::pow(highest / lowest, 1 / static_cast<double>(trials - 1));
    for (int64_t i = 0; i < trials; ++i) {
      tried.push_back({Value(tuned[0], lowest * std::pow(ratio, static_cast<double>(i)))});
    }
    return tried;
  }
  std::vector<double> lowest;
  for (const TunedHyperparameter& hyperparameter : tuned) {
    lowest.push_back(Value(hyperparameter, hyperparameter.lowest));
  }
  return Box(tuned, lowest, /*width=*/1, /*place=*/0, trials - trials / 2);
}

std::vector<std::vector<double>> Baseline::TrialsAround(std::span<const double> best,
                                                        int64_t trials) const {
  Require(trials >= 2, "baseline {}: wanted at least 2 trials, got {}", name, trials);
  Require(best.size() == tuned.size(), "baseline {}: wanted {} values, got {}", name, tuned.size(),
          best.size());
  if (tuned.size() == 1) return {};
  const int64_t first = trials - trials / 2;
  const double width = std::pow(static_cast<double>(first), -1 / static_cast<double>(tuned.size()));
  return Box(tuned, best, width, /*place=*/0.5, trials / 2);
}

const std::vector<Baseline>& Baselines() {
  static const std::vector<Baseline> baselines = MakeBaselines();
  return baselines;
}

std::vector<Baseline> BaselinesNamed(std::string_view names) {
  const std::vector<Baseline>& all = Baselines();
  if (names == "all") return all;
  if (names == "classic") return {all.begin(), all.begin() + kClassic};
  if (names == "strong") return {all.begin() + kClassic, all.end()};
  std::vector<Baseline> chosen;
  if (names == "none") return {};
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    begin = end + 1;
    const auto found = std::ranges::find(all, name, &Baseline::name);
    if (found == all.end()) {
      std::vector<std::string> valid;
      for (const Baseline& baseline : all) valid.push_back(baseline.name);
      Fail(
          "There is no baseline '{}'; wanted all, classic, strong, none, or names of {} with "
          "commas "
          "between them",
          name, fmt::join(valid, ", "));
    }
    Require(std::ranges::find(chosen, name, &Baseline::name) == chosen.end(),
            "The baseline '{}' is named twice", name);
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace lopt
