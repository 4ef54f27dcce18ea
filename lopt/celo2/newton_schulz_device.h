#pragma once

#include <cmath>
#include <cstdint>

#include "lopt/base/block_device.h"
#include "lopt/lopt/celo2/celo2_step_device.h"

namespace lopt {

// The Newton-Schulz iterations of Celo2 on a device. The matrix stays where it is; its Gram matrix
// and the polynomial of it are in shared memory, and so are a few of its columns while they change.
class NewtonSchulzDevice {
 public:
  // Of a matrix of so many rows and columns, which must not be 0.
  LOPT_DEVICE NewtonSchulzDevice(int rows, int columns)
      : short_(rows < columns ? rows : columns),
        long_(rows < columns ? columns : rows),
        short_stride_(rows <= columns ? columns : 1),
        long_stride_(rows <= columns ? 1 : columns) {
    at_once_ = kAtOnce / short_ > kLeastColumns ? kAtOnce / short_ : kLeastColumns;
    if (at_once_ > long_) at_once_ = long_;
  }

  // Of scratch memory; one more than the threads are at least.
  int64_t ScratchFloats() const {
    return 2 * int64_t{short_} * short_ + int64_t{short_} * at_once_;
  }

  // Makes the matrix x, [rows, columns], nearly orthogonal.
  LOPT_DEVICE_INLINE void Run(const Block& block, float* x, float* scratch) const {
    // Over its norm.
    const int size = short_ * long_;
    block.ForEachThread([&](int thread) {
      float sum = 0;
      for (int i = thread; i < size; i += block.threads()) sum += x[i] * x[i];
      scratch[1 + thread] = sum;
    });
    SumOverThreads(block, 1, scratch + 1, scratch);
    const float norm = std::sqrt(scratch[0]) + Celo2Numbers::kNormEpsilon;
    block.ForEach(size, [&](int64_t i) { x[i] /= norm; });

    float* gram = scratch;
    float* polynomial = gram + short_ * short_;
    float* changed = polynomial + short_ * short_;
    constexpr float kSame = Celo2Numbers::kPolynomial[0];
    constexpr float kLinear = Celo2Numbers::kPolynomial[1];
    constexpr float kSquare = Celo2Numbers::kPolynomial[2];
    LOPT_ROLLED
    for (int iteration = 0; iteration < Celo2Numbers::kIterations; ++iteration) {
      block.ForEach(short_ * short_, [&](int64_t at) {
        const int i = static_cast<int>(at) / short_;
        const int j = static_cast<int>(at) % short_;
        // Each sum begins elsewhere, so that neighbouring threads read from different banks.
        int k = (i + j) % long_;
        float sum = 0;
        for (int n = 0; n < long_; ++n) {
          sum += x[i * short_stride_ + k * long_stride_] * x[j * short_stride_ + k * long_stride_];
          if (++k == long_) k = 0;
        }
        gram[at] = sum;
      });
      // The Gram matrix is symmetric.
      block.ForEach(short_ * short_, [&](int64_t at) {
        const float* row = gram + at / short_ * short_;
        const float* column = gram + at % short_;
        float sum = 0;
        for (int k = 0; k < short_; ++k) sum += row[k] * column[k * short_];
        polynomial[at] = kLinear * gram[at] + kSquare * sum;
      });
      for (int first = 0; first < long_; first += at_once_) {
        const int count = long_ - first < at_once_ ? long_ - first : at_once_;
        // Number i of column j, neighbours in memory on neighbouring threads.
        const auto place = [&](int64_t at, int* i, int* j) {
          const int number = static_cast<int>(at);
          *i = long_stride_ == 1 ? number / count : number % short_;
          *j = long_stride_ == 1 ? number % count : number / short_;
          return *i * short_stride_ + (first + *j) * long_stride_;
        };
        block.ForEach(short_ * count, [&](int64_t at) {
          int i = 0;
          int j = 0;
          const int to = place(at, &i, &j);
          const float* column = x + (first + j) * long_stride_;
          float sum = 0;
          for (int k = 0; k < short_; ++k) {
            sum += polynomial[k * short_ + i] * column[k * short_stride_];
          }
          changed[at] = kSame * x[to] + sum;
        });
        block.ForEach(short_ * count, [&](int64_t at) {
          int i = 0;
          int j = 0;
          x[place(at, &i, &j)] = changed[at];
        });
      }
    }
  }

 private:
  // Numbers that change at once, and the least columns.
  static constexpr int kAtOnce = 4096;
  static constexpr int kLeastColumns = 32;

  // The matrix with no more rows than columns: its rows, its columns, and how far neighbours along
  // each are from one another.
  int short_;
  int long_;
  int short_stride_;
  int long_stride_;
  int at_once_;
};

}  // namespace lopt
