#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lopt {

// A curve of a figure. Points with a y that is not finite (or above 1e100), or not above 0 on a
// logarithmic axis, are not drawn and interrupt the line.
struct Curve {
  enum class Style {
    kLine,
    kThick,
    kGrey,   // thin, behind the others; the y axis reaches a tenth and ten times theirs
    kFaint,  // thin and pale, without a place in the legend or a value under the pointer
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

// Ratios with their intervals, a row each from the top down, on a logarithmic axis around 1. The
// axis holds all points of the rows in bold, and those of others up to a factor of 5 away from 1;
// to those beyond it lead dashes.
struct ForestPlot {
  struct Row {
    std::string label = {};
    double ratio = 0;  // not drawn unless it is finite and above 0
    double low = 0;    // of the interval; none if either is NaN
    double high = 0;
    bool bold = false;
    std::string word = {};  // "better", "worse", or anything else
  };
  std::vector<Row> rows = {};
};

struct Figure {
  std::string title = {};
  std::string caption = {};  // how to read it
  std::string x_label = {};  // with the unit
  std::string y_label = {};
  std::vector<Curve> curves = {};
  bool ordered = false;                   // the curves follow an order, and so do their colors
  std::optional<HeatMap> heat_map = {};   // instead of curves
  std::optional<ForestPlot> forest = {};  // likewise
  std::optional<double> reference = {};   // a thin horizontal line
  double logarithmic_from = 20;           // ratio of the largest to the smallest number
  bool from_zero = false;                 // the y axis, where it is linear
  bool linear = false;  // otherwise the y axis is logarithmic where the range asks for it
};

// The <figure> element number `number` (of the ids in it) with title, legend, inline SVG and
// caption. SVG is as wide as its surroundings, text is HTML of its usual size beside it. Colors are
// the CSS variables --c0 .. --c7 and --s0 .. --s7, so a page chooses them for light and dark.
// Coordinates are from 0 to 1000, of y downwards; the ends of the axes are in data-x and data-y
// ("LOW HIGH", then " log" if it is logarithmic), from which a script can show values.
std::string DrawFigure(const Figure& figure, size_t number);

}  // namespace lopt
