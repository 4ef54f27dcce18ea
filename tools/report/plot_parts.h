#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lopt/tools/report/axis.h"
#include "lopt/tools/report/plot.h"

namespace lopt {

// What DrawFigure is made of.

inline constexpr double kPlotScale = 1000;  // of coordinates
inline constexpr int kTicksOfX = 5;         // that fit on a phone

// A part of an axis, of 1, as coordinates have it: digits without an exponent, which scripts read.
std::string PlotCoordinate(double part);

// A part of 1.
std::string PercentOf(double part);

// The path element of a class; empty if it is empty.
std::string PathElement(const char* css_class, const std::string& d);

// Labels along a side, "left" or "bottom".
std::string TickLabels(const char* css_class, const char* side,
                       const std::vector<Axis::Tick>& ticks);

// The SVG element of a figure with `body`, `height` high in coordinates.
std::string SvgElement(const Figure& figure, size_t number, double height, const std::string& body);

// A picture between its axes and their labels; that of the y axis stands above it.
std::string FrameHtml(const Figure& figure, const std::string& svg,
                      const std::vector<Axis::Tick>& x_ticks,
                      const std::vector<Axis::Tick>& y_ticks);

// The three kinds of figures, with legends and axes; empty without anything to draw. `data` becomes
// the attributes from which a script reads the axes.
std::string CurvesPicture(const Figure& figure, size_t number, std::string* data);
std::string HeatMapPicture(const Figure& figure, size_t number);
std::string ForestPicture(const Figure& figure, size_t number);

}  // namespace lopt
