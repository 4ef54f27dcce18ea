#include "lopt/tools/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lopt/base/utf8.h"
#include "lopt/evaluation/summary_text.h"
#include "lopt/tools/report/html.h"
#include "lopt/tools/report/plot_parts.h"

namespace lopt {

namespace {

constexpr double kAxesAway = 100;  // axes away from a picture

}  // namespace

std::string PlotCoordinate(double part) {
  // What is further out only gives the direction of a line; larger numbers would have exponents.
  const double within = std::clamp(part, -kAxesAway, kAxesAway);
  const double rounded = std::round(10 * kPlotScale * within) / 10;
  return fmt::format("{:.6g}", rounded == 0 ? 0.0 : rounded);
}

std::string PercentOf(double part) { return fmt::format("{:.4g}%", 100 * part); }

std::string TickLabels(const char* css_class, const char* side,
                       const std::vector<Axis::Tick>& ticks) {
  std::string html = fmt::format("<div class=\"{}\" aria-hidden=\"true\">", css_class);
  for (const Axis::Tick& tick : ticks) {
    html += fmt::format("<span style=\"{}:{}\">{}</span>", side, PercentOf(tick.at),
                        EscapeHtml(tick.label));
  }
  return html + "</div>\n";
}

std::string SvgElement(const Figure& figure, size_t number, double height,
                       const std::string& body) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-labelledby=\"t{2}\"{3}><title id=\"t{2}\">{4}</title>{5}\n{6}</svg>",
      kPlotScale, height, number,
      figure.caption.empty() ? "" : fmt::format(" aria-describedby=\"d{}\"", number),
      EscapeHtml(figure.title),
      figure.caption.empty()
          ? ""
          : fmt::format("<desc id=\"d{}\">{}</desc>", number, EscapeHtml(figure.caption)),
      body);
}

std::string FrameHtml(const Figure& figure, const std::string& svg,
                      const std::vector<Axis::Tick>& x_ticks,
                      const std::vector<Axis::Tick>& y_ticks) {
  size_t width = 1;
  for (const Axis::Tick& tick : y_ticks) width = std::max(width, TextWidth(tick.label));
  return fmt::format(
      "<div class=\"y-label\">{}</div>\n<div class=\"frame\" style=\"--ticks:{}ch\">\n{}<div "
      "class=\"area\">{}</div>\n{}</div>\n<div class=\"x-label\">{}</div>\n",
      EscapeHtml(figure.y_label), width, TickLabels("y-ticks", "bottom", y_ticks), svg,
      TickLabels("x-ticks", "left", x_ticks), EscapeHtml(figure.x_label));
}

std::string PathElement(const char* css_class, const std::string& d) {
  return d.empty() ? "" : fmt::format("<path class=\"{}\" d=\"{}\"/>", css_class, d);
}

std::string DrawFigure(const Figure& figure, size_t number) {
  std::string data;
  std::string picture = figure.heat_map ? HeatMapPicture(figure, number)
                        : figure.forest ? ForestPicture(figure, number)
                                        : CurvesPicture(figure, number, &data);
  if (picture.empty()) picture = "<p class=\"empty\">No numbers to show yet.</p>\n";
  return fmt::format("<figure{}>\n<h4>{}</h4>\n{}<figcaption>{}</figcaption>\n</figure>\n", data,
                     EscapeHtml(figure.title), picture, EscapeHtml(figure.caption));
}

}  // namespace lopt
