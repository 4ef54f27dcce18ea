#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lopt/base/key.h"

namespace lopt {

// The mean of the middle half of all values, as rliable has it (Agarwal et al. 2021): sorted, the
// floor(n / 4) smallest and largest are left out. +infinity sorts last, so a value that is not
// finite (a NaN counts as +infinity) makes the mean infinite unless it is cut off. Throws Error if
// there are no values.
double InterquartileMean(std::span<const double> values);

// The quantile of ascending numbers, interpolated linearly between neighbors: `fraction` 0 is the
// first of them, 1 the last. Between an infinite number and the next it is the infinite one. Throws
// Error if there are none.
double Quantile(std::span<const double> sorted, double fraction);

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

// What one optimizer reached: rows are seeds, columns parts of the test split, or one.
struct Sample {
  int64_t columns = 1;              // parts, or 1
  std::vector<double> values = {};  // [rows, columns]
};

// [resamples] of the interquartile mean over the rows of each row's mean over its columns, in their
// order. Rows and columns are drawn with replacement, each by themselves ("pigeonhole bootstrap",
// Owen 2007). What is drawn is a function of `key` and the shape: of two samples of one shape the
// same seeds and examples, so that their difference is one of pairs. Not a number counts as
// +infinity. Throws Error if the sample is empty or not of whole rows.
std::vector<double> CrossedBootstrap(const Sample& sample, int64_t resamples, Key key);

// The 95 % percentile interval of a bootstrap's statistics, in any order; not a number counts as
// +infinity. Throws Error if there are none.
Interval PercentileInterval(std::vector<double> statistics);

// Two-sided bootstrap p-value of "the difference is 0", 2 (min(#{d <= 0}, #{d >= 0}) + 1) / (n + 1)
// of n resampled differences, at most 1 (Davison and Hinkley 1997, chapter 4).
double BootstrapPValue(std::span<const double> differences);

// Which of the hypotheses are rejected at `level` for the whole family (Holm 1979): in ascending
// order of their p-values, the k-th of m (from 0) is as long as its p-value and all before are at
// most level / (m - k).
std::vector<bool> HolmRejections(std::span<const double> p_values, double level);

}  // namespace lopt
