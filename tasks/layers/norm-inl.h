// Per-target header of Highway kernels, as base/vector_math-inl.h: the norms of a layer's units
// (image_mlp_problem.h), forward and backward.
#if defined(LOPT_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOPT_NORM_INL_H_
#undef LOPT_NORM_INL_H_
#else
#define LOPT_NORM_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lopt/tasks/image/image_mlp_problem.h"
#include "lopt/tasks/layers/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// What a norm keeps for the way back.
struct NormArrays {
  PanelMatrix normalized;
  float* inverse;  // 1 / sqrt(variance + epsilon) of rows (layer) or columns (batch)
};

// Calls body(panel, offset of a vector in a row of it, its first column, mask of those that exist).
template <class Body>
HWY_INLINE void ForVectors(int64_t columns, const Body& body) {
  for (int64_t column = 0; column < columns; column += kLanes) {
    const auto valid = static_cast<size_t>(std::min(kLanes, columns - column));
    body(column / kWidth, column % kWidth, column, hn::FirstN(d, valid));
  }
}

// The numbers of a row that begin at a column, 0 where there are none.
HWY_INLINE V LoadPart(const float* row, int64_t column, int64_t columns) {
  if (column + kLanes <= columns) return hn::LoadU(d, row + column);
  HWY_ALIGN float part[kLanes] = {};
  std::copy_n(row + column, columns - column, part);
  return hn::Load(d, part);
}

HWY_INLINE void AddPart(V x, bool add, int64_t column, int64_t columns, float* row) {
  HWY_ALIGN float part[kLanes];
  hn::Store(x, d, part);
  for (int64_t i = 0; i < std::min(kLanes, columns - column); ++i) {
    row[column + i] = (add ? row[column + i] : 0.0f) + part[i];
  }
}

HWY_INLINE float InverseDeviation(float variance) {
  return 1 / std::sqrt(variance + static_cast<float>(kNormEpsilon));
}

// `x` becomes x scale + offset of its normalized values.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LayerNorm(int64_t rows, int64_t columns,
                                                    const float* scale, PanelMatrix x,
                                                    const NormArrays& arrays) {
  const float share = 1 / static_cast<float>(columns);
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = [&](PanelMatrix matrix, int64_t p, int64_t offset) {
      return matrix.Panel(p) + row * kWidth + offset;
    };
    V sum = hn::Zero(d);
    ForVectors(columns, [&](int64_t p, int64_t offset, int64_t, auto valid) HWY_ATTR {
      sum = hn::Add(sum, hn::IfThenElseZero(valid, hn::Load(d, at(x, p, offset))));
    });
    const V mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)) * share);
    sum = hn::Zero(d);
    ForVectors(columns, [&](int64_t p, int64_t offset, int64_t, auto valid) HWY_ATTR {
      const V distance = hn::IfThenElseZero(valid, hn::Sub(hn::Load(d, at(x, p, offset)), mean));
      hn::Store(distance, d, at(arrays.normalized, p, offset));
      sum = hn::MulAdd(distance, distance, sum);
    });
    arrays.inverse[row] = InverseDeviation(hn::GetLane(hn::SumOfLanes(d, sum)) * share);
    const V inverse = hn::Set(d, arrays.inverse[row]);
    ForVectors(columns, [&](int64_t p, int64_t offset, int64_t column, auto) HWY_ATTR {
      float* normalized = at(arrays.normalized, p, offset);
      const V value = hn::Mul(hn::Load(d, normalized), inverse);
      hn::Store(value, d, normalized);
      hn::Store(hn::MulAdd(value, LoadPart(scale, column, columns),
                           LoadPart(scale + columns, column, columns)),
                d, at(x, p, offset));
    });
  }
}

// The same over rows [0, count); rows up to `rows` come along. The running statistics are moved in
// training and taken else.
HWY_MAYBE_UNUSED static HWY_NOINLINE void BatchNorm(int64_t rows, int64_t count, int64_t columns,
                                                    const float* scale, float* statistics,
                                                    bool train, PanelMatrix x,
                                                    const NormArrays& arrays) {
  const V share = hn::Set(d, 1 / static_cast<float>(count));
  const V unbiased =
      hn::Set(d, static_cast<float>(count) / static_cast<float>(std::max<int64_t>(count - 1, 1)));
  const V momentum = hn::Set(d, static_cast<float>(kNormMomentum));
  ForVectors(columns, [&](int64_t p, int64_t offset, int64_t column, auto) HWY_ATTR {
    float* from = x.Panel(p) + offset;
    float* to = arrays.normalized.Panel(p) + offset;
    V mean = LoadPart(statistics, column, columns);
    V variance = LoadPart(statistics + columns, column, columns);
    if (train) {
      const V old_mean = mean;
      const V old_variance = variance;
      mean = variance = hn::Zero(d);
      for (int64_t row = 0; row < count; ++row) {
        mean = hn::Add(mean, hn::Load(d, from + row * kWidth));
      }
      mean = hn::Mul(mean, share);
      for (int64_t row = 0; row < count; ++row) {
        const V distance = hn::Sub(hn::Load(d, from + row * kWidth), mean);
        variance = hn::MulAdd(distance, distance, variance);
      }
      variance = hn::Mul(variance, share);
      AddPart(hn::Mul(momentum, hn::Sub(mean, old_mean)), true, column, columns, statistics);
      AddPart(hn::Mul(momentum, hn::Sub(hn::Mul(variance, unbiased), old_variance)), true, column,
              columns, statistics + columns);
    }
    const V inverse =
        hn::Div(hn::Set(d, 1.0f),
                hn::Sqrt(hn::Add(variance, hn::Set(d, static_cast<float>(kNormEpsilon)))));
    hn::StoreU(inverse, d, arrays.inverse + column);
    const V factor = LoadPart(scale, column, columns);
    const V added = LoadPart(scale + columns, column, columns);
    for (int64_t row = 0; row < rows; ++row) {
      const V value = hn::Mul(hn::Sub(hn::Load(d, from + row * kWidth), mean), inverse);
      hn::Store(value, d, to + row * kWidth);
      hn::Store(hn::MulAdd(value, factor, added), d, from + row * kWidth);
    }
  });
}

// The gradients of scale and offset [columns] each, from that of a norm's results.
HWY_MAYBE_UNUSED static HWY_NOINLINE void NormParamGradient(int64_t count, int64_t columns,
                                                            const NormArrays& arrays,
                                                            PanelMatrix gradient, bool add,
                                                            float* scale) {
  ForVectors(columns, [&](int64_t p, int64_t offset, int64_t column, auto) HWY_ATTR {
    const float* normalized = arrays.normalized.Panel(p) + offset;
    const float* from = gradient.Panel(p) + offset;
    V sum = hn::Zero(d);
    V product = hn::Zero(d);
    for (int64_t row = 0; row < count; ++row) {
      const V x = hn::Load(d, from + row * kWidth);
      sum = hn::Add(sum, x);
      product = hn::MulAdd(x, hn::Load(d, normalized + row * kWidth), product);
    }
    AddPart(product, add, column, columns, scale);
    AddPart(sum, add, column, columns, scale + columns);
  });
}

// The gradient of a norm's results becomes that of what it is given.
HWY_MAYBE_UNUSED static HWY_NOINLINE void LayerNormBackward(int64_t rows, int64_t columns,
                                                            const float* scale,
                                                            const NormArrays& arrays,
                                                            PanelMatrix gradient) {
  const float share = 1 / static_cast<float>(columns);
  for (int64_t row = 0; row < rows; ++row) {
    const auto at = [&](PanelMatrix matrix, int64_t p, int64_t offset) {
      return matrix.Panel(p) + row * kWidth + offset;
    };
    V sum = hn::Zero(d);
    V product = hn::Zero(d);
    ForVectors(columns, [&](int64_t p, int64_t offset, int64_t column, auto valid) HWY_ATTR {
      float* to = at(gradient, p, offset);
      const V x =
          hn::IfThenElseZero(valid, hn::Mul(hn::Load(d, to), LoadPart(scale, column, columns)));
      hn::Store(x, d, to);
      sum = hn::Add(sum, x);
      product = hn::MulAdd(x, hn::Load(d, at(arrays.normalized, p, offset)), product);
    });
    const V mean = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sum)) * share);
    const V along = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, product)) * share);
    const V inverse = hn::Set(d, arrays.inverse[row]);
    ForVectors(columns, [&](int64_t p, int64_t offset, int64_t, auto) HWY_ATTR {
      float* to = at(gradient, p, offset);
      const V rest = hn::NegMulAdd(hn::Load(d, at(arrays.normalized, p, offset)), along,
                                   hn::Sub(hn::Load(d, to), mean));
      hn::Store(hn::Mul(rest, inverse), d, to);
    });
  }
}

HWY_MAYBE_UNUSED static HWY_NOINLINE void BatchNormBackward(int64_t rows, int64_t count,
                                                            int64_t columns, const float* scale,
                                                            bool train, const NormArrays& arrays,
                                                            PanelMatrix gradient) {
  const V share = hn::Set(d, 1 / static_cast<float>(count));
  ForVectors(columns, [&](int64_t p, int64_t offset, int64_t column, auto) HWY_ATTR {
    const float* normalized = arrays.normalized.Panel(p) + offset;
    float* to = gradient.Panel(p) + offset;
    V mean = hn::Zero(d);
    V along = hn::Zero(d);
    for (int64_t row = 0; row < count && train; ++row) {
      const V x = hn::Load(d, to + row * kWidth);
      mean = hn::Add(mean, x);
      along = hn::MulAdd(x, hn::Load(d, normalized + row * kWidth), along);
    }
    mean = hn::Mul(mean, share);
    along = hn::Mul(along, share);
    const V factor =
        hn::Mul(LoadPart(scale, column, columns), hn::LoadU(d, arrays.inverse + column));
    for (int64_t row = 0; row < rows; ++row) {
      const V rest = hn::NegMulAdd(hn::Load(d, normalized + row * kWidth), along,
                                   hn::Sub(hn::Load(d, to + row * kWidth), mean));
      hn::Store(hn::Mul(rest, factor), d, to + row * kWidth);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#endif  // LOPT_NORM_INL_H_
