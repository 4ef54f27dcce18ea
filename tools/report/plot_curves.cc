#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lopt/tools/report/axis.h"
#include "lopt/tools/report/html.h"
#include "lopt/tools/report/plot_parts.h"

namespace lopt {

namespace {

constexpr int kColors = 8;
constexpr double kHeadroom = 1.06;
constexpr double kFarGrey = 10;
constexpr double kNoRange = 1e-5;  // a range that is smaller than this part of its numbers is none
constexpr int kTicksOfY = 6;

Extent ExtentOfX(const Figure& figure) {
  Extent extent;
  for (const Curve& curve : figure.curves) {
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (Drawable(curve.y[i])) extent.Add(curve.x[i]);
    }
  }
  return extent;
}

Extent ExtentOfY(const Figure& figure) {
  Extent extent;
  for (const Curve& curve : figure.curves) {
    if (curve.style == Curve::Style::kGrey) continue;
    extent.AddAll(curve.y);
    extent.AddAll(curve.low);
    extent.AddAll(curve.high);
  }
  // What is behind must not hide the others.
  const Extent shown = extent;
  for (const Curve& curve : figure.curves) {
    if (curve.style != Curve::Style::kGrey) continue;
    for (const double y : curve.y) {
      const bool far = !shown.empty && (y > kFarGrey * shown.high || y < shown.low / kFarGrey);
      if (!far) extent.Add(y);
    }
  }
  return extent;
}

Axis AxisOfX(Extent extent) {
  if (extent.low == extent.high) {
    extent.Add(extent.low - 0.5);
    extent.Add(extent.high + 0.5);
  }
  return {.low = extent.low, .high = extent.high};
}

Axis AxisOfY(const Figure& figure, Extent extent) {
  if (!figure.linear && extent.AsksForLogarithms(figure.logarithmic_from)) {
    return {.low = extent.low / kHeadroom, .high = extent.high * kHeadroom, .logarithmic = true};
  }
  if (figure.reference) extent.Add(*figure.reference);
  const double size = std::max(std::abs(extent.low), std::abs(extent.high));
  const double range = extent.high - extent.low;
  const double margin = range > kNoRange * size ? (kHeadroom - 1) * range
                        : size == 0             ? 1
                                                : 0.1 * size;
  const bool from_zero = extent.low >= 0 && (figure.from_zero || extent.low < 0.3 * extent.high);
  return {.low = from_zero ? 0 : extent.low - margin, .high = extent.high + margin};
}

// Places of a curve's points in the picture.
struct Places {
  const Axis& x;
  const Axis& y;

  // Empty where it cannot be drawn.
  std::string Of(double at_x, double at_y) const {
    const double up = y.At(at_y);
    if (!std::isfinite(up)) return "";
    return PlotCoordinate(x.At(at_x)) + " " + PlotCoordinate(1 - up);
  }
};

std::string LinePath(const Curve& curve, const Places& places) {
  std::string d;
  bool interrupted = true;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    const std::string place = places.Of(curve.x[i], curve.y[i]);
    if (!place.empty()) d += (interrupted ? "M" : " ") + place;
    interrupted = place.empty();
  }
  return d;
}

// Marks of a size that does not depend on the picture's: lines without length, with round ends.
std::string DotsPath(const Curve& curve, const Places& places) {
  std::string d;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    const std::string place = places.Of(curve.x[i], curve.y[i]);
    if (!place.empty()) d += "M" + place + "h0";
  }
  return d;
}

std::string BandPath(const Curve& curve, const Places& places) {
  std::string d;
  for (size_t first = 0; first < curve.low.size();) {
    std::string there;
    std::vector<std::string> back;
    size_t i = first;
    for (; i < curve.low.size(); ++i) {
      const std::string low = places.Of(curve.x[i], curve.low[i]);
      const std::string high = places.Of(curve.x[i], curve.high[i]);
      if (low.empty() || high.empty()) break;
      there += (there.empty() ? "M" : " ") + low;
      back.push_back(high);
    }
    for (size_t k = back.size(); k-- > 0;) there += " " + back[k];
    if (!there.empty()) d += there + "Z";
    first = i + 1;
  }
  return d;
}

const char* ClassOf(Curve::Style style) {
  return style == Curve::Style::kThick   ? " thick"
         : style == Curve::Style::kGrey  ? " grey"
         : style == Curve::Style::kFaint ? " faint"
                                         : "";
}

std::string ColorOf(const Figure& figure, const Curve& curve) {
  if (curve.style == Curve::Style::kGrey) return "var(--grey)";
  return fmt::format("var(--{}{})", figure.ordered ? 's' : 'c', curve.color % kColors);
}

std::string Dashes(const Curve& curve) {
  return std::vector{"", "8 4", "2 3", "10 3 2 3"}[static_cast<size_t>(curve.dash % 4)];
}

// What the group of a curve and its place in the legend have in common.
std::string ColorStyle(const Figure& figure, const Curve& curve) {
  const std::string dashes = Dashes(curve);
  return fmt::format("style=\"--c:{}{}\"", ColorOf(figure, curve),
                     dashes.empty() ? "" : ";--dash:" + dashes);
}

std::string CurveGroup(const Figure& figure, const Curve& curve, const Places& places) {
  if (curve.style == Curve::Style::kFaint) {
    return fmt::format("<g class=\"faint\" {}>{}</g>\n", ColorStyle(figure, curve),
                       PathElement("line", LinePath(curve, places)));
  }
  return fmt::format(
      "<g class=\"curve{}\" {}><title>{}</title>{}{}{}</g>\n", ClassOf(curve.style),
      ColorStyle(figure, curve), EscapeHtml(curve.label.empty() ? figure.y_label : curve.label),
      PathElement("band", BandPath(curve, places)), PathElement("line", LinePath(curve, places)),
      curve.style == Curve::Style::kPoints ? PathElement("dots", DotsPath(curve, places)) : "");
}

// The curves that are drawn later are on top: the first of the legend, over grey and pale ones.
int Layer(const Curve& curve) {
  return curve.style == Curve::Style::kFaint   ? 0
         : curve.style == Curve::Style::kGrey  ? 1
         : curve.style == Curve::Style::kThick ? 3
                                               : 2;
}

std::string Gridlines(const std::vector<Axis::Tick>& y_ticks) {
  std::string d;
  for (const Axis::Tick& tick : y_ticks) {
    d += fmt::format("M0 {}H{}", PlotCoordinate(1 - tick.at), kPlotScale);
  }
  return PathElement("grid", d);
}

// A place in a legend: a button, which a script makes work.
std::string LegendPlace(const std::string& style, const char* css_class, const char* data,
                        const std::string& label) {
  return fmt::format(
      "<li><button type=\"button\" class=\"{}\" {} aria-pressed=\"true\" disabled {}><svg "
      "class=\"swatch\" viewBox=\"0 0 26 8\" aria-hidden=\"true\"><path class=\"line\" d=\"M0 "
      "4H26\"/></svg>{}</button></li>",
      css_class, style, data, EscapeHtml(label));
}

// Several grey curves have one place, and those of each are folded away.
std::string Legend(const Figure& figure) {
  std::string places;
  std::string greys;
  int64_t grey = 0;
  for (const Curve& curve : figure.curves) {
    if (curve.label.empty()) continue;
    const bool is_grey = curve.style == Curve::Style::kGrey;
    grey += is_grey ? 1 : 0;
    (is_grey ? greys : places) +=
        LegendPlace(ColorStyle(figure, curve), ClassOf(curve.style), "data-curve", curve.label);
  }
  if (grey > 1) {
    places += LegendPlace("style=\"--c:var(--grey)\"", " grey", "data-greys",
                          fmt::format("{} others", grey));
  } else {
    places += greys;
  }
  if (places.empty()) return "";
  std::string html = "<ul class=\"legend\">" + places + "</ul>\n";
  if (grey > 1) {
    html += "<details class=\"greys\"><summary>which others</summary><ul class=\"legend\">" +
            greys + "</ul></details>\n";
  }
  return html;
}

// What a script reads of an axis.
std::string AxisData(const char* name, const Axis& axis) {
  return fmt::format(" data-{}=\"{:.9g} {:.9g}{}\"", name, axis.low, axis.high,
                     axis.logarithmic ? " log" : "");
}

}  // namespace

std::string CurvesPicture(const Figure& figure, size_t number, std::string* data) {
  const Extent x_extent = ExtentOfX(figure);
  const Extent y_extent = ExtentOfY(figure);
  if (x_extent.empty || y_extent.empty) return "";
  const Axis x = AxisOfX(x_extent);
  const Axis y = AxisOfY(figure, y_extent);
  *data = AxisData("x", x) + AxisData("y", y);
  const std::vector<Axis::Tick> y_ticks = y.Ticks(kTicksOfY);
  std::string body = Gridlines(y_ticks) + "\n";
  if (figure.reference && std::isfinite(y.At(*figure.reference))) {
    body += PathElement(
        "reference",
        fmt::format("M0 {}H{}", PlotCoordinate(1 - y.At(*figure.reference)), kPlotScale));
  }
  std::vector<const Curve*> order;
  for (const Curve& curve : figure.curves) order.insert(order.begin(), &curve);
  std::ranges::stable_sort(order, {}, [](const Curve* curve) { return Layer(*curve); });
  for (const Curve* curve : order) body += CurveGroup(figure, *curve, {.x = x, .y = y});
  return Legend(figure) + FrameHtml(figure, SvgElement(figure, number, kPlotScale, body),
                                    x.Ticks(kTicksOfX), y_ticks);
}

}  // namespace lopt
