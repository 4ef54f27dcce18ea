#include "lopt/lopt/adafac/adafac_mlp_lopt_kernel.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/adafac/adafac_mlp_lopt_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/parallel.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/mlp/mlp_features-inl.h"
#include "lopt/lopt/network/factored-inl.h"
#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/network/network_columns-inl.h"
#include "lopt/lopt/network/packed_network.h"

#ifndef LOPT_ADAFAC_MLP_LOPT_KERNEL_ONCE
#define LOPT_ADAFAC_MLP_LOPT_KERNEL_ONCE
namespace lopt {

// What one call works on, and the memory it may use.
struct AdafacTask {
  const NetworkWeights* network;
  const AdafacFeatures* at;
  const AdafacDecays* decays;
  std::span<const AdafacTensor> tensors;
  float exp_mult;
  float step_mult;
  float step;
  const float* gradient;
  float* params;
  float* state;
  Workspace* workspace;
  WorkspacePool* workspaces;  // for other threads
};

// Parameters whose features are formed before the network runs on them.
constexpr int64_t kAdafacTile = 96;
// The features of tensors of so many parameters are kept from the second pass for the third.
constexpr int64_t kAdafacKept = 4096;
// From one row of numbers about a tile to the next: whole vectors may be written behind the tile.
constexpr int64_t kAdafacRow = kAdafacTile + 16;

// Parameters of a tensor whose squares are summed in float32, in lanes, and that one thread
// updates.
constexpr int64_t kAdafacPiece = 1 << 16;

// Rows of numbers about a tensor's rows (or columns), each followed by a vector of zeros.
struct AdafacAxis {
  int64_t size;
  int64_t stride;
  float* moments;  // [F, stride]
  float* rsqrt;    // [F, stride]: rsqrt(moments + 1e-8)
  float* factors;  // [F, stride]
  float* biases;   // [units, stride]: what the first layer gets from moments and rsqrt
};

// A tensor during an update.
struct AdafacUpdate {
  const AdafacTensor* tensor;
  const float* g;
  float* p;
  float* m;
  float* rms;
  float* v;        // of a tensor of fewer than two axes
  AdafacAxis row;  // of one of two axes or more
  AdafacAxis col;
  int64_t dense;  // features that the network reads parameter by parameter
  bool kept() const { return tensor->size <= kAdafacKept; }
};

}  // namespace lopt
#endif  // LOPT_ADAFAC_MLP_LOPT_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

static_assert(kAdafacTile % kGroup == 0 && kAdafacTile <= kStretch);

// Hidden units that the tiles of the network touch.
HWY_INLINE int64_t TouchedUnits(const NetworkWeights& net) { return (net.hidden + 3) / 4 * 4; }

// The features of a tile of parameters, the rows of which are kAdafacRow apart, for StretchOutputs.
struct AdafacColumns {
  template <int kJ, int kV>
  HWY_INLINE void AddTo(const float* HWY_RESTRICT weights, int64_t stride,
                        V (&tile)[kJ][kV]) const {
    if (biases != nullptr) {
      const float* HWY_RESTRICT bias = biases + (weights - input) * kAdafacRow;
      HWY_UNROLL(8)
      for (int j = 0; j < kJ; ++j) {
        for (int v = 0; v < kV; ++v) {
          tile[j][v] = hn::Add(tile[j][v], hn::Load(d, bias + j * kAdafacRow + v * kLanes));
        }
      }
    }
    const float* HWY_RESTRICT x = features;
    HWY_UNROLL(1)
    for (int64_t k = 0; k < count; ++k) {
      V feature[kV];
      for (int v = 0; v < kV; ++v) feature[v] = hn::Load(d, x + v * kLanes);
      AddToTile(feature, weights, tile);
      x += kAdafacRow;
      weights += stride;
    }
  }

  const float* features;
  int64_t count;
  const float* biases;  // of the hidden units; may be null
  const float* input;   // the weights of the first
};

// Memory for one thread, with the features of so many tiles.
struct AdafacScratch {
  AdafacScratch(const AdafacTask& task, int64_t tiles, Workspace& workspace)
      : network(*task.network, workspace),
        features(workspace.Take<float>(tiles * task.at->count * kAdafacRow).data()),
        factors(workspace.Take<float>(task.at->f * kAdafacRow).data()),
        biases(workspace.Take<float>(TouchedUnits(*task.network) * kAdafacRow).data()) {}

  NetworkScratch network;
  float* features;
  float* factors;
  float* biases;
};

// to[i] = op(row, col) for a run of `count` parameters, in whole vectors.
template <bool kRowMoves, bool kColMoves, class Op>
HWY_INLINE void CombineRun(const float* HWY_RESTRICT row, const float* HWY_RESTRICT col,
                           int64_t count, float* HWY_RESTRICT to, const Op& op) {
  const V fixed = hn::Set(d, kRowMoves ? *col : *row);
  for (int64_t i = 0; i < count; i += kLanes) {
    const V of_row = kRowMoves ? hn::LoadU(d, row + i) : fixed;
    const V of_col = kColMoves ? hn::LoadU(d, col + i) : fixed;
    hn::StoreU(op(of_row, of_col), d, to + i);
  }
}

// What rows and columns give to a tile of `count` parameters: `factors` factors, and the biases of
// the first layer for `units` hidden units.
template <bool kRowMoves, bool kColMoves>
HWY_INLINE void SpreadRunsThatMove(const AdafacUpdate& u, int64_t count, int64_t factors,
                                   int64_t units, FactoredRuns& runs,
                                   const AdafacScratch& scratch) {
  const auto multiply = [](V a, V b) HWY_ATTR { return hn::Mul(a, b); };
  const auto add = [](V a, V b) HWY_ATTR { return hn::Add(a, b); };
  for (int64_t at = 0; at < count;) {
    const int64_t n = std::min(runs.size(), count - at);
    const auto spread = [&](const float* row, const float* col, int64_t rows, float* to,
                            const auto& op) HWY_ATTR {
      row += runs.row();
      col += runs.col();
      to += at;
      HWY_UNROLL(1)
      for (; rows > 0; --rows, row += u.row.stride, col += u.col.stride, to += kAdafacRow) {
        CombineRun<kRowMoves, kColMoves>(row, col, n, to, op);
      }
    };
    spread(u.row.factors, u.col.factors, factors, scratch.factors, multiply);
    spread(u.row.biases, u.col.biases, units, scratch.biases, add);
    runs.Advance(n);
    at += n;
  }
}

HWY_INLINE void SpreadRuns(const AdafacUpdate& u, int64_t count, int64_t factors, int64_t units,
                           FactoredRuns& runs, const AdafacScratch& scratch) {
  if (!runs.row_moves()) {
    SpreadRunsThatMove<false, true>(u, count, factors, units, runs, scratch);
  } else if (!runs.col_moves()) {
    SpreadRunsThatMove<true, false>(u, count, factors, units, runs, scratch);
  } else {
    SpreadRunsThatMove<true, true>(u, count, factors, units, runs, scratch);
  }
}

// decay average + (1 - decay) x.
HWY_INLINE V Decayed(float decay, V average, V x) {
  return hn::MulAdd(hn::Set(d, decay), average, hn::Mul(hn::Set(d, 1.0f - decay), x));
}

// The features of the parameters [first, first + count), count <= kLanes, at `at` of a tile, from
// the state that is updated before if kUpdate. Lanes behind `count` are 0.
template <bool kUpdate, bool kFactored, bool kWhole>
HWY_INLINE void FormFeatures(const AdafacTask& task, const AdafacUpdate& u, int64_t first,
                             int64_t count, const float* HWY_RESTRICT factors,
                             float* HWY_RESTRICT features) {
  const AdafacFeatures& at = *task.at;
  const int64_t size = u.tensor->size;
  const auto put = [&](int64_t feature, V x) HWY_ATTR {
    if (!kWhole) x = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), x);
    hn::Store(x, d, features + feature * kAdafacRow);
  };
  const V g = LoadSome<kWhole>(u.g + first, count);
  put(0, g);
  put(1, LoadSome<kWhole>(u.p + first, count));
  const V square = Bounded(hn::Mul(g, g));
  for (int64_t k = 0; k < at.r; ++k) {
    float* place = u.rms + k * size + first;
    V rms = LoadSome<kWhole>(place, count);
    if (kUpdate) {
      rms = Decayed(task.decays->rms[k], rms, square);
      StoreSome<kWhole>(rms, place, count);
    }
    put(at.at_r + k, rms);
    put(at.at_q + k, InverseRoot(hn::Add(rms, hn::Set(d, AdafacMLPLOpt::kRmsEpsilon))));
  }
  const int64_t after = kFactored ? at.at_row : at.at_fac_m;
  for (int64_t k = 0; k < at.m; ++k) {
    float* place = u.m + k * size + first;
    V m = LoadSome<kWhole>(place, count);
    if (kUpdate) {
      m = Decayed(task.decays->momentum[k], m, g);
      StoreSome<kWhole>(m, place, count);
    }
    put(at.at_m + k, m);
    const V q = hn::Load(d, features + (at.at_q + (at.r == 1 ? 0 : k)) * kAdafacRow);
    put(at.at_mq + k, hn::Mul(m, q));
    V of_g;
    V of_m;
    if (kFactored) {
      of_g = of_m = hn::Load(d, factors + k * kAdafacRow);
    } else {
      float* v_place = u.v + k * size + first;
      V v = LoadSome<kWhole>(v_place, count);
      if (kUpdate) {
        v = Decayed(task.decays->adafactor[k], v,
                    hn::Add(square, hn::Set(d, kFactoredSquareFloor)));
        StoreSome<kWhole>(v, v_place, count);
      }
      const V rsqrt = InverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kMomentEpsilon)));
      put(at.at_row + k, v);
      put(at.at_col + k, v);
      put(at.at_row_rsqrt + k, rsqrt);
      put(at.at_col_rsqrt + k, rsqrt);
      of_g = FlooredInverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kVectorEpsilon)));
      of_m = InverseRoot(hn::Add(v, hn::Set(d, AdafacMLPLOpt::kMomentumEpsilon)));
    }
    put(at.at_fac_g + k, hn::Mul(g, of_g));
    put(after + k, hn::Mul(m, of_m));
  }
}

// Calls visit(first, count, features) for the tiles of [first, end), each with its features.
template <bool kUpdate, bool kFactored, class Visit>
HWY_INLINE void ForAdafacTiles(const AdafacTask& task, const AdafacUpdate& u,
                               const AdafacScratch& scratch, int64_t first, int64_t end,
                               const Visit& visit) {
  const bool form = kUpdate || !u.kept();
  const int64_t units = kUpdate ? 0 : TouchedUnits(*task.network);
  std::optional<FactoredRuns> runs;
  if (kFactored) runs.emplace(*u.tensor->factored, first);
  float* features = scratch.features;
  for (; first < end; first += kAdafacTile) {
    const int64_t count = std::min(kAdafacTile, end - first);
    if (kFactored) SpreadRuns(u, count, form ? task.at->f : 0, units, *runs, scratch);
    if (form) {
      ForVectors(count, [&]<bool kWhole>(int64_t i, int64_t n) HWY_ATTR {
        FormFeatures<kUpdate, kFactored, kWhole>(task, u, first + i, n, scratch.factors + i,
                                                 features + i);
      });
    }
    visit(first, count, features);
    if (u.kept()) features += u.dense * kAdafacRow;
  }
}

// Updates the state of [first, end), if kUpdate, and sets sums[k] to the sum of squares of dense
// feature k; else of dense feature k times `factor`.
template <bool kUpdate, bool kFactored>
HWY_NOINLINE void AdafacSums(const AdafacTask& task, const AdafacUpdate& u,
                             const AdafacScratch& scratch, int64_t first, int64_t end, float factor,
                             float* HWY_RESTRICT lanes, float* HWY_RESTRICT sums) {
  std::fill_n(lanes, u.dense * kLanes, 0.0f);
  const auto add = [&](int64_t /*first*/, int64_t count, const float* features) HWY_ATTR {
    for (int64_t k = 0; k < u.dense; ++k) {
      const float* HWY_RESTRICT x = features + k * kAdafacRow;
      V sum = hn::Zero(d);
      for (int64_t i = 0; i < count; i += kLanes) {
        V feature = hn::Load(d, x + i);
        if constexpr (!kUpdate) feature = hn::Mul(hn::Set(d, factor), feature);
        sum = hn::MulAdd(feature, feature, sum);
      }
      float* total = lanes + k * kLanes;
      hn::Store(hn::Add(hn::Load(d, total), sum), d, total);
    }
  };
  ForAdafacTiles<kUpdate, kFactored>(task, u, scratch, first, end, add);
  for (int64_t k = 0; k < u.dense; ++k) {
    sums[k] = SumOfVector(hn::Load(d, lanes + k * kLanes));
  }
}

// Steps the parameters [first, end).
template <bool kFactored>
HWY_NOINLINE void AdafacSteps(const AdafacTask& task, const AdafacUpdate& u,
                              const AdafacScratch& scratch, int64_t first, int64_t end) {
  ForAdafacTiles<false, kFactored>(
      task, u, scratch, first, end,
      [&](int64_t start, int64_t count, const float* features) HWY_ATTR {
        const auto columns = [&]<int kV>(int64_t i) HWY_ATTR {
          return AdafacColumns{features + i, u.dense, kFactored ? scratch.biases + i : nullptr,
                               scratch.network.input};
        };
        float* outputs = scratch.network.outputs;
        StretchOutputs(*task.network, scratch.network, columns, count, outputs);
        StepParams(task.exp_mult, task.step_mult, outputs, count, u.p + start);
      });
}

// 1 / sqrt(1e-5 + mean square) of the `size` numbers at `x`.
HWY_INLINE float AdafacScale(const float* HWY_RESTRICT x, int64_t size) {
  V sum = hn::Zero(d);
  ForVectors(size, [&]<bool kWhole>(int64_t i, int64_t count) HWY_ATTR {
    const V part = LoadSome<kWhole>(x + i, count);
    sum = hn::MulAdd(part, part, sum);
  });
  double squares = double{SumOfVector(sum)};
  if (squares > double{FLT_MAX}) {
    squares = 0;
    for (int64_t i = 0; i < size; ++i) squares += double{x[i]} * double{x[i]};
  }
  return InverseRootMeanSquare(AdafacMLPLOpt::kNormalizerEpsilon, squares, size);
}

// biases[j] = the weights of unit j for the moments and their roots, each times its scale, times
// moments and roots.
void FormAdafacBiases(const AdafacTask& task, const AdafacAxis& axis, int64_t at_moments,
                      int64_t at_rsqrt) {
  const NetworkWeights& net = *task.network;
  const int64_t units = TouchedUnits(net);
  std::fill_n(axis.biases, units * axis.stride, 0.0f);
  const auto add = [&](const float* HWY_RESTRICT x, int64_t feature) HWY_ATTR {
    const float scale = AdafacScale(x, axis.size);
    for (int64_t j = 0; j < units; ++j) {
      const V weight = hn::Set(d, scale * net.input[feature * net.stride + j]);
      float* HWY_RESTRICT bias = axis.biases + j * axis.stride;
      for (int64_t i = 0; i < axis.size; i += kLanes) {
        hn::Store(hn::MulAdd(weight, hn::Load(d, x + i), hn::Load(d, bias + i)), d, bias + i);
      }
    }
  };
  for (int64_t k = 0; k < task.at->f; ++k) {
    add(axis.moments + k * axis.stride, at_moments + k);
    add(axis.rsqrt + k * axis.stride, at_rsqrt + k);
  }
}

AdafacAxis TakeAdafacAxis(const AdafacTask& task, int64_t size) {
  const int64_t stride = (size + kBlock - 1) / kBlock * kBlock + kBlock;
  const auto rows = [&](int64_t count) {
    const std::span<float> taken = task.workspace->Take<float>(count * stride);
    std::fill(taken.begin(), taken.end(), 0.0f);
    return taken.data();
  };
  const int64_t f = task.at->f;
  return {.size = size,
          .stride = stride,
          .moments = rows(f),
          .rsqrt = rows(f),
          .factors = rows(f),
          .biases = rows(TouchedUnits(*task.network))};
}

// Updates the factored moments and forms what follows from them for each row and column.
void UpdateAdafacMoments(const AdafacTask& task, AdafacUpdate& u) {
  const AdafacTensor& tensor = *u.tensor;
  const FactoredShape& shape = *tensor.factored;
  u.row = TakeAdafacAxis(task, shape.row_size());
  u.col = TakeAdafacAxis(task, shape.col_size());
  const auto span = [](const AdafacAxis& axis, float* from) {
    return std::span<float>(from, static_cast<size_t>(axis.size));
  };
  // The biases are free until the moments are known.
  const std::span<float> row_means = span(u.row, u.row.biases);
  const std::span<float> col_means = span(u.col, u.col.biases);
  FastMeanSquares(shape, {u.g, static_cast<size_t>(tensor.size)}, row_means, col_means);
  for (int64_t k = 0; k < task.at->f; ++k) {
    const std::span<float> v_row = span(u.row, task.state + tensor.v + k * u.row.size);
    const std::span<float> v_col = span(u.col, task.state + tensor.v_col + k * u.col.size);
    FastDecayAverage(task.decays->adafactor[k], row_means, v_row);
    FastDecayAverage(task.decays->adafactor[k], col_means, v_col);
    FastFactoredRsqrt(shape, v_row, v_col, span(u.row, u.row.factors + k * u.row.stride),
                      span(u.col, u.col.factors + k * u.col.stride));
    for (const auto& [axis, v] : {std::pair(&u.row, v_row), std::pair(&u.col, v_col)}) {
      float* HWY_RESTRICT moments = axis->moments + k * axis->stride;
      float* HWY_RESTRICT rsqrt = axis->rsqrt + k * axis->stride;
      std::copy(v.begin(), v.end(), moments);
      for (int64_t i = 0; i < axis->size; i += kLanes) {
        const V x = hn::Load(d, moments + i);
        hn::Store(InverseRoot(hn::Add(x, hn::Set(d, AdafacMLPLOpt::kMomentEpsilon))), d, rsqrt + i);
      }
    }
  }
  FormAdafacBiases(task, u.row, task.at->at_row, task.at->at_row_rsqrt);
  FormAdafacBiases(task, u.col, task.at->at_col, task.at->at_col_rsqrt);
}

template <bool kFactored>
void UpdateAdafacTensor(const AdafacTask& task, AdafacUpdate& u, const AdafacScratch& scratch) {
  const NetworkWeights& net = *task.network;
  const AdafacFeatures& at = *task.at;
  const int64_t size = u.tensor->size;
  if (kFactored) UpdateAdafacMoments(task, u);
  const int64_t pieces = (size + kAdafacPiece - 1) / kAdafacPiece;
  const auto end = [&](int64_t i) { return std::min(size, (i + 1) * kAdafacPiece); };
  const std::span<float> sums = task.workspace->Take<float>(pieces * u.dense);
  const auto in_pieces = [&](const auto& body) {
    if (pieces == 1) {
      body(0, scratch, *task.workspace);
      return;
    }
    ParallelFor(pieces, [&](int64_t i) {
      WorkspacePool::Lease workspace(*task.workspaces);
      const Workspace::Frame frame(*workspace);
      AdafacScratch own(task, 1, *workspace);
      own.network.bias = scratch.network.bias;
      own.network.input = scratch.network.input;
      body(i, own, *workspace);
    });
  };
  const auto form_sums = [&]<bool kUpdate>(float factor) {
    in_pieces([&](int64_t i, const AdafacScratch& own, Workspace& workspace) {
      const Workspace::Frame frame(workspace);
      float* lanes = workspace.Take<float>(u.dense * kBlock).data();
      AdafacSums<kUpdate, kFactored>(task, u, own, i * kAdafacPiece, end(i), factor, lanes,
                                     &sums[i * u.dense]);
    });
  };
  const auto add_pieces = [&](int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i < pieces; ++i) sum += sums[i * u.dense + k];
    return static_cast<float>(sum);
  };
  const auto is_infinite = [](double sum) { return sum > double{FLT_MAX}; };
  const std::span<double> squares = task.workspace->Take<double>(u.dense);
  form_sums.template operator()<true>(1);
  for (int64_t k = 0; k < u.dense; ++k) squares[k] = double{add_pieces(k)};
  if (std::ranges::any_of(squares, is_infinite)) {
    form_sums.template operator()<false>(kShrink);
    for (int64_t k = 0; k < u.dense; ++k) {
      if (is_infinite(squares[k])) squares[k] = UnshrunkSum(add_pieces(k));
    }
  }
  for (int64_t k = 0; k < u.dense; ++k) {
    const V scale =
        hn::Set(d, InverseRootMeanSquare(AdafacMLPLOpt::kNormalizerEpsilon, squares[k], size));
    // Dense features are in the network's order, without those of rows and columns.
    const int64_t feature = k < at.at_row || !kFactored ? k : at.at_fac_m + k - at.at_row;
    for (int64_t j = 0; j < net.stride; j += kLanes) {
      hn::Store(hn::Mul(scale, hn::Load(d, net.input + feature * net.stride + j)), d,
                scratch.network.input + k * net.stride + j);
    }
  }
  in_pieces([&](int64_t i, const AdafacScratch& own, Workspace& /*workspace*/) {
    AdafacSteps<kFactored>(task, u, own, i * kAdafacPiece, end(i));
  });
}

void UpdateAdafac(const AdafacTask& task) {
  int64_t tiles = 1;
  for (const AdafacTensor& tensor : task.tensors) {
    if (tensor.size <= kAdafacKept) {
      tiles = std::max(tiles, (tensor.size + kAdafacTile - 1) / kAdafacTile);
    }
  }
  const AdafacScratch scratch(task, tiles, *task.workspace);
  FoldTimes(*task.network, task.step, scratch.network);
  const AdafacFeatures& at = *task.at;
  for (const AdafacTensor& tensor : task.tensors) {
    if (tensor.size == 0) continue;
    const Workspace::Frame frame(*task.workspace);
    AdafacUpdate u = {.tensor = &tensor,
                      .g = task.gradient + tensor.offset,
                      .p = task.params + tensor.offset,
                      .m = task.state + tensor.momenta,
                      .rms = task.state + tensor.rms,
                      .v = task.state + tensor.v,
                      .row = {},
                      .col = {},
                      .dense = tensor.factored ? at.at_row + at.m : at.count};
    if (tensor.factored) {
      UpdateAdafacTensor<true>(task, u, scratch);
    } else {
      UpdateAdafacTensor<false>(task, u, scratch);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(UpdateAdafac);

class AdafacKernel : public UpdateRule {
 public:
  AdafacKernel(const AdafacMLPLOptOptions& options, const Layout& params, const Layout& state,
               std::span<const float> theta)
      : UpdateRule(params, state),
        at_(options),
        decays_(options, theta),
        tensors_(AdafacTensors(params, state)),
        network_(at_.count, MLPLOpt::kTimes, options.hidden_size, options.hidden_layers, theta),
        exp_mult_(static_cast<float>(options.exp_mult)),
        step_mult_(static_cast<float>(options.step_mult)) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const AdafacTask task = {
        .network = &network_.weights(),
        .at = &at_,
        .decays = &decays_,
        .tensors = tensors_,
        .exp_mult = exp_mult_,
        .step_mult = step_mult_,
        .step = static_cast<float>(info.step),
        .gradient = gradient.data(),
        .params = params.data(),
        .state = state.data(),
        .workspace = &scratch,
        .workspaces = &workspaces_,
    };
    LOPT_DISPATCH(UpdateAdafac)(task);
  }

  AdafacFeatures at_;
  AdafacDecays decays_;
  std::vector<AdafacTensor> tensors_;
  PackedNetwork network_;
  float exp_mult_;
  float step_mult_;
  mutable WorkspacePool workspaces_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeAdafacMlpLoptKernel(const AdafacMLPLOptOptions& options,
                                                    const Layout& params, const Layout& state,
                                                    std::span<const float> theta) {
  return std::make_unique<AdafacKernel>(options, params, state, theta);
}

}  // namespace lopt
#endif  // HWY_ONCE
