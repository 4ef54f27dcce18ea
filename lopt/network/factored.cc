#include "lopt/lopt/network/factored.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "lopt/base/error.h"

namespace lopt {
namespace {

Shape Without(Shape shape, size_t axis) {
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return shape;
}

}  // namespace

Shape Copies(int64_t copies, const Shape& shape) {
  Shape result = {copies};
  result.insert(result.end(), shape.begin(), shape.end());
  return result;
}

LargestAxes FindLargestAxes(const Shape& shape) {
  Require(shape.size() >= 2, "FindLargestAxes: wants a shape of two axes or more, got {}",
          ToString(shape));
  const auto larger = [&](size_t a, size_t b) {  // of a < b
    return shape[a] > shape[b];
  };
  LargestAxes axes = larger(0, 1) ? LargestAxes{0, 1} : LargestAxes{1, 0};
  for (size_t a = 2; a < shape.size(); ++a) {
    if (!larger(axes.largest, a)) {
      axes = {a, axes.largest};
    } else if (!larger(axes.second, a)) {
      axes.second = a;
    }
  }
  return axes;
}

FactoredShape::FactoredShape(const Shape& shape) {
  const auto [largest, second_largest] = FindLargestAxes(shape);
  largest_first = largest < second_largest;
  row = Without(shape, largest);
  col = Without(shape, second_largest);
  const size_t earlier = std::min(largest, second_largest);
  const size_t later = std::max(largest, second_largest);
  for (size_t a = 0; a < shape.size(); ++a) {
    int64_t& part = a < earlier    ? outer
                    : a == earlier ? first
                    : a < later    ? middle
                    : a == later   ? second
                                   : inner;
    part *= shape[a];
  }
}

DeviceFactored FactoredShape::OnDevice() const {
  const int64_t size = outer * first * middle * second * inner;
  Require(size <= std::numeric_limits<int>::max(),
          "device: a factored tensor may have up to {} elements, not {}",
          std::numeric_limits<int>::max(), size);
  return {.outer = static_cast<int>(outer),
          .first = static_cast<int>(first),
          .middle = static_cast<int>(middle),
          .second = static_cast<int>(second),
          .inner = static_cast<int>(inner),
          .largest_first = largest_first,
          .rows = static_cast<int>(row_size()),
          .cols = static_cast<int>(col_size())};
}

FactoredRuns::FactoredRuns(const FactoredShape& shape, int64_t first)
    : largest_first_(shape.largest_first), inner_(shape.inner > 1) {
  length_ = inner_ ? shape.inner : shape.second;
  done_ = first % length_;
  int64_t run = first / length_;
  const int64_t line = shape.second * shape.inner;
  struct Axis {
    int64_t size;
    int64_t without_first;  // strides
    int64_t without_second;
  };
  const Axis axes[] = {
      {shape.outer, shape.middle * line, shape.first * shape.middle * shape.inner},
      {shape.first, 0, shape.middle * shape.inner},
      {shape.middle, line, shape.inner},
      {inner_ ? shape.second : 1, shape.inner, 0},
  };
  size_[0] = std::numeric_limits<int64_t>::max();
  at_[0] = first_step_[0] = second_step_[0] = 0;
  for (const Axis& axis : axes) {
    if (axis.size > 1) size_[++last_] = axis.size;
  }
  // From the last axis on, what the axes behind one have come to when they begin again.
  int64_t first_back = 0;
  int64_t second_back = 0;
  int a = last_;
  for (auto axis = std::rbegin(axes); axis != std::rend(axes); ++axis) {
    if (axis->size == 1) continue;
    at_[a] = run % axis->size;
    run /= axis->size;
    without_first_ += at_[a] * axis->without_first;
    without_second_ += at_[a] * axis->without_second;
    first_step_[a] = axis->without_first - first_back;
    second_step_[a] = axis->without_second - second_back;
    first_back += (axis->size - 1) * axis->without_first;
    second_back += (axis->size - 1) * axis->without_second;
    --a;
  }
}

}  // namespace lopt
