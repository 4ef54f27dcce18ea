#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/lopt/network/mean_squares_device.h"

namespace lopt {

// The factored second moments of lopt/network/factored.h on a device, and the numbers that they are
// defined by.

// What is added to a square of the gradient, and the least moment of which a root is taken.
constexpr float kFactoredSquareFloor = 1e-30f;
constexpr float kFactoredMomentFloor = 1e-9f;

// rsqrt(max(x, 1e-9)).
LOPT_DEVICE inline float FlooredRsqrt(float x) {
  return 1.0f / std::sqrt(x < kFactoredMomentFloor ? kFactoredMomentFloor : x);
}

// FactoredShape of a tensor of fewer than 2^31 elements.
struct DeviceFactored {
  int outer;
  int first;
  int middle;
  int second;
  int inner;
  bool largest_first;
  int rows;  // row_size() and col_size()
  int cols;

  // An axis of an array [before, length, after].
  struct Axis {
    int length;
    int after;
  };
  LOPT_DEVICE Axis First() const { return {first, middle * second * inner}; }
  LOPT_DEVICE Axis Second() const { return {second, inner}; }
  LOPT_DEVICE Axis Largest() const { return largest_first ? First() : Second(); }
  LOPT_DEVICE Axis SecondLargest() const { return largest_first ? Second() : First(); }
  // What v_row keeps of the two.
  LOPT_DEVICE Axis AxisOfRow() const {
    return largest_first ? Second() : Axis{first, middle * inner};
  }

  // Of how many items UpdateFactored makes sums at a time.
  int64_t MostSums(int decays) const {
    const int64_t means = int64_t{decays} * rows / AxisOfRow().length;
    const int64_t sides = rows > cols ? rows : cols;
    return means > sides ? means : sides;
  }

  // Where an element's moments are in row and col.
  struct Place {
    int row;
    int col;
  };
  LOPT_DEVICE Place PlaceOf(int element) const {
    int left = element / inner;
    const int in_inner = element % inner;
    const int in_second = left % second;
    left /= second;
    const int in_middle = left % middle;
    left /= middle;
    const int in_first = left % first;
    const int in_outer = left / first;
    const int without_first =
        ((in_outer * middle + in_middle) * second + in_second) * inner + in_inner;
    const int without_second =
        ((in_outer * first + in_first) * middle + in_middle) * inner + in_inner;
    return largest_first ? Place{without_first, without_second}
                         : Place{without_second, without_first};
  }
};

// Arrays of a factored tensor with F decays, in a block's shared memory: what is made of its
// moments v_row and v_col. roots: 1 / sqrt(v + epsilon); factors: of
// factored.h.
struct FactoredTables {
  float* row_roots;  // [F, rows]
  float* row_factors;
  float* col_roots;  // [F, cols]
  float* col_factors;

  static int64_t Floats(const DeviceFactored& shape, int decays) {
    return int64_t{2} * decays * (shape.rows + shape.cols);
  }
  LOPT_DEVICE FactoredTables(const DeviceFactored& shape, int decays, float* memory)
      : row_roots(memory),
        row_factors(row_roots + decays * shape.rows),
        col_roots(row_factors + decays * shape.rows),
        col_factors(col_roots + decays * shape.cols) {}
};

// Sums over an axis of an array: each in several pieces, so that all threads have work.
class SumsOverAxis {
 public:
  // The most floats that `items` sums take.
  static int64_t Floats(int64_t items, int threads) { return items > threads ? items : threads; }

  // A phase: the sums over `axis` of an array [before, axis, after], `items` = before after;
  // value(i) is the array's number i. `partial` is memory for them.
  template <class Value>
  LOPT_DEVICE_INLINE SumsOverAxis(const Block& block, int items, DeviceFactored::Axis axis,
                                  const Value& value, float* partial)
      : partial_(partial), pieces_(block.threads() / items) {
    if (pieces_ > kMostPieces) pieces_ = kMostPieces;
    if (pieces_ < 1) pieces_ = 1;
    block.ForEach(items * pieces_, [&](int64_t i) {
      // Neighbouring threads read neighbours, of one item or of several.
      const int at = static_cast<int>(i);
      const int item = axis.after == 1 ? at / pieces_ : at % items;
      const int piece = axis.after == 1 ? at % pieces_ : at / items;
      const int64_t begin =
          int64_t{item / axis.after} * axis.length * axis.after + item % axis.after;
      float sum = 0;
      for (int j = piece; j < axis.length; j += pieces_)
        sum += value(begin + int64_t{j} * axis.after);
      partial_[item * pieces_ + piece] = sum;
    });
  }

  LOPT_DEVICE float operator[](int item) const {
    float sum = 0;
    for (int piece = 0; piece < pieces_; ++piece) sum += partial_[item * pieces_ + piece];
    return sum;
  }

 private:
  static constexpr int kMostPieces = 16;

  float* partial_;
  int pieces_;
};

// Updates the moments of a tensor that has elements, v_row [F, rows] and v_col [F, cols], with
// decay(k) of each of the F, and makes its tables; gradient(i) is element i's, `partial` memory for
// SumsOverAxis of MostSums.
template <class Decay, class Gradient>
LOPT_DEVICE_INLINE void UpdateFactored(const Block& block, const DeviceFactored& shape, int decays,
                                       const Decay& decay, const Gradient& gradient, float epsilon,
                                       float* v_row, float* v_col, const FactoredTables& tables,
                                       float* partial) {
  const auto square = [&](int64_t i) { return BoundedSquare(gradient(i)) + kFactoredSquareFloor; };
  // Both sides by one piece of code, rows first.
  LOPT_ROLLED
  for (int side = 0; side < 2; ++side) {
    const bool row = side == 0;
    const int size = row ? shape.rows : shape.cols;
    const DeviceFactored::Axis axis = row ? shape.Largest() : shape.SecondLargest();
    float* moments = row ? v_row : v_col;
    float* roots = row ? tables.row_roots : tables.col_roots;
    const SumsOverAxis sums(block, size, axis, square, partial);
    block.ForEach(size, [&](int64_t i) {
      const float mean = sums[static_cast<int>(i)] / static_cast<float>(axis.length);
      for (int k = 0; k < decays; ++k) {
        const int64_t at = int64_t{k} * size + i;
        const float v = decay(k) * moments[at] + (1.0f - decay(k)) * mean;
        moments[at] = v;
        roots[at] = 1.0f / std::sqrt(v + epsilon);
        if (!row) tables.col_factors[at] = FlooredRsqrt(v);
      }
    });
  }
  // The moments by rows of all decays as one array.
  const DeviceFactored::Axis axis = shape.AxisOfRow();
  const int all = decays * shape.rows;
  const SumsOverAxis sums(
      block, all / axis.length, axis, [&](int64_t i) { return v_row[i]; }, partial);
  block.ForEach(all, [&](int64_t i) {
    const int at = static_cast<int>(i);
    const float mean = sums[at / (axis.length * axis.after) * axis.after + at % axis.after] /
                       static_cast<float>(axis.length);
    tables.row_factors[at] = FlooredRsqrt(v_row[at] / (mean + kFactoredMomentFloor));
  });
}

}  // namespace lopt
