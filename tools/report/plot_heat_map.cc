#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "lopt/tools/report/axis.h"
#include "lopt/tools/report/html.h"
#include "lopt/tools/report/plot_parts.h"

namespace lopt {

namespace {

constexpr double kFlat = 1e-5;  // a range that is smaller than this part of its numbers is none
constexpr size_t kShownRows = 8;
constexpr int kShades = 48;

// From dark to bright.
constexpr int kShadeAnchors[][3] = {{0x44, 0x01, 0x54}, {0x46, 0x32, 0x7e}, {0x36, 0x5c, 0x8d},
                                    {0x27, 0x7f, 0x8e}, {0x1f, 0xa1, 0x87}, {0x4a, 0xc1, 0x6d},
                                    {0xa0, 0xda, 0x39}, {0xfd, 0xe7, 0x25}};

// `part` is from 0 to 1.
std::string Shade(double part) {
  constexpr int kLast = static_cast<int>(std::size(kShadeAnchors)) - 1;
  const double place = part * kLast;
  const int below = std::min(static_cast<int>(place), kLast - 1);
  int color[3];
  for (int c = 0; c < 3; ++c) {
    const int from = kShadeAnchors[below][c];
    color[c] = static_cast<int>(
        std::lround(from + (place - below) * (kShadeAnchors[below + 1][c] - from)));
  }
  return fmt::format("#{:02x}{:02x}{:02x}", color[0], color[1], color[2]);
}

// What the shades mean.
std::string ShadeScale(const HeatMap& map, const Axis& shades) {
  std::string colors;
  for (int i = 0; i <= 7; ++i) colors += (i > 0 ? "," : "") + Shade(i / 7.0);
  std::string html = fmt::format(
      "<div class=\"shades\"><span>{}</span><div class=\"x-ticks\" "
      "style=\"background:linear-gradient(to right,{}) 0 0/100% .7rem no-repeat\">",
      EscapeHtml(map.label), colors);
  for (const Axis::Tick& tick : shades.Ticks(4)) {
    html += fmt::format("<span style=\"left:{}\">{}</span>", PercentOf(tick.at),
                        EscapeHtml(tick.label));
  }
  return html + "</div></div>\n";
}

// The labels of rows, as many as fit.
std::vector<Axis::Tick> RowTicks(const HeatMap& map) {
  const size_t every = (map.rows.size() + kShownRows - 1) / kShownRows;
  std::vector<Axis::Tick> ticks;
  for (size_t row = 0; row < map.rows.size(); row += every) {
    ticks.push_back({.at = (static_cast<double>(row) + 0.5) / static_cast<double>(map.rows.size()),
                     .label = map.rows[row]});
  }
  return ticks;
}

}  // namespace

std::string HeatMapPicture(const Figure& figure, size_t number) {
  const HeatMap& map = *figure.heat_map;
  Extent extent;
  for (const auto& row : map.values) extent.AddAll(row);
  if (extent.empty || map.x_edges.size() < 2) return "";
  const Axis x{.low = map.x_edges.front(), .high = map.x_edges.back()};
  Axis shades{.low = extent.low,
              .high = extent.high,
              .logarithmic = !figure.linear && extent.AsksForLogarithms(figure.logarithmic_from)};
  if (shades.high - shades.low <= kFlat * std::abs(shades.high)) {
    const double margin = shades.high == 0 ? 1 : 0.1 * std::abs(shades.high);
    shades = {.low = shades.low - margin, .high = shades.low + margin};
  }
  std::map<int, std::string> cells;  // a path for each shade
  const double height = 1 / static_cast<double>(map.rows.size());
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double top = 1 - static_cast<double>(row + 1) * height;
    for (size_t column = 0; column + 1 < map.x_edges.size(); ++column) {
      const double part = shades.At(map.values[row][column]);
      if (!std::isfinite(part)) continue;
      const double left = x.At(map.x_edges[column]);
      const double width = x.At(map.x_edges[column + 1]) - left;
      const int shade = std::clamp(static_cast<int>(part * kShades), 0, kShades - 1);
      cells[shade] +=
          fmt::format("M{} {}h{}v{}h-{}z", PlotCoordinate(left), PlotCoordinate(top),
                      PlotCoordinate(width), PlotCoordinate(height), PlotCoordinate(width));
    }
  }
  std::string body;
  for (const auto& [shade, d] : cells) {
    const double part = (shade + 0.5) / kShades;
    const double value = shades.logarithmic ? shades.low * std::pow(shades.high / shades.low, part)
                                            : shades.low + part * (shades.high - shades.low);
    body += fmt::format(
        "<path class=\"cells\" fill=\"{}\" d=\"{}\"><title>about {:.3g}</title></path>\n",
        Shade(part), d, value);
  }
  return FrameHtml(figure, SvgElement(figure, number, kPlotScale, body), x.Ticks(kTicksOfX),
                   RowTicks(map)) +
         ShadeScale(map, shades);
}

}  // namespace lopt
