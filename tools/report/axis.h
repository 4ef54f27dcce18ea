#pragma once

#include <string>
#include <vector>

namespace lopt {

// Whether a figure can show the number: it is finite and at most 1e100.
bool Drawable(double value);

// The smallest and largest of some numbers; those that cannot be drawn are left out.
struct Extent {
  double low = 0;
  double high = 0;
  bool empty = true;

  void Add(double value);
  void AddAll(const std::vector<double>& values);
  // Whether all numbers are above 0 and the largest is more than `from` times the smallest.
  bool AsksForLogarithms(double from) const;
};

// One axis of a figure, from `low` to `high`, which differ; both above 0 if it is logarithmic.
struct Axis {
  double low = 0;
  double high = 1;
  bool logarithmic = false;

  // From 0 at `low` to 1 at `high`. NaN of what cannot be drawn.
  double At(double value) const;

  struct Tick {
    double at = 0;  // of 1
    std::string label = {};
  };
  // Round numbers on the axis, at most `most` (3 or more), ascending; at least two, which may be
  // the ends of a short logarithmic axis.
  std::vector<Tick> Ticks(int most) const;
};

// "0.001", "1500", then "20k", "1.5M"; "1e-07"; with at most so many significant digits.
std::string ShortTick(double value, int digits = 4);

}  // namespace lopt
