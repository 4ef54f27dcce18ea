#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/key.h"

namespace lopt {

// The mean of the middle half of all values, as rliable has it (Agarwal et al. 2021): sorted, the
// floor(n / 4) smallest and largest are left out. +infinity sorts last, so a value that is not
// finite (a NaN counts as +infinity) makes the mean infinite unless it is cut off. Throws Error if
// there are no values.
double InterquartileMean(std::span<const double> values);

// An interval, both ends included.
struct Interval {
  double low = 0;   // lower end
  double high = 0;  // upper end
};

// The 95 % percentile interval of `statistic` under the stratified bootstrap: each stratum (a
// task's seeds) is resampled with replacement by itself, `resamples` times; the statistic gets all
// strata's values, one after the other. Draws are functions of `key`. Percentiles interpolate
// linearly. Throws Error if there is no stratum or one is empty.
Interval StratifiedBootstrapInterval(
    const std::vector<std::vector<double>>& strata,
    const std::function<double(std::span<const double>)>& statistic, int64_t resamples, Key key);

}  // namespace lopt
