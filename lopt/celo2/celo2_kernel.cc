#include "lopt/lopt/celo2/celo2_kernel.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/celo2/celo2_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/celo2/celo2_features-inl.h"
#include "lopt/lopt/celo2/celo2_matrix.h"
#include "lopt/lopt/celo2/celo2_rule.h"
#include "lopt/lopt/celo2/newton_schulz-inl.h"
#include "lopt/lopt/network/factored-inl.h"
#include "lopt/lopt/network/mean_squares_device.h"

#ifndef LOPT_CELO2_KERNEL_ONCE
#define LOPT_CELO2_KERNEL_ONCE
namespace lopt {

// What one call works on, and the memory it may use.
struct Celo2Task {
  const Celo2Weights* network;
  const Celo2Tensor* tensor;
  bool orthogonal;
  float learning_rate;
  float weight_decay;
  const float* gradient;
  float* params;
  const Celo2State* state;
  Workspace* scratch;
};

// The second moment by rows or by columns, each decay by itself, with what is made of it.
struct Celo2Moment {
  const float* values[Celo2Base::kMomenta];
  float* roots[Celo2Base::kMomenta];    // 1 / sqrt(values + 1e-8)
  float* factors[Celo2Base::kMomenta];  // of FastFactoredRsqrt
  int64_t size;
};

// Where the numbers of a second moment are that belong to one matrix: from `first` on, one for each
// column (across) or one for all, and each row's `row_stride` further.
struct Celo2Side {
  int64_t first;
  int64_t row_stride;
  bool across;
  // How many numbers these are: neighbours.
  int64_t Count(int64_t rows, int64_t columns) const {
    return (row_stride == 0 ? 1 : rows) * (across ? columns : 1);
  }
};

}  // namespace lopt
#endif  // LOPT_CELO2_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

constexpr int kParameter = 2;  // the number of the feature p

// What a feature is multiplied by, from its mean square.
HWY_INLINE float NormalizingScale(float mean_square) {
  return 1.0f / std::sqrt(Celo2Base::kNormalizerEpsilon + mean_square);
}

// The same of numbers the sum of whose squares is more than float32 holds.
HWY_NOINLINE float WideScale(const float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double{x[i]} * double{x[i]};
  return InverseRootMeanSquare(Celo2Base::kNormalizerEpsilon, sum, count);
}

HWY_INLINE float NormalizingScale(const float* x, int64_t count) {
  return NormalizingScale(SumOfSquares(x, count) / static_cast<float>(count));
}

// Multiplies the matrix' factors by those of a second moment, and adds to its biases what features
// the moment has, values and roots; `weights` are theirs, [6, 8].
void AddSide(const Celo2Moment& moment, const Celo2Side& side, const float* HWY_RESTRICT weights,
             const Celo2Matrix& x) {
  HWY_ALIGN float scaled[Celo2Weights::kSide * kUnits];
  const int64_t count = side.Count(x.rows, x.columns);
  const float* features[Celo2Weights::kSide];
  for (int k = 0; k < Celo2Weights::kSide; ++k) {
    features[k] = (k < kDecays ? moment.values[k] : moment.roots[k - kDecays]) + side.first;
    const float scale = NormalizingScale(features[k], count);
    for (int j = 0; j < kUnits; ++j) scaled[k * kUnits + j] = scale * weights[k * kUnits + j];
  }
  // `size` neighbours from `at` on, of which the moment has one for all if `same`.
  const auto add = [&](int64_t from, bool same, int64_t at, int64_t size, float* const* factors,
                       float* bias, int64_t bias_size) HWY_ATTR {
    ForVectors(size, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const auto load = [&](const float* values) HWY_ATTR {
        return same ? hn::Set(d, values[from]) : LoadSome<kWhole>(values + from + i, n);
      };
      HWY_UNROLL(3)
      for (int k = 0; k < kDecays; ++k) {
        float* factor = factors[k] + at + i;
        hn::StoreU(hn::Mul(hn::LoadU(d, factor), load(moment.factors[k] + side.first)), d, factor);
      }
      V feature[Celo2Weights::kSide];
      HWY_UNROLL(6)
      for (int k = 0; k < Celo2Weights::kSide; ++k) feature[k] = load(features[k]);
      for (int j = 0; j < kUnits; ++j) {
        float* sum = bias + j * bias_size + at + i;
        V total = hn::LoadU(d, sum);
        HWY_UNROLL(6)
        for (int k = 0; k < Celo2Weights::kSide; ++k) {
          total = hn::MulAdd(hn::Set(d, scaled[k * kUnits + j]), feature[k], total);
        }
        hn::StoreU(total, d, sum);
      }
    });
  };
  if (side.across) {
    const int64_t lines = x.across_stride == 0 ? 1 : x.rows;
    for (int64_t line = 0; line < lines; ++line) {
      add(line * side.row_stride, false, line * x.across_stride, x.columns, x.across_factors,
          x.across_bias, x.across_size);
    }
  } else {
    add(0, side.row_stride == 0, 0, x.rows, x.down_factors, x.down_bias, x.down_size);
  }
}

// The places of the moments of the matrix that begins at an element.
void FindSides(const Celo2Tensor& tensor, int64_t first, Celo2Side* row, Celo2Side* col) {
  const FactoredRuns run(*tensor.factored, first);
  *row = {run.row(), 0, run.row_moves()};
  *col = {run.col(), 0, run.col_moves()};
  if (tensor.rows == 1) return;
  const FactoredRuns next(*tensor.factored, first + tensor.columns);
  row->row_stride = next.row() - row->first;
  col->row_stride = next.col() - col->first;
}

// What the parameters of a matrix have in common, from the moments of its tensor.
void PrepareSides(const Celo2Task& task, const Celo2Moment& row, const Celo2Moment& col,
                  int64_t first, Celo2Matrix* x) {
  Celo2Side row_side;
  Celo2Side col_side;
  FindSides(*task.tensor, first, &row_side, &col_side);
  const int64_t padded = x->vectors * kLanes;
  const bool each_row =
      (row_side.across && row_side.row_stride > 0) || (col_side.across && col_side.row_stride > 0);
  x->across_stride = each_row ? padded : 0;
  x->across_size = each_row ? x->rows * padded : padded;
  x->down_size = PaddedToLanes(x->rows);
  const auto take = [&](int64_t size, float value) {
    const std::span<float> taken = task.scratch->Take<float>(size);
    std::ranges::fill(taken, value);
    return taken.data();
  };
  for (int k = 0; k < kDecays; ++k) {
    x->across_factors[k] = take(x->across_size, 1.0f);
    x->down_factors[k] = take(x->down_size, 1.0f);
  }
  x->across_bias = take(kUnits * x->across_size, 0.0f);
  x->down_bias = take(kUnits * x->down_size, 0.0f);
  for (int j = 0; j < kUnits; ++j) {
    std::fill_n(x->down_bias + j * x->down_size, x->down_size, task.network->bias0[j]);
  }
  AddSide(row, row_side, task.network->row, *x);
  AddSide(col, col_side, task.network->col, *x);
}

// p <- p - learning_rate (scale direction + weight_decay p).
void StepParams(const Celo2Task& task, const Celo2Matrix& x, const float* HWY_RESTRICT directions) {
  const int64_t padded = x.vectors * kLanes;
  const float mean =
      SumOfSquares(directions, x.rows * padded) / static_cast<float>(x.rows * x.columns);
  const V scale = hn::Set(d, NormalizingScale(mean));
  const V rate = hn::Set(d, task.learning_rate);
  const V decay = hn::Set(d, task.weight_decay);
  for (int64_t row = 0; row < x.rows; ++row) {
    float* p = x.p + row * x.columns;
    const float* direction = directions + row * padded;
    ForVectors(x.columns, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const V param = LoadSome<kWhole>(p + i, n);
      const V step = hn::Mul(hn::LoadU(d, direction + i), scale);
      StoreSome<kWhole>(hn::NegMulAdd(rate, hn::MulAdd(decay, param, step), param), p + i, n);
    });
  }
}

template <bool kFactored>
void StepMatrix(const Celo2Task& task, const Celo2Moment& row, const Celo2Moment& col,
                int64_t first, const float* gradient) {
  constexpr int kFeatures = kFactored ? kCelo2Elementwise : Celo2Base::kFewFeatures;
  const Workspace::Frame frame(*task.scratch);
  const Celo2Tensor& tensor = *task.tensor;
  Celo2Matrix x = {};
  x.rows = tensor.rows;
  x.columns = tensor.columns;
  x.vectors = PaddedToLanes(tensor.columns) / kLanes;
  x.readable = tensor.size() - first;
  x.g = gradient + first;
  x.p = task.params + first;
  x.r = task.state->r.data() + first;
  x.q = task.scratch->Take<float>(x.rows * x.columns + kLanes).data();
  for (int k = 0; k < kDecays; ++k) {
    x.m[k] = task.state->m[k].data() + first;
    if constexpr (!kFactored) x.v[k] = task.state->row[k].data() + first;
  }
  if constexpr (kFactored) PrepareSides(task, row, col, first, &x);
  float sums[kCelo2Elementwise];
  UpdateMoments<kFactored>(x, sums);
  HWY_ALIGN float weights[kCelo2Elementwise * kUnits];
  const auto elements = static_cast<float>(x.rows * x.columns);
  for (int k = 0; k < kFeatures; ++k) {
    // Only the parameters can be so large that their squares are infinite.
    const float scale = k == kParameter && sums[k] > FLT_MAX ? WideScale(x.p, x.rows * x.columns)
                                                             : NormalizingScale(sums[k] / elements);
    for (int j = 0; j < kUnits; ++j) {
      weights[k * kUnits + j] = scale * task.network->elementwise[k * kUnits + j];
    }
  }
  x.weights = weights;
  float* directions = task.scratch->Take<float>(x.rows * x.vectors * kLanes).data();
  Directions<kFactored>(*task.network, x, directions);
  if (kFactored && task.orthogonal) {
    directions = Orthogonal(x.rows, x.columns, directions, *task.scratch);
  }
  StepParams(task, x, directions);
}

// Updates the second moments of a tensor and makes of them what its matrices need.
void UpdateMoment(const Celo2Task& task, std::span<const float> mean_squares,
                  const std::span<float> (&values)[kDecays], Celo2Moment* moment) {
  moment->size = std::ssize(mean_squares);
  for (int k = 0; k < kDecays; ++k) {
    FastDecayAverage(Celo2Base::kDecays[k], mean_squares, values[k]);
    moment->values[k] = values[k].data();
    moment->factors[k] = task.scratch->Take<float>(moment->size).data();
    float* roots = task.scratch->Take<float>(moment->size).data();
    moment->roots[k] = roots;
    ForVectors(moment->size, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
      const V value = LoadSome<kWhole>(values[k].data() + i, n);
      const V root = InverseRoot(hn::Add(value, hn::Set(d, Celo2Base::kRsqrtEpsilon)));
      StoreSome<kWhole>(root, roots + i, n);
    });
  }
}

void Step(const Celo2Task& task) {
  const Workspace::Frame frame(*task.scratch);
  const Celo2Tensor& tensor = *task.tensor;
  const int64_t size = tensor.size();
  const std::span<float> gradient = task.scratch->Take<float>(size);
  ClipTo(task.gradient, size, Celo2Base::kGradientClip, gradient.data());
  Celo2Moment row = {};
  Celo2Moment col = {};
  if (!tensor.factored) {
    StepMatrix<false>(task, row, col, 0, gradient.data());
    return;
  }
  const FactoredShape& shape = *tensor.factored;
  const std::span<float> row_squares = task.scratch->Take<float>(shape.row_size());
  const std::span<float> col_squares = task.scratch->Take<float>(shape.col_size());
  FastMeanSquares(shape, gradient, row_squares, col_squares);
  UpdateMoment(task, row_squares, task.state->row, &row);
  UpdateMoment(task, col_squares, task.state->col, &col);
  for (int k = 0; k < kDecays; ++k) {
    FastFactoredRsqrt(shape, task.state->row[k], task.state->col[k],
                      {row.factors[k], row_squares.size()}, {col.factors[k], col_squares.size()});
  }
  const int64_t matrix = tensor.rows * tensor.columns;
  for (int64_t n = 0; n < tensor.matrices; ++n) {
    StepMatrix<true>(task, row, col, n * matrix, gradient.data());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(Step);

class Celo2Kernel : public Celo2Rule {
 public:
  Celo2Kernel(const Celo2Options& options, bool orthogonal, const Layout& params,
              std::span<const float> theta)
      : Celo2Rule(options, params), network_(theta), orthogonal_(orthogonal) {}

 private:
  void StepLearned(const Celo2Tensor& tensor, float learning_rate, float weight_decay,
                   std::span<const float> gradient, std::span<float> params, std::span<float> state,
                   Workspace& scratch) const override {
    const Celo2State parts(tensor, state);
    LOPT_DISPATCH(Step)
    ({.network = &network_,
      .tensor = &tensor,
      .orthogonal = orthogonal_,
      .learning_rate = learning_rate,
      .weight_decay = weight_decay,
      .gradient = gradient.data(),
      .params = params.data(),
      .state = &parts,
      .scratch = &scratch});
  }

  Celo2Weights network_;
  bool orthogonal_;
};

}  // namespace

Celo2Weights::Celo2Weights(std::span<const float> theta) {
  // Theta has row, col, their roots, and m F behind the features of all tensors.
  constexpr int64_t kDecayRows = int64_t{Celo2Base::kMomenta} * kHidden;
  const float* next = theta.data();
  const auto read = [&](int64_t count, float* to) {
    std::copy_n(next, count, to);
    next += count;
  };
  read(Celo2Base::kFewFeatures * kHidden, elementwise);
  read(kDecayRows, row);
  read(kDecayRows, col);
  read(kDecayRows, row + kDecayRows);
  read(kDecayRows, col + kDecayRows);
  read(kDecayRows, elementwise + Celo2Base::kFewFeatures * kHidden);
  read(kHidden, bias0);
  read(std::ssize(weights1), weights1);
  read(kHidden, bias1);
  for (int j = 0; j < kHidden; ++j) weights2[j] = next[j * Celo2Base::kOutputs];
  bias2 = next[int64_t{kHidden} * Celo2Base::kOutputs];
}

std::unique_ptr<UpdateRule> MakeCelo2Kernel(const Celo2Options& options, bool orthogonal,
                                            const Layout& params, std::span<const float> theta) {
  return std::make_unique<Celo2Kernel>(options, orthogonal, params, theta);
}

}  // namespace lopt
#endif  // HWY_ONCE
