#pragma once

#include <cstdint>
#include <span>

#include "lopt/lopt/celo2/celo2.h"

namespace lopt {

// Features of Celo2's network that differ within rows and columns of a matrix; the other twelve of
// its thirty are the same along a row or along a column.
constexpr int kCelo2Elementwise = 18;

// The weights of Celo2's network as the kernel reads them.
struct Celo2Weights {
  explicit Celo2Weights(std::span<const float> theta);

  static constexpr int kHidden = Celo2Base::kHidden;
  static constexpr int kSide = 2 * Celo2Base::kMomenta;  // features of a row, and of a column
  // [features, 8] of the first layer: of the elementwise ones, of a second moment by rows and its
  // inverse root, and of the one by columns.
  float elementwise[kCelo2Elementwise * kHidden];
  float row[kSide * kHidden];
  float col[kSide * kHidden];
  float bias0[kHidden];
  float weights1[kHidden * kHidden];
  float bias1[kHidden];
  float weights2[kHidden];  // of the first output
  float bias2;
};

// One matrix of a tensor under an update: where it is, and what its parameters have in common by
// rows ("across", a number for every column) and by columns ("down", a number for every row). Rows
// of across are padded by zeros to whole vectors; there is one for all rows of the matrix
// (across_stride 0) or one for each.
struct Celo2Matrix {
  int64_t rows;
  int64_t columns;
  int64_t vectors;   // of a row
  int64_t readable;  // elements from the first of the matrix to the last of the tensor
  const float* g;
  float* p;
  float* m[Celo2Base::kMomenta];
  float* r;
  float* q;                       // 1 / sqrt(r + 1e-8), written beside r
  float* v[Celo2Base::kMomenta];  // of a tensor of less than two dimensions
  // Of the others: the factor of an element is the product of across and down, its part of the
  // first layer's bias their sum.
  float* across_factors[Celo2Base::kMomenta];
  float* down_factors[Celo2Base::kMomenta];
  float* across_bias;  // [8, across_size]
  float* down_bias;    // [8, down_size]
  int64_t across_stride;
  int64_t across_size;
  int64_t down_size;
  float* weights;  // [18, 8], of the elementwise features, times their scales
};

}  // namespace lopt
