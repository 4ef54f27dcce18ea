#include "lopt/lopt/network/factored.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "lopt/base/error.h"
#include "lopt/lopt/network/mean_squares_device.h"

namespace lopt {
namespace {

float FlooredSquare(float g) { return BoundedSquare(g) + kFactoredSquareFloor; }

// Sums of neighbours are formed in this many parts, which the compiler keeps in vectors.
constexpr int64_t kParts = 16;

float SumOfSquares(const float* g, int64_t size) {
  float parts[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= size; i += kParts) {
    for (int64_t k = 0; k < kParts; ++k) parts[k] += FlooredSquare(g[i + k]);
  }
  for (int64_t k = 0; i + k < size; ++k) parts[k] += FlooredSquare(g[i + k]);
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k < half; ++k) parts[k] += parts[k + half];
  }
  return parts[0];
}

void AddSquares(const float* g, int64_t size, float* sums) {
  for (int64_t i = 0; i < size; ++i) sums[i] += FlooredSquare(g[i]);
}

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

void FactoredMeanSquares(const FactoredShape& shape, std::span<const float> gradient,
                         std::span<float> row, std::span<float> col) {
  if (gradient.empty()) return;
  const std::span<float> without_first = shape.largest_first ? row : col;
  const std::span<float> without_second = shape.largest_first ? col : row;
  std::fill(without_first.begin(), without_first.end(), 0.0f);
  std::fill(without_second.begin(), without_second.end(), 0.0f);
  const int64_t line = shape.second * shape.inner;
  const float* g = gradient.data();
  float* over_second = without_second.data();
  for (int64_t a = 0; a < shape.outer; ++a) {
    for (int64_t x = 0; x < shape.first; ++x) {
      float* over_first = without_first.data() + a * shape.middle * line;
      for (int64_t b = 0; b < shape.middle; ++b) {
        AddSquares(g, line, over_first);
        if (shape.inner == 1) {
          *over_second = SumOfSquares(g, line);
        } else {
          for (int64_t y = 0; y < line; y += shape.inner) {
            AddSquares(g + y, shape.inner, over_second);
          }
        }
        g += line;
        over_first += line;
        over_second += shape.inner;
      }
    }
  }
  for (float& mean : without_first) mean /= static_cast<float>(shape.first);
  for (float& mean : without_second) mean /= static_cast<float>(shape.second);
}

void DecayAverage(float decay, std::span<const float> x, std::span<float> average) {
  const float rest = 1.0f - decay;
  for (size_t i = 0; i < x.size(); ++i) average[i] = decay * average[i] + rest * x[i];
}

void FactoredRsqrt(const FactoredShape& shape, std::span<const float> v_row,
                   std::span<const float> v_col, std::span<float> row_factors,
                   std::span<float> col_factors) {
  if (v_row.empty() || v_col.empty()) return;
  for (size_t i = 0; i < v_col.size(); ++i) col_factors[i] = FlooredRsqrt(v_col[i]);
  const int64_t axis = shape.row_axis();
  const int64_t after = shape.after_row_axis();
  for (int64_t block = 0; block < shape.row_size(); block += axis * after) {
    for (int64_t i = 0; i < after; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < axis; ++k) sum += v_row[block + k * after + i];
      const float mean = sum / static_cast<float>(axis);
      for (int64_t k = 0; k < axis; ++k) {
        const int64_t at = block + k * after + i;
        row_factors[at] = FlooredRsqrt(v_row[at] / (mean + kFactoredMomentFloor));
      }
    }
  }
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
