#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lopt/evaluation/summary.h"

namespace lopt {

// A figure of a row, the lower the better.
using RowFigure = std::function<double(const SummaryRow&)>;

// How often an optimizer comes near the best of several: a curve of a performance profile (Dolan
// and More 2002; AlgoPerf, Dahl et al. 2023, section 4.5, has it of the time to a target).
struct ProfileCurve {
  std::string optimizer = {};
  // Of each task and number of steps the figure as a multiple of the lowest of all optimizers,
  // ascending. Infinite where it is not finite or missing, or where it is above a lowest that is
  // not above 0.
  std::vector<double> ratios = {};

  // The share of these that are at most `factor`, in [0, 1].
  double Share(double factor) const;
};

// Of the optimizers of `rows`, in their order. The lowest is that of the same rows.
std::vector<ProfileCurve> PerformanceProfile(const std::vector<SummaryRow>& rows,
                                             const RowFigure& figure);

}  // namespace lopt
