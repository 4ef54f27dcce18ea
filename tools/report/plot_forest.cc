#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lopt/evaluation/summary_text.h"
#include "lopt/tools/report/axis.h"
#include "lopt/tools/report/html.h"
#include "lopt/tools/report/plot_parts.h"

namespace lopt {

namespace {

constexpr double kFarthest = 5;    // of rows that are not bold
constexpr double kForestRow = 20;  // the height of a row, as coordinates have it
constexpr int kForestTicks = 4;    // that fit beside names on a phone
constexpr double kForestMargin = 1.04;

bool HasPoint(const ForestPlot::Row& row) { return row.ratio > 0; }

bool HasInterval(const ForestPlot::Row& row) {
  return HasPoint(row) && !std::isnan(row.low) && !std::isnan(row.high);
}

Axis ForestAxis(const ForestPlot& forest) {
  Extent extent;
  extent.AddAll({1 / 1.1, 1.1});
  for (const ForestPlot::Row& row : forest.rows) {
    if (!HasPoint(row)) continue;
    const double middle = row.bold && Drawable(row.ratio) ? row.ratio : 1;
    const auto add = [&](double value) {
      extent.Add(std::clamp(value, middle / kFarthest, middle * kFarthest));
    };
    add(row.ratio);
    if (!HasInterval(row)) continue;
    add(row.low);
    add(row.high);
  }
  return {
      .low = extent.low / kForestMargin, .high = extent.high * kForestMargin, .logarithmic = true};
}

// Dashes to the edge where the place is beyond it.
std::string ForestMark(double ratio, const Axis& axis, double y) {
  if (ratio < axis.low) return PathElement("edge", fmt::format("M120 {}H0", y));
  if (ratio > axis.high) return PathElement("edge", fmt::format("M880 {}H1000", y));
  return PathElement("dots", fmt::format("M{} {}h0", PlotCoordinate(axis.At(ratio)), y));
}

std::string ForestRow(const ForestPlot::Row& row, const Axis& axis, double y) {
  std::string title = fmt::format("{}: {}", row.label, Rounded(row.ratio, 3));
  std::string line;
  if (HasInterval(row)) {
    title += fmt::format(" [{}, {}]", Rounded(row.low, 3), Rounded(row.high, 3));
    const auto end = [&](double value) {
      const double at = value > 0 ? axis.At(value) : 0;
      return PlotCoordinate(std::clamp(std::isfinite(at) ? at : 1, 0.0, 1.0));
    };
    if (row.low < row.high) {
      line = PathElement("line", fmt::format("M{} {}H{}", end(row.low), y, end(row.high)));
    }
  }
  if (!row.word.empty()) title += ", " + row.word;
  return fmt::format(
      "<g class=\"row{}\"><title>{}</title><path class=\"back\" d=\"M0 {}h{}v{}H0z\"/>{}{}</g>\n",
      row.bold ? " ours" : "", EscapeHtml(title), y - kForestRow / 2, kPlotScale, kForestRow, line,
      ForestMark(row.ratio, axis, y));
}

}  // namespace

std::string ForestPicture(const Figure& figure, size_t number) {
  const ForestPlot& forest = *figure.forest;
  if (!std::ranges::any_of(forest.rows, HasPoint)) return "";
  const Axis axis = ForestAxis(forest);
  const std::vector<Axis::Tick> ticks = axis.Ticks(kForestTicks);
  const double height = kForestRow * static_cast<double>(forest.rows.size());
  std::string grid;
  for (const Axis::Tick& tick : ticks)
    grid += fmt::format("M{} 0V{}", PlotCoordinate(tick.at), height);
  std::string body;
  std::string names;
  std::string values;
  for (size_t r = 0; r < forest.rows.size(); ++r) {
    const ForestPlot::Row& row = forest.rows[r];
    const char* open = row.bold ? "<li class=\"ours\">" : "<li>";
    names += open + EscapeHtml(row.label) + "</li>";
    const bool marked = row.word == "better" || row.word == "worse";
    values += fmt::format("{}{}{}{}</li>", open,
                          marked ? fmt::format("<span class=\"{}\">{} ", row.word,
                                               row.word == "better" ? "&#9660;" : "&#9650;")
                                 : "",
                          Rounded(row.ratio, 3), marked ? "</span>" : "");
    if (HasPoint(row)) body += ForestRow(row, axis, kForestRow * (static_cast<double>(r) + 0.5));
  }
  body = PathElement("grid", grid) +
         PathElement("reference", fmt::format("M{} 0V{}", PlotCoordinate(axis.At(1)), height)) +
         "\n" + body;
  return fmt::format(
      "<div class=\"forest\">\n<ol class=\"names\">{}</ol>\n<div class=\"area\" "
      "style=\"--rows:{}\">{}</div>\n<ol class=\"values\">{}</ol>\n{}</div>\n"
      "<div class=\"x-label\">{}</div>\n",
      names, forest.rows.size(), SvgElement(figure, number, height, body), values,
      TickLabels("x-ticks", "left", ticks), EscapeHtml(figure.x_label));
}

}  // namespace lopt
