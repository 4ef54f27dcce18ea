#include "lopt/evaluation/performance_profile.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace lopt {

double ProfileCurve::Share(double factor) const {
  const auto within = std::ranges::upper_bound(ratios, factor) - ratios.begin();
  return static_cast<double>(within) / static_cast<double>(ratios.size());
}

std::vector<ProfileCurve> PerformanceProfile(const std::vector<SummaryRow>& rows,
                                             const RowFigure& figure) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  using TaskAndSteps = std::pair<std::string, int64_t>;
  std::map<TaskAndSteps, double> lowest;
  for (const SummaryRow& row : rows) {
    double& low = lowest.try_emplace({row.task, row.steps}, kNever).first->second;
    low = std::fmin(low, figure(row));
  }
  std::vector<ProfileCurve> profile;
  for (const SummaryRow& row : rows) {
    auto curve = std::ranges::find(profile, row.optimizer, &ProfileCurve::optimizer);
    if (curve == profile.end()) {
      profile.push_back({.optimizer = row.optimizer});
      curve = profile.end() - 1;
    }
    const double low = lowest.at({row.task, row.steps});
    const double value = figure(row);
    const bool is_lowest = value == low && std::isfinite(value);
    curve->ratios.push_back(is_lowest ? 1 : low > 0 && std::isfinite(value) ? value / low : kNever);
  }
  for (ProfileCurve& curve : profile) {
    curve.ratios.resize(lowest.size(), kNever);  // of tasks that it was not trained on
    std::ranges::sort(curve.ratios);
  }
  return profile;
}

}  // namespace lopt
