#include "lopt/lopt/mlp/mlp_lopt_kernel.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/mlp/mlp_lopt_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/parallel.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/mlp/mlp_features-inl.h"
#include "lopt/lopt/mlp/mlp_lopt_step.h"
#include "lopt/lopt/network/bfloat16_layers_kernel.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/network/network_columns-inl.h"
#include "lopt/lopt/network/network_rows-inl.h"
#include "lopt/lopt/network/packed_network.h"

#ifndef LOPT_MLP_LOPT_KERNEL_ONCE
#define LOPT_MLP_LOPT_KERNEL_ONCE
namespace lopt {

struct TensorPlace {
  int64_t offset;
  int64_t size;
  int64_t momenta;  // offset in the state
};

// What one call works on, and the memory it may use.
struct UpdateTask {
  const NetworkWeights* network;
  std::span<const TensorPlace> tensors;
  const MlpLoptStep* step;
  const float* gradient;
  float* params;
  float* state;
  NetworkScratch scratch;
  WorkspacePool* workspaces;  // for other threads
};

// Parameters of a tensor whose squares are summed in float32, in lanes, and whose momenta one
// thread updates. Sums of more lose digits: those of 4e7 parameters, on AVX2, four of seven.
constexpr int64_t kPiece = 1 << 16;

// Parameters of a tensor that one thread steps, which is most of the work, unless the network is
// narrow: then waking another thread for fewer than above takes longer.
constexpr int64_t kStepPiece = 24 * kStretch;

}  // namespace lopt
#endif  // LOPT_MLP_LOPT_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Sums of squares are formed over this many blocks first, 16 terms in a lane, so that rounding
// errors do not grow with the size of the tensor.
constexpr int64_t kChunk = kLanes;

// The last few parameters of a tensor have hidden units in the lanes where there are more than so
// many.
constexpr int64_t kNarrow = 8;

// The parameters of a tensor, or some of them in a row.
struct Piece {
  const float* g;
  float* p;
  float* m;
  int64_t size;

  int64_t blocks() const { return size / kBlock; }
  int64_t whole() const { return blocks() * kBlock; }  // parameters in whole blocks
  int tail() const { return static_cast<int>(size - whole()); }
};

// First pass: updates the momenta. `sums`, 16 floats, become the sums of the squares of the
// features; `features`, where there is a tail, those of the tail.
void UpdateMomenta(const Piece& piece, float* HWY_RESTRICT sums, float* HWY_RESTRICT features) {
  V lanes[kNormalized];
  HWY_UNROLL(8)
  for (int k = 0; k < kNormalized; ++k) lanes[k] = hn::Zero(d);
  for (int64_t b = 0; b < piece.blocks(); b += kChunk) {
    UpdateMomenta(piece.g + b * kBlock, piece.p + b * kBlock, piece.m + b * kBlockState,
                  std::min(kChunk, piece.blocks() - b), lanes);
  }
  if (piece.tail() > 0) {
    UpdateTailMomenta(piece.g + piece.whole(), piece.p + piece.whole(),
                      piece.m + piece.blocks() * kBlockState, piece.tail(), lanes, features);
  }
  StoreLaneSums<kNormalized>(lanes, sums);
}

// Sets `out` [8, 16] to the features of a block times their scales.
HWY_INLINE void ScaleBlock(const float* HWY_RESTRICT g, const float* HWY_RESTRICT p,
                           const float* HWY_RESTRICT m, const float* HWY_RESTRICT scales,
                           float* HWY_RESTRICT out) {
  HWY_UNROLL(8)
  for (int k = 0; k < kNormalized; ++k) {
    const float* from = k == 0 ? g : k == 1 ? p : m + (k - 2) * kBlock;
    for (int i = 0; i < kBlock; i += kLanes) {
      hn::Store(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scales[k])), d, out + k * kBlock + i);
    }
  }
}

// Second pass of a network of kBfloat16, whose inputs are the scaled features. Those of the tail
// are overwritten.
HWY_NOINLINE void StepPieceInBfloat16(const UpdateTask& task, const NetworkScratch& scratch,
                                      const Piece& piece, float multiplier,
                                      const float* HWY_RESTRICT scales,
                                      float* HWY_RESTRICT tail_features) {
  // So few parameters at a time that what lies between leaves the cache to the momenta.
  constexpr int64_t kTogether = 8 * kBlock;
  constexpr int64_t kBlockFeatures = kNormalized * kBlock;
  const NetworkWeights& net = *task.network;
  WorkspacePool::Lease workspace(*task.workspaces);
  const Workspace::Frame frame(*workspace);
  float* features = (*workspace).Take<float>(kTogether / kBlock * kBlockFeatures).data();
  const Bfloat16Layers layers(net, scratch, *workspace);
  const auto step = [&](int64_t first, int64_t count) HWY_ATTR {
    layers.Outputs(features, (count + kBlock - 1) / kBlock, scratch.outputs);
    StepParams(task.step->exp_mult(), multiplier, scratch.outputs, count, piece.p + first);
  };
  const int64_t whole = piece.whole();
  for (int64_t first = 0; first < whole; first += kTogether) {
    const int64_t end = std::min(whole, first + kTogether);
    float* out = features;
    for (int64_t i = first; i < end; i += kBlock, out += kBlockFeatures) {
      ScaleBlock(piece.g + i, piece.p + i, piece.m + i * kMomenta, scales, out);
    }
    step(first, end - first);
  }
  if (const int tail = piece.tail(); tail > 0) {
    ScaleTail(scales, tail, tail_features);
    std::copy_n(tail_features, kBlockFeatures, features);
    step(whole, tail);
  }
}

// Second pass: the steps, from the folded weights in `scratch`.
void StepPiece(const UpdateTask& task, const NetworkScratch& scratch, const Piece& piece,
               float multiplier, const float* HWY_RESTRICT scales, float* HWY_RESTRICT features) {
  const NetworkWeights& net = *task.network;
  if (net.precision == Precision::kBfloat16) {
    return StepPieceInBfloat16(task, scratch, piece, multiplier, scales, features);
  }
  const auto& [g, p, m, size] = piece;
  const int64_t whole = piece.whole();
  // A network this narrow is through before memory has brought the next parameters of a large
  // tensor.
  const bool prefetch = size >= kStepPiece && net.hidden <= kNarrow;
  for (int64_t first = 0; first < whole; first += kStretch) {
    const int64_t end = std::min(whole, first + kStretch);
    const int64_t m_first = first / kBlock * kBlockState;
    StretchOutputs(net, scratch, ColumnsOf{g + first, p + first, m + m_first, prefetch},
                   end - first, scratch.outputs);
    StepParams(task.step->exp_mult(), multiplier, scratch.outputs, end - first, p + first);
  }
  if (const int tail = piece.tail(); tail > 0) {
    if (net.hidden <= kNarrow) {
      const ColumnsOf columns = {features, features + kBlock, features + 2 * kBlock, false};
      StretchOutputs(net, scratch, columns, tail, scratch.outputs);
    } else {
      ScaleTail(scales, tail, features);
      OutputsOfTail(net, scratch, features, tail);
    }
    StepParams(task.step->exp_mult(), multiplier, scratch.outputs, tail, p + whole);
  }
}

int64_t Pieces(const Piece& tensor, int64_t piece) { return (tensor.size + piece - 1) / piece; }

// Piece i of those of `size` parameters.
Piece PieceOf(const Piece& tensor, int64_t size, int64_t i) {
  const int64_t first = i * size;
  return {tensor.g + first, tensor.p + first, tensor.m + first / kBlock * kBlockState,
          std::min(size, tensor.size - first)};
}

// The first pass on the threads of the pool around it. The sums of the pieces' squares are added in
// float64, in their order.
void UpdateMomentaInPieces(const UpdateTask& task, const Piece& tensor, float* HWY_RESTRICT sums,
                           float* HWY_RESTRICT features) {
  const int64_t pieces = Pieces(tensor, kPiece);
  WorkspacePool::Lease workspace(*task.workspaces);
  const Workspace::Frame frame(*workspace);
  const std::span<float> piece_sums = (*workspace).Take<float>(pieces * kBlock);
  const auto update = [&](int64_t i) {
    UpdateMomenta(PieceOf(tensor, kPiece, i), &piece_sums[i * kBlock], features);
  };
  ParallelFor(pieces, std::cref(update));  // by reference: a copy would be allocated
  for (int k = 0; k < kNormalized; ++k) {
    double sum = 0;
    for (int64_t i = 0; i < pieces; ++i) sum += piece_sums[i * kBlock + k];
    sums[k] = static_cast<float>(sum);
  }
}

// The second pass on these threads, in pieces of `size` parameters.
void StepInPieces(const UpdateTask& task, const Piece& tensor, int64_t size, float multiplier,
                  const float* HWY_RESTRICT scales, float* HWY_RESTRICT features) {
  const int64_t pieces = Pieces(tensor, size);
  const auto step = [&](int64_t i) {
    WorkspacePool::Lease workspace(*task.workspaces);
    const Workspace::Frame frame(*workspace);
    NetworkScratch scratch(*task.network, *workspace);
    scratch.bias = task.scratch.bias;
    scratch.input = task.scratch.input;
    StepPiece(task, scratch, PieceOf(tensor, size, i), multiplier, scales, features);
  };
  ParallelFor(pieces, std::cref(step));
}

bool IsInfinite(float x) { return x == std::numeric_limits<float>::infinity(); }

// What the features are multiplied by, and the steps (the result), where a sum of squares of
// features is more than float32 holds. `scales`: the sums before.
HWY_NOINLINE float WideScales(const MlpLoptStep& step, const Piece& tensor,
                              float* HWY_RESTRICT scales) {
  double sums[kNormalized];
  for (int k = 0; k < kNormalized; ++k) {
    sums[k] = double{scales[k]};
    if (!IsInfinite(scales[k])) continue;
    sums[k] = 0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      const float* momenta = tensor.m + i / kBlock * kBlockState + i % kBlock;
      const double x = k == 0 ? tensor.g[i] : k == 1 ? tensor.p[i] : momenta[(k - 2) * kBlock];
      sums[k] += x * x;
    }
  }
  for (int k = 0; k < kNormalized; ++k) {
    scales[k] = InverseRootMeanSquare(step.normalizer_epsilon(), sums[k], tensor.size);
  }
  return step.Multiplier(tensor.size, sums);
}

void UpdateTensor(const UpdateTask& task, const TensorPlace& place) {
  const Piece tensor = {task.gradient + place.offset, task.params + place.offset,
                        task.state + place.momenta, place.size};
  HWY_ALIGN float scales[kBlock] = {};
  HWY_ALIGN float features[kNormalized * kBlock] = {};  // of the tail
  if (tensor.size > kPiece) {
    UpdateMomentaInPieces(task, tensor, scales, features);
  } else {
    UpdateMomenta(tensor, scales, features);
  }
  float multiplier;
  if (std::any_of(scales, scales + kNormalized, IsInfinite)) {
    multiplier = WideScales(*task.step, tensor, scales);
  } else {
    multiplier = task.step->Multiplier(tensor.size, scales);
    NormalizingScales(task.step->normalizer_epsilon(), tensor.size, scales);
  }
  if (tensor.blocks() > 0 || task.network->hidden <= kNarrow) {
    FoldScales(*task.network, task.scratch, scales);
  }
  const int64_t step_piece = task.network->hidden <= kNarrow ? kPiece : kStepPiece;
  if (tensor.size > step_piece) {
    StepInPieces(task, tensor, step_piece, multiplier, scales, features);
  } else {
    StepPiece(task, task.scratch, tensor, multiplier, scales, features);
  }
}

void Update(const UpdateTask& task) {
  FoldTimes(*task.network, task.step->time(), task.scratch,
            {task.step->progress(), static_cast<size_t>(task.step->progress_size())});
  for (const TensorPlace& place : task.tensors) {
    if (place.size > 0) UpdateTensor(task, place);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(Update);

class Kernel : public UpdateRule {
 public:
  Kernel(const MLPLOptOptions& options, const Layout& params, const Layout& state,
         std::span<const float> theta)
      : UpdateRule(params, state),
        network_(MLPLOpt::kNormalized, MLPLOpt::Features(options) - MLPLOpt::kNormalized,
                 options.hidden_size, options.hidden_layers, theta, options.precision),
        options_(options) {
    for (size_t n = 0; n < params.entries().size(); ++n) {
      const LayoutEntry& entry = params.entries()[n];
      tensors_.push_back({entry.offset, entry.size, state.entries()[n].offset});
    }
  }

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const NetworkWeights& net = network_.weights();
    const MlpLoptStep step(StepOptionsOf(options_), info.step, info.num_steps);
    const UpdateTask task = {
        .network = &net,
        .tensors = tensors_,
        .step = &step,
        .gradient = gradient.data(),
        .params = params.data(),
        .state = state.data(),
        .scratch = NetworkScratch(net, scratch),
        .workspaces = &workspaces_,
    };
    LOPT_DISPATCH(Update)(task);
  }

  PackedNetwork network_;
  MLPLOptOptions options_;
  std::vector<TensorPlace> tensors_;
  mutable WorkspacePool workspaces_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeMlpLoptKernel(const MLPLOptOptions& options, const Layout& params,
                                              const Layout& state, std::span<const float> theta) {
  return std::make_unique<Kernel>(options, params, state, theta);
}

}  // namespace lopt
#endif  // HWY_ONCE
