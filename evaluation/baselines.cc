#include "lopt/evaluation/baselines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

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
  add("Adam-untuned", R"({"type": "LearnableAdam", "learning_rate": 1e-3, "epsilon_root": 0})", {});
  // nadamw_grid_seed251 of the package opt_list, without Nesterov's momentum: the rate stays for
  // constant_fraction of the training, here a rise from 1 to 1, then falls along half a cosine to
  // min_learning_rate_mult, 0. The decay is decoupled. The package's step is p <- p - c lr (m /
  // (sqrt(v) + epsilon) + weight_decay p) with c = sqrt(1 - beta2^t) / (1 - beta1^t); here c is of
  // m / sqrt(v) alone.
  add("opt_list-first", R"({"type": "LearnableAdam", "learning_rate": 0.0011948335721160095,
      "beta1": 0.9360043452616368, "beta2": 0.9989497406214962, "epsilon": 5.875814422073298e-06,
      "epsilon_root": 0, "weight_decay": 0.010141964334059882,
      "schedule": {"type": "WarmupCosine", "warmup_fraction": 0.747304046223346, "start_scale": 1,
                   "final_scale": 0}})",
      {});
  // submissions/self_tuning/nadamw of mlcommons/submissions_algorithms; 1 - beta1 is 0.09090652249.
  add("NAdamW-AlgoPerf", R"({"type": "NAdamW", "learning_rate": 0.00190834618600756,
      "beta1": 0.90909347751, "beta2": 0.998898321921855, "weight_decay": 0.08121616522670176,
      "schedule": {"type": "WarmupCosine", "warmup_fraction": 0.1}})",
      {});
  add("ScheduleFree-untuned", R"({"type": "ScheduleFreeAdamW", "learning_rate": 2.5e-3})", {});
  add("Prodigy", R"({"type": "Prodigy", "schedule": "cosine"})", {});
  add("Muon-untuned", R"({"type": "Muon", "learning_rate": 0.03, "adamw_rate": 0.1,
      "scale": "original"})",
      {});
  // Behind the tuned ones, wherever they stand above.
  std::stable_partition(all.begin(), all.end(),
                        [](const Baseline& one) { return !one.tuned.empty(); });
  return all;
}

// The baselines of a group or of one name.
std::span<const Baseline> BaselinesOf(std::string_view name) {
  const std::span<const Baseline> all = Baselines();
  if (name == "all") return all;
  const auto first_untuned =
      std::ranges::find_if(all, [](const Baseline& baseline) { return baseline.tuned.empty(); });
  const auto tuned = static_cast<size_t>(first_untuned - all.begin());
  if (name == "classic") return all.first(kClassic);
  if (name == "strong") return all.first(tuned).subspan(kClassic);
  if (name == "untuned") return all.subspan(tuned);
  const auto found = std::ranges::find(all, name, &Baseline::name);
  if (found == all.end()) {
    std::vector<std::string> valid;
    for (const Baseline& baseline : all) valid.push_back(baseline.name);
    Fail(
        "There is no baseline '{}'; wanted all, classic, strong, untuned, none, or names of {} "
        "with commas between them{}",
        name, fmt::join(valid, ", "), DidYouMean(name, valid));
  }
  return {found, 1};
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

double Baseline::learning_rate() const {
  return OptimizerRegistry().Make(optimizer)->config().json().at(kLearningRate).get<double>();
}

Config Baseline::Definition() const {
  nlohmann::ordered_json json = {
      {"optimizer", OptimizerRegistry().Make(optimizer)->config().json()},
      {"tuned", nlohmann::ordered_json::object()}};
  for (const TunedHyperparameter& hyperparameter : tuned) {
    json["tuned"][hyperparameter.name] = {{"lowest", hyperparameter.lowest},
                                          {"highest", hyperparameter.highest},
                                          {"one_minus", hyperparameter.one_minus}};
  }
  if (random_search) json["search"] = "random";
  return Config::FromJson(std::move(json));
}

const std::vector<Baseline>& Baselines() {
  static const std::vector<Baseline> baselines = MakeBaselines();
  return baselines;
}

std::vector<Baseline> BaselinesNamed(std::string_view names) {
  std::vector<Baseline> chosen;
  if (names == "none") return chosen;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    for (const Baseline& baseline : BaselinesOf(names.substr(begin, end - begin))) {
      Require(std::ranges::find(chosen, baseline.name, &Baseline::name) == chosen.end(),
              "The baseline '{}' is named twice", baseline.name);
      chosen.push_back(baseline);
    }
    begin = end + 1;
  }
  return chosen;
}

}  // namespace lopt
