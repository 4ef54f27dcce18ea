#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"

namespace lopt {

// Squares and means of squares of numbers of any size. Float32 cannot hold the square of a number
// beyond 1.8e19, and a rule that squares such numbers as they are makes infinities of finite ones.

// The largest square that a second moment is made of: the sum of 3e8 of them is finite.
constexpr float kLargestSquare = 1e30f;
// Gradients beyond it count as this in Adam, whose state has their squares.
constexpr float kLargestAdamGradient = 1e19f;
// What numbers are multiplied by, exactly, before they are squared where the sum of their squares
// is infinite.
constexpr float kShrink = 0x1p-80f;

// x^2, at most kLargestSquare. NaN stays.
LOPT_DEVICE inline float BoundedSquare(float x) {
  const float square = x * x;
  return square > kLargestSquare ? kLargestSquare : square;
}

// x within [-limit, limit]. NaN stays.
LOPT_DEVICE inline float WithinLimit(float x, float limit) {
  return x < -limit ? -limit : x > limit ? limit : x;
}
LOPT_DEVICE inline double WithinLimit(double x, double limit) {
  return x < -limit ? -limit : x > limit ? limit : x;
}

// 1 / sqrt(epsilon + mean square) of so many numbers. sum: of their squares, in float64 where
// float32 cannot hold it.
LOPT_DEVICE inline float InverseRootMeanSquare(float epsilon, double sum, int64_t count) {
  if (sum <= double{FLT_MAX}) {
    return 1.0f / std::sqrt(epsilon + static_cast<float>(sum) / static_cast<float>(count));
  }
  return static_cast<float>(1 / std::sqrt(double{epsilon} + sum / static_cast<double>(count)));
}

// The sum of squares of which this is the sum of the shrunk numbers' squares.
LOPT_DEVICE inline double UnshrunkSum(float sum) { return double{sum} * 0x1p160; }

// Whether float32 cannot hold one of so many sums of squares. NaN it holds.
LOPT_DEVICE inline bool AnyIsWide(const float* sums, int count) {
  bool wide = false;
  for (int k = 0; k < count; ++k) wide = wide || sums[k] > FLT_MAX;
  return wide;
}

// A sum of squares: `sum` or, where float32 cannot hold it, what the threads' sums of the shrunk
// numbers' squares, partial [threads], come to.
LOPT_DEVICE inline double SumOrUnshrunk(float sum, const float* partial, int threads) {
  if (!(sum > FLT_MAX)) return double{sum};
  float shrunk = 0;
  for (int thread = 0; thread < threads; ++thread) shrunk += partial[thread];
  return UnshrunkSum(shrunk);
}

}  // namespace lopt
