#include "evaluation/baselines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lopt/learnable.h"

namespace lopt {

std::shared_ptr<const LearnedOptimizer> Baseline::Make(double learning_rate) const {
  const RateSchedule schedule = cosine ? RateSchedule::kCosine : RateSchedule::kConstant;
  if (type == "LearnableSGD") {
    return std::make_shared<LearnableSGD>(
        LearnableSGDOptions{.learning_rate = learning_rate, .schedule = schedule});
  }
  if (type == "LearnableSGDM") {
    return std::make_shared<LearnableSGDM>(
        LearnableSGDMOptions{.learning_rate = learning_rate, .schedule = schedule});
  }
  return std::make_shared<LearnableAdam>(LearnableAdamOptions{.learning_rate = learning_rate,
                                                              .epsilon_root = 0,
                                                              .schedule = schedule,
                                                              .weight_decay = weight_decay});
}

std::vector<double> Baseline::LearningRates(int64_t trials) const {
  Require(trials >= 2, "baseline {}: wanted at least 2 trials, got {}", name, trials);
  std::vector<double> rates;
  const double ratio = std::pow(highest / lowest, 1 / static_cast<double>(trials - 1));
  for (int64_t i = 0; i < trials; ++i) {
    rates.push_back(lowest * std::pow(ratio, static_cast<double>(i)));
  }
  return rates;
}

const std::vector<Baseline>& Baselines() {
  static const std::vector<Baseline> baselines = [] {
    std::vector<Baseline> constant = {
        {.name = "SGD", .type = "LearnableSGD", .lowest = 1e-3, .highest = 1e2},
        {.name = "SGDM", .type = "LearnableSGDM", .lowest = 1e-4, .highest = 1e1},
        {.name = "Adam", .type = "LearnableAdam", .lowest = 1e-4, .highest = 1e1},
        {.name = "AdamW",
         .type = "LearnableAdam",
         .weight_decay = 0.01,
         .lowest = 1e-4,
         .highest = 1e1}};
    std::vector<Baseline> all = constant;
    for (Baseline& baseline : constant) {
      baseline.name += "-cosine";
      baseline.cosine = true;
      all.push_back(baseline);
    }
    return all;
  }();
  return baselines;
}

std::vector<Baseline> BaselinesNamed(std::string_view names) {
  if (names == "all") return Baselines();
  std::vector<Baseline> chosen;
  if (names == "none") return {};
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    begin = end + 1;
    const auto found = std::ranges::find(Baselines(), name, &Baseline::name);
    if (found == Baselines().end()) {
      std::vector<std::string> valid;
      for (const Baseline& baseline : Baselines()) valid.push_back(baseline.name);
      Fail("There is no baseline '{}'; wanted all, none, or names of {} with commas between them",
           name, fmt::join(valid, ", "));
    }
    Require(std::ranges::find(chosen, name, &Baseline::name) == chosen.end(),
            "The baseline '{}' is named twice", name);
    chosen.push_back(*found);
  }
  return chosen;
}

}  // namespace lopt
