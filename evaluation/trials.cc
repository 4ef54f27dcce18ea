#include "lopt/evaluation/trials.h"

#include <cmath>

#include "lopt/base/error.h"

namespace lopt {
namespace {

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

std::vector<std::vector<double>> FirstTrials(const std::vector<TunedHyperparameter>& tuned,
                                             int64_t trials) {
  Require(trials >= 2, "tuning: wanted at least 2 trials, got {}", trials);
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

std::vector<std::vector<double>> TrialsAround(const std::vector<TunedHyperparameter>& tuned,
                                              std::span<const double> best, int64_t trials) {
  Require(trials >= 2, "tuning: wanted at least 2 trials, got {}", trials);
  Require(best.size() == tuned.size(), "tuning: wanted {} values, got {}", tuned.size(),
          best.size());
  if (tuned.size() == 1) return {};
  const int64_t first = trials - trials / 2;
  const double width = std::pow(static_cast<double>(first), -1 / static_cast<double>(tuned.size()));
  return Box(tuned, best, width, /*place=*/0.5, trials / 2);
}

}  // namespace lopt
