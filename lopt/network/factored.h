#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/lopt/network/factored_device.h"

namespace lopt {

// Second moments of a tensor's gradient that are kept as the product of two smaller tensors, as in
// Adafactor (Shazeer and Stern 2018): v_row and v_col, averages v <- decay v + (1 - decay) mean of
// its means over the largest axis (row) and over the second largest (col). A mean is that of
// g^2, at most kLargestSquare, + 1e-30. A gradient divided by the root of the moments is
// g row_factors col_factors, each at the element's row and column:
//   row_factors = rsqrt(max(v_row / (mean of v_row over the second largest axis + 1e-9), 1e-9))
//   col_factors = rsqrt(max(v_col, 1e-9))

struct LargestAxes {
  size_t largest;
  size_t second;
};

// The shape of `copies` tensors of `shape`, stacked along a new first axis.
Shape Copies(int64_t copies, const Shape& shape);

// The two largest axes; of equal dimensions the later axis counts as larger. Throws Error unless
// the shape has two axes.
LargestAxes FindLargestAxes(const Shape& shape);

// How a tensor of two axes or more is factored. "Row" is what remains without its largest axis,
// "column" what remains without the second largest: for a matrix with more rows than columns a
// "row" moment is thus the mean over a column.
struct FactoredShape {
  // Throws Error unless the shape has two axes.
  explicit FactoredShape(const Shape& shape);

  int64_t row_size() const { return largest_first ? without_first() : without_second(); }
  int64_t col_size() const { return largest_first ? without_second() : without_first(); }
  // The sizes without the earlier and the later of the two axes.
  int64_t without_first() const { return outer * middle * second * inner; }
  int64_t without_second() const { return outer * first * middle * inner; }

  // What v_row keeps of the two axes is the second largest: it is [before, row_axis,
  // after_row_axis].
  int64_t row_axis() const { return largest_first ? second : first; }
  int64_t after_row_axis() const { return largest_first ? inner : middle * inner; }

  // What a device's functions take of it. Throws Error of 2^31 elements or more.
  DeviceFactored OnDevice() const;

  // The tensor as [outer, first, middle, second, inner], where first and second are its two largest
  // axes by their order in the shape.
  int64_t outer = 1;
  int64_t first = 1;
  int64_t middle = 1;
  int64_t second = 1;
  int64_t inner = 1;
  bool largest_first;  // the largest axis is `first`
  Shape row;
  Shape col;
};

// The places of a tensor's elements in row and col, one run of neighbours after the other: along a
// run each of both stays or moves on by one.
class FactoredRuns {
 public:
  // The run that begins at element `first` < size; it is a part of one where the element is not its
  // first.
  FactoredRuns(const FactoredShape& shape, int64_t first);

  int64_t size() const { return length_ - done_; }  // elements of this run that remain
  int64_t row() const { return largest_first_ ? without_first() : without_second(); }
  int64_t col() const { return largest_first_ ? without_second() : without_first(); }
  bool row_moves() const { return largest_first_ || inner_; }
  bool col_moves() const { return !largest_first_ || inner_; }
  // Goes on by `count` <= size() elements.
  void Advance(int64_t count) {
    done_ += count;
    if (done_ < length_) return;
    done_ = 0;
    int a = last_;
    while (++at_[a] == size_[a]) at_[a--] = 0;
    without_first_ += first_step_[a];
    without_second_ += second_step_[a];
  }

 private:
  int64_t without_first() const { return without_first_ + done_; }
  int64_t without_second() const { return without_second_ + (inner_ ? done_ : 0); }

  bool largest_first_;
  bool inner_;  // runs go along the inner axes, where both move; else along `second`
  int64_t length_;
  int64_t done_;
  // The axes of more than one run, behind one that never ends: sizes, the present index, and what
  // is added to each place when an axis goes on and those behind it begin again.
  static constexpr int kAxes = 5;
  int last_ = 0;
  int64_t size_[kAxes];
  int64_t at_[kAxes];
  int64_t first_step_[kAxes];
  int64_t second_step_[kAxes];
  int64_t without_first_ = 0;
  int64_t without_second_ = 0;
};

}  // namespace lopt
