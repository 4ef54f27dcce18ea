#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lopt/evaluation/summary.h"

namespace lopt {

// `digits` significant digits, written out where that is short: 0.326, 12.4, 1.24e-07; "inf" and,
// of what is not a number, "-".
std::string Rounded(double value, int digits);

// The digits of the estimates in a column: three, or four where an interval is so narrow that three
// would not show it.
template <class Range, class Projection>
int Digits(const Range& range, const Projection& estimate_of) {
  return std::ranges::any_of(range,
                             [&](const auto& element) {
                               const Estimate& estimate = std::invoke(estimate_of, element);
                               const Interval& interval = estimate.interval;
                               return interval.high - interval.low <
                                      0.01 * std::abs(estimate.value);
                             })
             ? 4
             : 3;
}

using SummaryRows = std::span<const SummaryRow>;

// The rows in pieces of one task and one number of steps.
std::vector<SummaryRows> Sections(const Summary& summary);

// "8 tasks"; "4 tasks and lengths" where a task has several numbers of steps, "3 lengths" of one.
std::string NumberOfSections(const std::vector<SummaryRows>& sections);

// What tables call the optimizers that are tuned for each task, or the others.
inline const char* NameOfGroup(bool tuned) {
  return tuned ? "Everything tuned with equal trials" : "Nothing tuned";
}

}  // namespace lopt
