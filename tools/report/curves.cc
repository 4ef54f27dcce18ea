#include "lopt/tools/report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
  size_t longest = 0;
  size_t present = 0;
  size_t not_finite = 0;
  for (const NamedSeries& named : all) {
    if (named.series == nullptr) continue;
    ++present;
    longest = std::max(longest, named.series->step.size());
    not_finite += static_cast<size_t>(std::ranges::count_if(
        named.series->value, [](double value) { return !std::isfinite(value); }));
  }
  const bool smooth = !as_they_are && longest > kUnsmoothed;
  const size_t window = longest / kRunCurvePart | 1;
  const bool records = smooth && present <= kCurvesWithRecords;
  const bool legend = present > 1;
  if (figure.x_label.empty()) figure.x_label = "updates of theta";
  for (const NamedSeries& named : all) {
    if (named.series == nullptr) continue;
    if (!smooth) {
      Curve curve = ToCurve(Thinned(*named.series, kCurvePoints), named, legend);
      if (longest <= kUnsmoothed) curve.style = Curve::Style::kPoints;
      figure.curves.push_back(std::move(curve));
      continue;
    }
    if (records) {
      Curve faint = ToCurve(Thinned(*named.series, kCurvePoints), named, false);
      faint.style = Curve::Style::kFaint;
      figure.curves.push_back(std::move(faint));
    }
    const Series fine = Thinned(*named.series, kSmoothedPoints);
    const size_t group = GroupSize(named.series->step.size(), kSmoothedPoints);
    const size_t fine_window = (window + group / 2) / group | 1;
    figure.curves.push_back(
        ToCurve(Thinned(Smoothed(fine, fine_window), kCurvePoints), named, legend));
  }
  const auto say = [&](const std::string& text) {
    figure.caption += (figure.caption.empty() ? "" : " ") + text;
  };
  const size_t group = GroupSize(longest, kCurvePoints);
  if (smooth) {
    std::string text = fmt::format("Line: running mean over {} records", window);
    if (records && group > 1) {
      text += fmt::format("; pale: mean of each {} records", group);
    } else if (records) {
      text += "; pale: every record";
    }
    say(text + ".");
  } else if (group > 1) {
    say(fmt::format("Each point is the mean of {} records.", group));
  }
  if (not_finite > 0) {
    say(fmt::format("{} values that are not finite are not drawn.", not_finite));
  }
  return figure;
}

}  // namespace lopt
