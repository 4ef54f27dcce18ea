#include "lopt/evaluation/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

double NanAsInfinity(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
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

double Quantile(std::span<const double> sorted, double fraction) {
  Require(!sorted.empty(), "Quantile: there are no numbers");
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const double weight = position - static_cast<double>(below);
  // Differences of infinities are not numbers.
  if (weight == 0 || sorted[below] == sorted[below + 1] || std::isinf(sorted[below])) {
    return sorted[below];
  }
  return sorted[below] + weight * (sorted[below + 1] - sorted[below]);
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
    statistics[static_cast<size_t>(resample)] = statistic(values);
  }
  return PercentileInterval(std::move(statistics));
}

std::vector<double> CrossedBootstrap(const Sample& sample, int64_t resamples, Key key) {
  const auto size = static_cast<int64_t>(sample.values.size());
  const int64_t columns = sample.columns;
  Require(size > 0 && columns > 0 && size % columns == 0,
          "CrossedBootstrap: {} values do not make rows of {} columns", size, columns);
  const int64_t rows = size / columns;

  std::vector<double> statistics;
  std::vector<int32_t> drawn_rows(static_cast<size_t>(rows));
  std::vector<int32_t> drawn_columns(static_cast<size_t>(columns));
  std::vector<double> weights(static_cast<size_t>(columns));
  std::vector<double> means(static_cast<size_t>(rows));
  for (int64_t resample = 0; resample < resamples; ++resample) {
    const Key resample_key = FoldIn(key, static_cast<uint64_t>(resample));
    Randint(FoldIn(resample_key, 0), 0, static_cast<int32_t>(rows), drawn_rows);
    Randint(FoldIn(resample_key, 1), 0, static_cast<int32_t>(columns), drawn_columns);
    std::ranges::fill(weights, 0.0);
    for (const int32_t column : drawn_columns) weights[static_cast<size_t>(column)] += 1;
    for (size_t i = 0; i < means.size(); ++i) {
      const auto first = sample.values.begin() + drawn_rows[i] * columns;
      means[i] = 0;
      for (int64_t c = 0; c < columns; ++c) {
        // Infinity times a weight of 0 would not be a number.
        if (const double weight = weights[static_cast<size_t>(c)]; weight != 0) {
          means[i] += weight * first[c];
        }
      }
      means[i] /= static_cast<double>(columns);
    }
    statistics.push_back(InterquartileMean(means));
  }
  return statistics;
}

Interval PercentileInterval(std::vector<double> statistics) {
  Require(!statistics.empty(), "PercentileInterval: there are no statistics");
  std::ranges::transform(statistics, statistics.begin(), NanAsInfinity);
  std::ranges::sort(statistics);
  return {.low = Quantile(statistics, 0.025), .high = Quantile(statistics, 0.975)};
}

double BootstrapPValue(std::span<const double> differences) {
  const auto at_most = std::ranges::count_if(differences, [](double d) { return d <= 0; });
  const auto at_least = std::ranges::count_if(differences, [](double d) { return !(d < 0); });
  return std::min(1.0, 2.0 * static_cast<double>(std::min(at_most, at_least) + 1) /
                           static_cast<double>(differences.size() + 1));
}

std::vector<bool> HolmRejections(std::span<const double> p_values, double level) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<bool> rejected(p_values.size(), false);
  for (size_t k = 0; k < order.size(); ++k) {
    if (!(p_values[order[k]] <= level / static_cast<double>(order.size() - k))) break;
    rejected[order[k]] = true;
  }
  return rejected;
}

}  // namespace lopt
