#include "lopt/tools/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "lopt/base/error.h"
#include "lopt/tools/report/filter_process.h"
#include "lopt/tools/report/html.h"

namespace lopt {

namespace {

constexpr int kColors = 8;
constexpr double kLargest = 1e100;
constexpr double kHeadroom = 1.06;
constexpr double kShortLogarithmic = 300;  // ratio up to which ticks at powers of ten are too few
constexpr double kFlat = 1e-5;  // a range that is smaller than this part of its numbers is none

// The colors that gnuplot is told are numbers of colors; they become CSS variables. Red 1 is a
// color of the palette, red 2 one of the ordered palette.
std::string ColorWord(const Figure& figure, int color, bool pale = false) {
  return fmt::format("'#{}{}00{:02x}'", pale ? "a0" : "00", figure.ordered ? "02" : "01",
                     color % kColors);
}

// As gnuplot's strings in single quotes have it.
std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("''") : c == '\n' ? std::string(" ") : std::string(1, c);
  }
  return quoted + "'";
}

bool Drawable(double value) { return std::abs(value) <= kLargest; }

// The smallest and largest numbers that can be drawn.
struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    if (!Drawable(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void AddAll(const std::vector<double>& values) {
    for (const double value : values) Add(value);
  }
  bool empty() const { return low > high; }
  bool AsksForLogarithms(double from) const { return low > 0 && high > from * low; }
};

Extent ExtentOfX(const Figure& figure) {
  Extent extent;
  for (const Curve& curve : figure.curves) {
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (Drawable(curve.y[i])) extent.Add(curve.x[i]);
    }
  }
  if (figure.heat_map) extent.AddAll(figure.heat_map->x_edges);
  return extent;
}

Extent ExtentOfY(const Figure& figure) {
  Extent extent;
  for (const Curve& curve : figure.curves) {
    extent.AddAll(curve.y);
    extent.AddAll(curve.low);
    extent.AddAll(curve.high);
  }
  if (figure.heat_map) {
    for (const auto& row : figure.heat_map->values) extent.AddAll(row);
  }
  return extent;
}

bool Empty(const Figure& figure) { return ExtentOfX(figure).empty() || ExtentOfY(figure).empty(); }

std::string Number(double value, bool logarithmic) {
  const bool drawn = Drawable(value) && (!logarithmic || value > 0);
  return drawn ? fmt::format("{:.7g}", value) : "NaN";
}

// Ticks as 1500, then 15.0k.
const char* TickFormat(const Extent& extent) {
  return std::max(std::abs(extent.low), std::abs(extent.high)) < 1e5 ? "%g" : "%.1s%c";
}

std::string CurveScript(const Figure& figure, bool logarithmic) {
  std::string data;
  std::vector<std::string> bands;
  std::vector<std::string> faint;
  std::vector<std::string> lines;
  for (size_t i = 0; i < figure.curves.size(); ++i) {
    const Curve& curve = figure.curves[i];
    const bool banded = !curve.low.empty();
    data += fmt::format("$d{} << EOD\n", i);
    for (size_t k = 0; k < curve.x.size(); ++k) {
      data += fmt::format("{:.9g} {}", curve.x[k], Number(curve.y[k], logarithmic));
      if (banded) {
        data += fmt::format(" {} {}", Number(curve.low[k], logarithmic),
                            Number(curve.high[k], logarithmic));
      }
      data += '\n';
    }
    data += "EOD\n";
    const std::string color = ColorWord(figure, curve.color);
    if (banded) {
      bands.push_back(fmt::format(
          "$d{} using 1:3:4 with filledcurves fs transparent solid 0.17 noborder lc rgb {}", i,
          color));
    }
    if (curve.style == Curve::Style::kFaint) {
      faint.push_back(fmt::format("$d{} using 1:2 with lines lw 0.8 lc rgb {}", i,
                                  ColorWord(figure, curve.color, true)));
      continue;
    }
    lines.push_back(
        fmt::format("$d{} using 1:2 with lines lw 1.9 dt {} lc rgb {}", i,
                    std::vector{"solid", "(8,4)", "(2,3)", "(10,3,2,3)"}[curve.dash % 4], color));
    if (curve.style == Curve::Style::kPoints) {
      lines.push_back(fmt::format("$d{} using 1:2 with points pt 7 ps 0.45 lc rgb {}", i, color));
    }
  }
  std::string script = data;
  if (figure.reference) {
    script += fmt::format(
        "set arrow 1 from graph 0, first {0:.7g} to graph 1, first {0:.7g} nohead lw 1 dt (4,4) lc "
        "rgb '#7e7e7e'\n",
        *figure.reference);
  }
  std::ranges::reverse(lines);  // the first curve on top
  std::string parts;
  for (const auto* group : {&bands, &faint, &lines}) {
    for (const std::string& part : *group) parts += (parts.empty() ? "" : ", ") + part;
  }
  return script + "plot " + parts + "\n";
}

std::string HeatMapScript(const HeatMap& map, const Extent& extent, bool logarithmic) {
  std::string script;
  if (logarithmic) script += "set logscale cb\n";
  script += fmt::format(
      "set cblabel {} noenhanced offset 1\nset cbtics scale 0.4\n"
      "set rmargin at screen 0.8\n",
      Quoted(map.label));
  if (extent.high - extent.low <= kFlat * std::abs(extent.high)) {
    const double margin = extent.high == 0 ? 1 : 0.1 * std::abs(extent.high);
    script += fmt::format("set cbrange [{}:{}]\n", extent.low - margin, extent.low + margin);
  }
  script += fmt::format("set yrange [-0.5:{}]\nset ytics scale 0 (", map.rows.size() - 0.5);
  for (size_t row = 0; row < map.rows.size(); ++row) {
    script += fmt::format("{}{} {}", row > 0 ? ", " : "", Quoted(map.rows[row]), row);
  }
  script += ")\nunset grid\n$d0 << EOD\n";
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column + 1 < map.x_edges.size(); ++column) {
      const std::string value = Number(map.values[row][column], logarithmic);
      if (value == "NaN") continue;
      script +=
          fmt::format("{:.9g} {} {:.9g} {:.9g} {} {} {}\n", map.x_edges[column], row,
                      map.x_edges[column], map.x_edges[column + 1], row - 0.5, row + 0.5, value);
    }
  }
  return script +
         "EOD\nplot $d0 using 1:2:3:4:5:6:7 with boxxyerror fs solid noborder lc palette\n";
}

// Ticks at 1, 2 and 5 times the powers of ten, for a logarithmic axis that is too short for the
// powers alone.
std::string ShortLogarithmicTicks(double low, double high) {
  std::string ticks;
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high;
       ++power) {
    for (const int factor : {1, 2, 5}) {
      const double tick = factor * std::pow(10, power);
      if (tick < low || tick > high) continue;
      ticks += fmt::format("{}{:.6g}", ticks.empty() ? "" : ", ", tick);
    }
  }
  return ticks.empty() ? "" : "set ytics (" + ticks + ")\n";
}

std::string Script(const Figure& figure, size_t number) {
  Extent x = ExtentOfX(figure);
  if (x.low == x.high) {
    x.Add(x.low - 0.5);
    x.Add(x.high + 0.5);
  }
  Extent y = ExtentOfY(figure);
  const bool logarithmic = !figure.linear && y.AsksForLogarithms(figure.logarithmic_from);
  std::string script = fmt::format(
      "reset\n"
      "set terminal svg size 640,330 dynamic name 'f{}' font 'sans-serif,14' linewidth 1\n"
      "set key off\nset border 3 lw 0.8\nset tics nomirror out scale 0.5\n"
      "set grid lt 1 lw 0.6 dt solid lc rgb '#7f7f7f'\n"
      "set style line 99 lw 1\n"
      "set palette defined (0 '#440154', 1 '#46327e', 2 '#365c8d', 3 '#277f8e', 4 '#1fa187', 5 "
      "'#4ac16d', 6 '#a0da39', 7 '#fde725') maxcolors 48\n"
      "set xlabel {} noenhanced\nset ylabel {} noenhanced offset 0.5\n"
      "set xrange [{:.9g}:{:.9g}] noextend\nset format x '{}'\n",
      number, Quoted(figure.x_label), Quoted(figure.y_label), x.low, x.high, TickFormat(x));
  if (figure.heat_map) return script + HeatMapScript(*figure.heat_map, y, logarithmic);
  if (logarithmic) {
    script += fmt::format("set logscale y\nset format y '%g'\nset yrange [{:.7g}:{:.7g}]\n",
                          y.low / kHeadroom, y.high * kHeadroom);
    if (y.high < kShortLogarithmic * y.low) script += ShortLogarithmicTicks(y.low, y.high);
  } else {
    if (figure.reference) y.Add(*figure.reference);
    const double size = std::max(std::abs(y.low), std::abs(y.high));
    const double margin = y.high - y.low > kFlat * size ? (kHeadroom - 1) * (y.high - y.low)
                          : size == 0                   ? 1
                                                        : 0.1 * size;
    const bool from_zero = y.low >= 0 && (figure.from_zero || y.low < 0.3 * y.high);
    script += fmt::format("set format y '{}'\nset yrange [{:.7g}:{:.7g}]\n", TickFormat(y),
                          from_zero ? 0 : y.low - margin, y.high + margin);
  }
  return script + CurveScript(figure, logarithmic);
}

void ReplaceAll(std::string_view from, std::string_view to, std::string* text) {
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size()) {
    text->replace(at, from.size(), to);
  }
}

// Removes what begins with `begin` and ends with `end`, everywhere.
void RemoveAll(std::string_view begin, std::string_view end, std::string* text) {
  for (size_t at = 0; (at = text->find(begin, at)) != std::string::npos;) {
    const size_t stop = text->find(end, at + begin.size());
    if (stop == std::string::npos) return;
    text->erase(at, stop + end.size() - at);
  }
}

// gnuplot's SVG document as an element of a page.
std::string InlineSvg(std::string svg, const Figure& figure) {
  svg.erase(0, svg.find("<svg"));
  RemoveAll("<title>", "</title>\n", &svg);
  RemoveAll("<title>", "</title>", &svg);
  RemoveAll("<desc>", "</desc>", &svg);
  RemoveAll("<defs>", "</defs>", &svg);
  ReplaceAll(" id=\"gnuplot_canvas\"", "", &svg);
  for (const std::string_view color : {"black", "white", "gray"}) {
    ReplaceAll(fmt::format(" color=\"{}\"", color), "", &svg);
    ReplaceAll(fmt::format("stroke=\"{}\"", color), "stroke=\"currentColor\"", &svg);
    ReplaceAll(fmt::format("stroke='{}'", color), "stroke=\"currentColor\"", &svg);
    ReplaceAll(fmt::format("fill=\"{}\"", color), "fill=\"currentColor\"", &svg);
  }
  for (int color = 0; color < kColors; ++color) {
    ReplaceAll(fmt::format("rgb(  1,   0, {:3})", color), fmt::format("var(--c{})", color), &svg);
    ReplaceAll(fmt::format("rgb(  2,   0, {:3})", color), fmt::format("var(--s{})", color), &svg);
  }
  ReplaceAll("rgb(127, 127, 127)", "var(--grid)", &svg);
  ReplaceAll("rgb(126, 126, 126)", "var(--pale)", &svg);
  RemoveAll(
      "<g fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.00\" "
      "stroke-linecap=\"butt\" stroke-linejoin=\"miter\">\n</g>",
      "\n", &svg);
  const std::string label =
      fmt::format("<svg role=\"img\" aria-label=\"{}\"", EscapeHtml(figure.title));
  return svg.replace(0, std::string_view("<svg").size(), label);
}

std::string Legend(const Figure& figure) {
  std::string items;
  for (const Curve& curve : figure.curves) {
    if (curve.label.empty()) continue;
    const char* dashes[] = {"", "8 4", "2 3", "10 3 2 3"};
    items += fmt::format(
        "<li><svg class=\"swatch\" viewBox=\"0 0 26 8\"><path d=\"M0,4 h26\" "
        "stroke=\"var(--{}{})\" stroke-width=\"3\" stroke-dasharray=\"{}\"/></svg>{}</li>",
        figure.ordered ? 's' : 'c', curve.color % kColors, dashes[curve.dash % 4],
        EscapeHtml(curve.label));
  }
  return items.empty() ? "" : "<ul class=\"legend\">" + items + "</ul>\n";
}

}  // namespace

std::vector<std::string> DrawFigures(const std::vector<Figure>& figures) {
  std::string script = "set encoding utf8\n";
  size_t drawn = 0;
  for (size_t i = 0; i < figures.size(); ++i) {
    if (Empty(figures[i])) continue;
    script += Script(figures[i], i);
    ++drawn;
  }
  FilterResult result;
  if (drawn > 0) {
    try {
      result = RunFilter({"gnuplot", "-d"}, script + "exit\n");
    } catch (const Error& error) {
      Fail("{}; gnuplot draws the plots: install it (package gnuplot-nox)", error.what());
    }
    Require(result.exit_code == 0, "gnuplot failed with exit code {}: {}", result.exit_code,
            result.errors);
  }

  constexpr std::string_view kEnd = "</svg>";
  std::vector<std::string> html;
  size_t from = 0;
  for (const Figure& figure : figures) {
    std::string picture = "<p class=\"empty\">No numbers to show yet.</p>\n";
    if (!Empty(figure)) {
      const size_t end = result.output.find(kEnd, from);
      Require(end != std::string::npos, "gnuplot drew fewer than {} plots: {}", drawn,
              result.errors);
      picture = InlineSvg(result.output.substr(from, end + kEnd.size() - from), figure) + "\n";
      from = end + kEnd.size();
    }
    html.push_back(
        fmt::format("<figure>\n<h4>{}</h4>\n{}{}<figcaption>{}</figcaption>\n</figure>\n",
                    EscapeHtml(figure.title), Legend(figure), picture, EscapeHtml(figure.caption)));
  }
  return html;
}

}  // namespace lopt
