#include "evaluation/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace lopt {
namespace {

double NanAsInfinity(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

// Linear interpolation between the order statistics of `sorted`: fraction 0 is the first, 1 the
// last.
double Percentile(std::span<const double> sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const double weight = position - static_cast<double>(below);
  // Differences of infinities are not numbers.
  if (weight == 0 || sorted[below] == sorted[below + 1] || std::isinf(sorted[below])) {
    return sorted[below];
  }
  return sorted[below] + weight * (sorted[below + 1] - sorted[below]);
}

}  // namespace

double InterquartileMean(std::span<const double> values) {
  Require(!values.empty(), "InterquartileMean: there are no values");
  std::vector<double> sorted(values.begin(), values.end());
  std::transform(sorted.begin(), sorted.end(), sorted.begin(), NanAsInfinity);
  std::sort(sorted.begin(), sorted.end());
  const auto cut = static_cast<std::ptrdiff_t>(sorted.size() / 4);
  const double sum = std::accumulate(sorted.begin() + cut, sorted.end() - cut, 0.0);
  return NanAsInfinity(sum / static_cast<double>(sorted.size() - 2 * static_cast<size_t>(cut)));
}

Interval StratifiedBootstrapInterval(
    const std::vector<std::vector<double>>& strata,
    const std::function<double(std::span<const double>)>& statistic, int64_t resamples, Key key) {
  Require(!strata.empty(), "StratifiedBootstrapInterval: there are no strata");
  Require(resamples >= 1, "StratifiedBootstrapInterval: resamples must be at least 1, got {}",
          resamples);
  size_t size = 0;
  for (size_t s = 0; s < strata.size(); ++s) {
    Require(!strata[s].empty(), "StratifiedBootstrapInterval: stratum {} of {} is empty", s,
            strata.size());
    size += strata[s].size();
  }

  std::vector<double> values(size);
  std::vector<int32_t> drawn(size);
  std::vector<double> statistics(static_cast<size_t>(resamples));
  for (int64_t resample = 0; resample < resamples; ++resample) {
    const Key resample_key = FoldIn(key, static_cast<uint64_t>(resample));
    size_t first = 0;
    for (size_t s = 0; s < strata.size(); ++s) {
      const std::vector<double>& stratum = strata[s];
      const std::span<int32_t> rows = std::span(drawn).first(stratum.size());
      Randint(FoldIn(resample_key, s), 0, static_cast<int32_t>(stratum.size()), rows);
      for (size_t i = 0; i < rows.size(); ++i) {
        values[first + i] = stratum[static_cast<size_t>(rows[i])];
      }
      first += stratum.size();
    }
    statistics[static_cast<size_t>(resample)] = NanAsInfinity(statistic(values));
  }
  std::sort(statistics.begin(), statistics.end());
  return {.low = Percentile(statistics, 0.025), .high = Percentile(statistics, 0.975)};
}

}  // namespace lopt
