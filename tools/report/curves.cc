#include "lopt/tools/report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "lopt/learner/mean.h"

namespace lopt {

namespace {

constexpr size_t kUnsmoothed = 60;  // records up to which nothing is smoothed
constexpr size_t kRunCurvePart = 25;
constexpr size_t kSmoothedPoints = 4 * kCurvePoints;  // that a running mean is made of
constexpr size_t kCurvesWithRecords = 3;

// Records that become one point, so that there are at most `points`.
size_t GroupSize(size_t records, size_t points) {
  return std::max<size_t>(1, (records + points - 1) / points);
}

Curve ToCurve(const Series& series, const NamedSeries& named, bool in_legend) {
  return {.label = in_legend ? named.label : "",
          .x = series.step,
          .y = series.value,
          .color = named.color,
          .dash = named.dash};
}

// How the series of a figure are drawn.
struct WaysDrawn {
  std::set<size_t> windows = {};       // records that running means are over
  std::set<size_t> pale_groups = {};   // records behind a pale point
  std::set<size_t> point_groups = {};  // records behind a point of a series that is not smoothed
};

// "13", or "up to 13" where there are others.
std::string Largest(const std::set<size_t>& groups) {
  return fmt::format("{}{}", groups.size() == 1 ? "" : "up to ", *groups.rbegin());
}

// For the caption; empty where every record is a point.
std::string HowDrawn(const WaysDrawn& drawn) {
  const bool thinned = !drawn.point_groups.empty() && *drawn.point_groups.rbegin() > 1;
  if (drawn.windows.empty()) {
    return thinned
               ? fmt::format("Each point is the mean of {} records.", Largest(drawn.point_groups))
               : "";
  }
  std::string text = drawn.windows.size() == 1
                         ? fmt::format("running mean over {} records", *drawn.windows.begin())
                         : fmt::format("running mean over 1/{} of its records", kRunCurvePart);
  text = (drawn.point_groups.empty() ? "Line: " : "Smoothed line: ") + text;
  if (!drawn.pale_groups.empty()) {
    text += *drawn.pale_groups.rbegin() == 1 ? "; pale: every record"
            : drawn.pale_groups.size() == 1
                ? fmt::format("; pale: mean of each {} records", *drawn.pale_groups.begin())
                : fmt::format("; pale: mean of {} records", Largest(drawn.pale_groups));
  }
  if (thinned) text += fmt::format("; others: mean of {} records", Largest(drawn.point_groups));
  return text + ".";
}

}  // namespace

Series Thinned(const Series& series, size_t points) {
  const size_t size = series.step.size();
  const size_t group = GroupSize(size, points);
  if (group == 1) return series;
  Series thinned;
  for (size_t first = 0; first < size; first += group) {
    MeanOfNumbers step;
    MeanOfNumbers value;
    for (size_t i = first; i < std::min(size, first + group); ++i) {
      step.Add(series.step[i]);
      if (std::isfinite(series.value[i])) value.Add(series.value[i]);
    }
    thinned.step.push_back(step.Get());
    thinned.value.push_back(value.Get());
  }
  return thinned;
}

Series Smoothed(const Series& series, size_t window) {
  const size_t size = series.step.size();
  const size_t half = window / 2;
  Series smoothed{.step = series.step, .value = std::vector<double>(size)};
  for (size_t i = 0; i < size; ++i) {
    MeanOfNumbers mean;
    for (size_t k = i - std::min(half, i); k < std::min(size, i + half + 1); ++k) {
      if (std::isfinite(series.value[k])) mean.Add(series.value[k]);
    }
    smoothed.value[i] = mean.Get();
  }
  return smoothed;
}

Figure SeriesFigure(Figure figure, const std::vector<NamedSeries>& all, bool as_they_are) {
  std::vector<NamedSeries> present;
  std::ranges::copy_if(all, std::back_inserter(present),
                       [](const NamedSeries& named) { return named.series != nullptr; });
  const bool pale = present.size() <= kCurvesWithRecords;
  const bool legend = present.size() > 1;
  int64_t not_finite = 0;
  WaysDrawn drawn;
  if (figure.x_label.empty()) figure.x_label = "updates of theta";
  for (const NamedSeries& named : present) {
    const size_t size = named.series->step.size();
    const size_t group = GroupSize(size, kCurvePoints);
    not_finite += std::ranges::count_if(named.series->value,
                                        [](double value) { return !std::isfinite(value); });
    if (as_they_are || named.as_it_is || size <= kUnsmoothed) {
      Curve curve = ToCurve(Thinned(*named.series, kCurvePoints), named, legend);
      if (size <= kUnsmoothed) curve.style = Curve::Style::kPoints;
      figure.curves.push_back(std::move(curve));
      drawn.point_groups.insert(group);
      continue;
    }
    if (pale) {
      Curve faint = ToCurve(Thinned(*named.series, kCurvePoints), named, false);
      faint.style = Curve::Style::kFaint;
      figure.curves.push_back(std::move(faint));
      drawn.pale_groups.insert(group);
    }
    const size_t window = size / kRunCurvePart | 1;
    const Series fine = Thinned(*named.series, kSmoothedPoints);
    const size_t fine_group = GroupSize(size, kSmoothedPoints);
    const size_t fine_window = (window + fine_group / 2) / fine_group | 1;
    figure.curves.push_back(
        ToCurve(Thinned(Smoothed(fine, fine_window), kCurvePoints), named, legend));
    drawn.windows.insert(window);
  }
  std::string how = HowDrawn(drawn);
  if (not_finite > 0) {
    how += fmt::format("{}{} values that are not finite are not drawn.", how.empty() ? "" : " ",
                       not_finite);
  }
  if (!how.empty()) figure.caption += (figure.caption.empty() ? "" : " ") + how;
  return figure;
}

}  // namespace lopt
