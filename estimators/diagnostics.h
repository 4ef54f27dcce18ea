#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lopt/estimators/diagnostic.h"
#include "lopt/estimators/inner_problem.h"

namespace lopt {

// What the estimators with antithetic pairs tell of one window besides the gradient, computed from
// what they have anyway. N pairs; a step is usable if both replicas' losses are finite. A number
// that cannot be given (no usable step, a single pair, an overflow) is left out.
//
//   gradient_snr      |g|^2 / (trace of the pairs' sample covariance / N), where g is the mean of
//                     the pairs' own gradients g_n and the covariance has divisor N - 1. About 1 if
//                     there is nothing but noise, 1 + the ratio of signal to noise otherwise, noise
//                     being that of the mean. Needs N >= 2 and independent
//                     directions.
//   loss_difference   root mean square of loss+ - loss- over the usable steps
//   loss_resolution   2^-23 times the mean |loss| of the usable steps: what float32 resolves at
//                     losses of this size
//   loss_at           mean loss of the usable steps whose inner step is in a range
//   accumulator_norm         PES, GPES_K: mean over the pairs of |accumulator|, the sum over
//   earlier blocks|
//                     (PES: windows), of the pairs whose inner step at the start of the window is
//                     in a range
//
// Inner steps count from 0 in their episode. The ranges are 0-9, 10-19, 20-49, 50-99, 100-199 and
// so on in the series 1, 2, 5; only those that occur are given.

// Gathers what a window's losses tell; a window may come in pieces.
class LossDiagnostics {
 public:
  // `trace` [K, 2N].
  void Add(const UnrollTrace& trace);
  void WriteTo(Diagnostics* metrics) const;

 private:
  struct Range {
    double sum = 0;  // of both replicas' losses
    int64_t count = 0;
  };

  double squares_ = 0;    // of differences
  double absolutes_ = 0;  // of both replicas' losses
  int64_t steps_ = 0;     // usable ones
  std::vector<Range> ranges_;
};

// Means over all inner steps and replicas of what a window's trace has noted, in float64 and in the
// order of replicas and steps; a window may come in pieces. Values that are not finite are left
// out, and so is a number that has no other.
class NotedMeans {
 public:
  void Add(const UnrollTrace& trace);
  void WriteTo(Diagnostics* metrics) const;

 private:
  struct Sum {
    double sum = 0;
    int64_t count = 0;  // of the finite values
  };

  std::map<std::string, Sum> sums_;  // by name
};

// `gradient` is the mean of the gradients of `pairs` pairs, `squares` the sum of their squared
// norms.
void WriteGradientSnr(const Eigen::VectorXf& gradient, double squares, int64_t pairs,
                      Diagnostics* metrics);

// `trace` [W, 2N] is that of a window, `norms` [N] those of the pairs' accumulators before it.
void WriteAccumulatorNorms(const UnrollTrace& trace, std::span<const double> norms,
                           Diagnostics* metrics);

// sum_i a_i b_i in float64, in an order that the size alone decides. Throws Error if the sizes
// differ.
double Dot(std::span<const float> a, std::span<const float> b);

}  // namespace lopt
