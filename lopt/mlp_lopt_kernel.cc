#include "lopt/mlp_lopt_kernel.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/mlp_lopt_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/mlp_features-inl.h"
#include "lopt/network_columns-inl.h"
#include "lopt/network_rows-inl.h"
#include "lopt/packed_network.h"

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
  float exp_mult;
  float step_mult;
  float step;
  const float* gradient;
  float* params;
  float* state;
  NetworkScratch scratch;
};

}  // namespace lopt
#endif  // LOPT_MLP_LOPT_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// Sums of squares are formed over this many blocks first, 16 terms in a lane, so that rounding
// errors do not grow with the size of the tensor.
constexpr int64_t kChunk = kLanes;

void UpdateTensor(const UpdateTask& task, const TensorPlace& place) {
  const NetworkWeights& net = *task.network;
  const NetworkScratch& scratch = task.scratch;
  const float* g = task.gradient + place.offset;
  float* p = task.params + place.offset;
  float* m = task.state + place.momenta;
  const int64_t blocks = place.size / kBlock;
  const int64_t whole = blocks * kBlock;
  const int tail = static_cast<int>(place.size - whole);

  V sums[kNormalized];
  HWY_UNROLL(8)
  for (int k = 0; k < kNormalized; ++k) sums[k] = hn::Zero(d);
  for (int64_t b = 0; b < blocks; b += kChunk) {
    UpdateMomenta(g + b * kBlock, p + b * kBlock, m + b * kBlockState, std::min(kChunk, blocks - b),
                  sums);
  }
  HWY_ALIGN float features[kNormalized * kBlock];
  if (tail > 0) {
    UpdateTailMomenta(g + whole, p + whole, m + blocks * kBlockState, tail, sums, features);
  }
  HWY_ALIGN float scales[kBlock];
  NormalizingScales(sums, place.size, scales);

  if (blocks > 0) {
    FoldScales(net, scratch, scales);
    for (int64_t first = 0; first < whole; first += kStretch) {
      const int64_t end = std::min(whole, first + kStretch);
      float* outputs = scratch.outputs;
      int64_t i = first;
      for (; i + kGroup <= end; i += kGroup) {
        if (i + 2 * kGroup <= whole) PrefetchColumns<kVectors>(g, p, m, i + kGroup);
        ColumnOutputs<kVectors>(net, scratch, Columns<kVectors>(g, p, m, i), outputs);
        outputs += kGroup;
      }
      if (i + 2 * kLanes <= end) {
        ColumnOutputs<2>(net, scratch, Columns<2>(g, p, m, i), outputs);
        outputs += 2 * kLanes;
        i += 2 * kLanes;
      }
      if (i < end) ColumnOutputs<1>(net, scratch, Columns<1>(g, p, m, i), outputs);
      StepParams(task.exp_mult, task.step_mult, scratch.outputs, end - first, p + first);
    }
  }
  if (tail > 0) {
    ScaleTail(scales, tail, features);
    OutputsOfTail(net, scratch, features, tail);
    StepParams(task.exp_mult, task.step_mult, scratch.outputs, tail, p + whole);
  }
}

void Update(const UpdateTask& task) {
  FoldTimes(*task.network, task.step, task.scratch);
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
        network_(MLPLOpt::kNormalized, MLPLOpt::kTimes, options.hidden_size, options.hidden_layers,
                 theta),
        exp_mult_(static_cast<float>(options.exp_mult)),
        step_mult_(static_cast<float>(options.step_mult)) {
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
    const UpdateTask task = {
        .network = &net,
        .tensors = tensors_,
        .exp_mult = exp_mult_,
        .step_mult = step_mult_,
        .step = static_cast<float>(info.step),
        .gradient = gradient.data(),
        .params = params.data(),
        .state = state.data(),
        .scratch = NetworkScratch(net, scratch),
    };
    HWY_DYNAMIC_DISPATCH(Update)(task);
  }

  PackedNetwork network_;
  float exp_mult_;
  float step_mult_;
  std::vector<TensorPlace> tensors_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeMlpLoptKernel(const MLPLOptOptions& options, const Layout& params,
                                              const Layout& state, std::span<const float> theta) {
  return std::make_unique<Kernel>(options, params, state, theta);
}

}  // namespace lopt
#endif  // HWY_ONCE
