#include "lopt/lopt/adafac/adafac_mlp_lopt_kernel.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
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
#include "lopt/lopt/adafac/adafac_features-inl.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/adafac/adafac_task.h"
#include "lopt/lopt/mlp/mlp_features-inl.h"
#include "lopt/lopt/network/factored-inl.h"
#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/network/network_columns-inl.h"
#include "lopt/lopt/network/packed_network.h"

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Added to the mean square of the params whose root Celo's steps are in proportion to.
constexpr double kParameterScaleFloor = 1e-9;

// Updates the state of [first, end), if kUpdate, and sets sums[k] to the sum of squares of dense
// feature k; else of dense feature k times kShrink.
template <bool kUpdate, bool kFactored>
HWY_NOINLINE void AdafacSums(const AdafacTask& task, const AdafacUpdate& u,
                             const AdafacScratch& scratch, int64_t first, int64_t end,
                             float* HWY_RESTRICT lanes, float* HWY_RESTRICT sums) {
  std::fill_n(lanes, u.dense * kLanes, 0.0f);
  ForAdafacTiles<kFactored, false>(
      task, u, scratch, first, end, [&](int64_t start, int64_t count) HWY_ATTR {
        FormFeatures<kUpdate, kFactored>(task, u, scratch, start, count,
                                         AddSquares<!kUpdate>{lanes});
      });
  for (int64_t k = 0; k < u.dense; ++k) {
    sums[k] = SumOfVector(hn::Load(d, lanes + k * kLanes));
  }
}

// Steps the parameters [first, end).
template <bool kFactored>
HWY_NOINLINE void StepPiece(const AdafacTask& task, const AdafacUpdate& u,
                            const AdafacScratch& scratch, int64_t first, int64_t end) {
  ForAdafacTiles<kFactored, true>(
      task, u, scratch, first, end, [&](int64_t start, int64_t count) HWY_ATTR {
        FormFeatures<false, kFactored>(task, u, scratch, start, count,
                                       StoreFeatures{scratch.features});
        const auto columns = [&]<int kV>(int64_t i) HWY_ATTR {
          return AdafacColumns{scratch.features + i, u.dense,
                               kFactored ? scratch.biases + i : nullptr, scratch.network.input};
        };
        float* outputs = scratch.network.outputs;
        StretchOutputs(*task.network, scratch.network, columns, count, outputs);
        StepParams(task.exp_mult, u.step_mult, outputs, count, u.p + start);
      });
}

// 1 / sqrt(1e-5 + mean square) of the `size` numbers at `x`.
HWY_INLINE float AdafacScale(const float* HWY_RESTRICT x, int64_t size) {
  double squares = double{SumOfSquares(x, size)};
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
  const AdafacPlaces& at = *task.at;
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
    const auto in_own_memory = [&](int64_t i) {
      WorkspacePool::Lease workspace(*task.workspaces);
      const Workspace::Frame frame(*workspace);
      AdafacScratch own(task, *workspace);
      own.network.bias = scratch.network.bias;
      own.network.input = scratch.network.input;
      body(i, own, *workspace);
    };
    ParallelFor(pieces, std::cref(in_own_memory));  // by reference: a copy would be allocated
  };
  const auto form_sums = [&]<bool kUpdate>() {
    in_pieces([&](int64_t i, const AdafacScratch& own, Workspace& workspace) {
      const Workspace::Frame frame(workspace);
      float* lanes = workspace.Take<float>(u.dense * kBlock).data();
      AdafacSums<kUpdate, kFactored>(task, u, own, i * kAdafacPiece, end(i), lanes,
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
  form_sums.template operator()<true>();
  for (int64_t k = 0; k < u.dense; ++k) squares[k] = double{add_pieces(k)};
  if (std::ranges::any_of(squares, is_infinite)) {
    form_sums.template operator()<false>();
    for (int64_t k = 0; k < u.dense; ++k) {
      if (is_infinite(squares[k])) squares[k] = UnshrunkSum(add_pieces(k));
    }
  }
  u.step_mult = task.step_mult;
  if (at.celo) {
    const double mean = squares[at.at_p] / static_cast<double>(size);
    u.step_mult *= static_cast<float>(std::sqrt(mean + kParameterScaleFloor));
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
    StepPiece<kFactored>(task, u, own, i * kAdafacPiece, end(i));
  });
}

void UpdateAdafac(const AdafacTask& task) {
  const AdafacScratch scratch(task, *task.workspace);
  const AdafacPlaces& at = *task.at;
  if (at.celo) {
    std::copy_n(task.network->input_bias, task.network->stride, scratch.network.bias);
  } else {
    FoldTimes(*task.network, task.step, scratch.network);
  }
  for (const AdafacTensor& tensor : task.tensors) {
    if (tensor.size == 0) continue;
    const Workspace::Frame frame(*task.workspace);
    AdafacUpdate u = {.tensor = &tensor,
                      .step_mult = 0,
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
  AdafacKernel(const Layout& params, const Layout& state, AdafacKernelParts parts)
      : UpdateRule(params, state), steps_(std::move(parts)) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    steps_.Update(static_cast<float>(info.step), 1, gradient, params, state, scratch);
  }

  AdafacSteps steps_;
};

}  // namespace

void AdafacSteps::Update(float step, float multiplier, std::span<const float> gradient,
                         std::span<float> params, std::span<float> state,
                         Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  const AdafacTask task = {
      .network = &parts_.network.weights(),
      .at = &parts_.at,
      .decays = &parts_.decays,
      .tensors = parts_.tensors,
      .exp_mult = parts_.exp_mult,
      .step_mult = parts_.step_mult * multiplier,
      .momentum_epsilon = parts_.momentum_epsilon,
      .step = step,
      .gradient = gradient.data(),
      .params = params.data(),
      .state = state.data(),
      .workspace = &scratch,
      .workspaces = &workspaces_,
  };
  LOPT_DISPATCH(UpdateAdafac)(task);
}

std::unique_ptr<UpdateRule> MakeAdafacMlpLoptKernel(const AdafacMLPLOptOptions& options,
                                                    const Layout& params, const Layout& state,
                                                    std::span<const float> theta) {
  const AdafacFeatures at(options);
  return std::make_unique<AdafacKernel>(
      params, state,
      AdafacKernelParts{.at = at,
                        .decays = AdafacDecays(options, theta),
                        .tensors = AdafacTensors(params, state),
                        .network = PackedNetwork(at.count, MLPLOpt::kTimes, options.hidden_size,
                                                 options.hidden_layers, theta),
                        .exp_mult = static_cast<float>(options.exp_mult),
                        .step_mult = static_cast<float>(options.step_mult),
                        .momentum_epsilon = AdafacMLPLOpt::kMomentumEpsilon});
}

}  // namespace lopt
#endif  // HWY_ONCE
