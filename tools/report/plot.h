#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lopt {

// A curve of a figure. Points with a y that is not finite (or above 1e100), or not above 0 on a
// logarithmic axis, are not drawn and interrupt the line.
struct Curve {
  enum class Style {
    kLine,
    kFaint,  // thin and pale, behind the lines
    kPoints  // a line with a mark at each point
  };
  std::string label = {};  // in the legend; curves without one are not in it
  std::vector<double> x = {};
  std::vector<double> y = {};
  std::vector<double> low = {};  // with `high`, a pale band; empty: none
  std::vector<double> high = {};
  int color = 0;  // from 0; after the last color of the palette they start again
  int dash = 0;   // 0: solid
  Style style = Style::kLine;
};

// Colored cells. Cells that are not finite, or not above 0 where all others are, stay empty.
struct HeatMap {
  std::vector<double> x_edges = {};              // [columns + 1]
  std::vector<std::string> rows = {};            // labels, from the bottom up
  std::vector<std::vector<double>> values = {};  // [rows][columns]
  std::string label = {};                        // of the color scale, with the unit
};

struct Figure {
  std::string title = {};
  std::string caption = {};  // how to read it
  std::string x_label = {};  // with the unit
  std::string y_label = {};
  std::vector<Curve> curves = {};
  bool ordered = false;                  // the curves follow an order, and so do their colors
  std::optional<HeatMap> heat_map = {};  // instead of curves
  std::optional<double> reference = {};  // a thin horizontal line
  double logarithmic_from = 20;          // ratio of the largest to the smallest number
  bool from_zero = false;                // the y axis, where it is linear
  bool linear = false;  // otherwise the y axis is logarithmic where the range asks for it
};

// <figure> elements with title, legend, inline SVG and caption. Text and axes take the color of the
// text around, curves the CSS variables --c0 .. --c7 and --s0 .. --s7, so a page chooses them for
// light and dark. Runs gnuplot, once. Throws Error that names the package if it is not installed.
std::vector<std::string> DrawFigures(const std::vector<Figure>& figures);

}  // namespace lopt
