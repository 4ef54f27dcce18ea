#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/tools/report/files.h"
#include "lopt/tools/report/plot.h"

namespace lopt {

// Means of groups of consecutive records, each of the same number, so that at most `points` are
// left. Values that are not finite are left out of a mean; one without any other is NaN.
Series Thinned(const Series& series, size_t points);

// Means over `window` records around each; fewer at the ends. As above for values that are not
// finite.
Series Smoothed(const Series& series, size_t window);

// A series under a name and in a color.
struct NamedSeries {
  std::string label = {};
  const Series* series = nullptr;  // null: there is none
  int color = 0;
  int dash = 0;
  bool as_it_is = false;  // never smoothed
};

// A figure of series over updates. Long series are drawn as running means over 1/25 of their own
// records, with the records behind them where there are few curves; `figure`'s caption is told so.
// With `as_they_are` nothing is smoothed.
Figure SeriesFigure(Figure figure, const std::vector<NamedSeries>& all, bool as_they_are = false);

// Points that a curve has at most.
inline constexpr size_t kCurvePoints = 400;

}  // namespace lopt
