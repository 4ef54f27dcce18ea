#include "tests/reference/factored_reference.h"

#include <algorithm>
#include <cstdint>

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

}  // namespace

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

}  // namespace lopt
