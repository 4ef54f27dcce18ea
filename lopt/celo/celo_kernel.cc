#include "lopt/lopt/celo/celo_kernel.h"

#include <cstddef>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lopt/lopt/celo/celo_kernel.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lopt/base/dispatch.h"
#include "lopt/base/vector_math-inl.h"
#include "lopt/lopt/network/lanes-inl.h"

#ifndef LOPT_CELO_KERNEL_ONCE
#define LOPT_CELO_KERNEL_ONCE
namespace lopt {

// One step of the scheduler, with memory for what lies between.
struct SchedulerStep {
  const SchedulerLayers* layers;
  int64_t units;
  const float* inputs;
  float* hidden;
  float* cell;
  float* first;  // [inputs.width]
  float* x;      // [gates.inputs]
  float* gates;  // [gates.width]
};

}  // namespace lopt
#endif  // LOPT_CELO_KERNEL_ONCE

HWY_BEFORE_NAMESPACE();
namespace lopt {
namespace HWY_NAMESPACE {

// y [width] = x W + b, summed over the inputs in their order.
HWY_NOINLINE void RunLinear(const PackedLinear& layer, const float* HWY_RESTRICT x,
                            float* HWY_RESTRICT y) {
  const int64_t width = layer.width();
  const auto columns = [&]<int kV>(int64_t first) HWY_ATTR {
    V sums[kV];
    for (int v = 0; v < kV; ++v) sums[v] = hn::Load(d, layer.bias() + first + v * kLanes);
    const float* HWY_RESTRICT row = layer.weights() + first;
    for (int64_t i = 0; i < layer.inputs(); ++i, row += width) {
      const V input = hn::Set(d, x[i]);
      for (int v = 0; v < kV; ++v) {
        sums[v] = hn::MulAdd(input, hn::Load(d, row + v * kLanes), sums[v]);
      }
    }
    for (int v = 0; v < kV; ++v) hn::Store(sums[v], d, y + first + v * kLanes);
  };
  constexpr int kTogether = 8;
  int64_t first = 0;
  for (; first + kTogether * kLanes <= width; first += kTogether * kLanes) {
    columns.template operator()<kTogether>(first);
  }
  for (; first < width; first += kLanes) columns.template operator()<1>(first);
}

HWY_NOINLINE float StepScheduler(const SchedulerStep& s) {
  const SchedulerLayers& layers = *s.layers;
  RunLinear(layers.inputs, s.inputs, s.first);
  const int64_t inner = layers.inputs.group();
  for (int64_t i = 0; i < inner; i += kLanes) {
    const V mixed = Relu(hn::Load(d, s.first + i));
    hn::Store(hn::Add(hn::Load(d, s.first + inner + i), mixed), d, s.x + i);
  }
  for (int64_t i = 0; i < s.units; ++i) s.x[inner + i] = s.hidden[i];
  RunLinear(layers.gates, s.x, s.gates);
  V output = hn::Zero(d);
  ForVectors(s.units, [&]<bool kWhole>(int64_t i, int64_t count) HWY_ATTR {
    const auto gate = [&](int64_t k)
                          HWY_ATTR { return hn::Load(d, s.gates + k * layers.gates.group() + i); };
    const V forget = Sigmoid(d, hn::Add(gate(2), hn::Set(d, 1.0f)));
    V cell = LoadSome<kWhole>(s.cell + i, count);
    cell = hn::MulAdd(forget, cell, hn::Mul(Sigmoid(d, gate(0)), Tanh(d, gate(1))));
    StoreSome<kWhole>(cell, s.cell + i, count);
    V hidden = hn::Mul(Sigmoid(d, gate(3)), Tanh(d, cell));
    if (!kWhole) hidden = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)), hidden);
    StoreSome<kWhole>(hidden, s.hidden + i, count);
    output = hn::MulAdd(hidden, LoadSome<kWhole>(layers.output.data() + i, count), output);
  });
  return SumOfVector(output) + layers.output_bias;
}

void ClipCelo(const float* gradient, int64_t size, float* clipped) {
  ClipTo(gradient, size, kCeloGradientClip, clipped);
}

void StepScheduledMoments(const ScheduledMomentsStep& step, const float* gradient, int64_t size,
                          float* p, float* m, float* r) {
  using Step = ScheduledMomentsStep;
  const V rate = hn::Set(d, step.rate * step.m_factor);
  const V r_factor = hn::Set(d, step.r_factor);
  ForVectors(size, [&]<bool kWhole>(int64_t i, int64_t count) HWY_ATTR {
    const V g = Within(LoadSome<kWhole>(gradient + i, count), kCeloGradientClip);
    const V mean = Decayed(Step::kMomentum, LoadSome<kWhole>(m + i, count), g);
    const V square = Decayed(Step::kSquares, LoadSome<kWhole>(r + i, count), hn::Mul(g, g));
    StoreSome<kWhole>(mean, m + i, count);
    StoreSome<kWhole>(square, r + i, count);
    const V root = hn::Sqrt(hn::MulAdd(r_factor, square, hn::Set(d, Step::kSquaresEpsilon)));
    const V moved = hn::Div(hn::Mul(rate, mean), hn::Add(hn::Set(d, Step::kEpsilon), root));
    StoreSome<kWhole>(hn::Sub(LoadSome<kWhole>(p + i, count), moved), p + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lopt
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lopt {
namespace {

HWY_EXPORT(StepScheduler);
HWY_EXPORT(ClipCelo);
HWY_EXPORT(StepScheduledMoments);

}  // namespace

float FastSchedulerStep(const SchedulerLayers& layers, std::span<const float> inputs,
                        std::span<float> hidden, std::span<float> cell, Workspace& scratch) {
  const Workspace::Frame frame(scratch);
  return LOPT_DISPATCH(StepScheduler)({
      .layers = &layers,
      .units = std::ssize(hidden),
      .inputs = inputs.data(),
      .hidden = hidden.data(),
      .cell = cell.data(),
      .first = scratch.Take<float>(layers.inputs.width()).data(),
      .x = scratch.Take<float>(layers.gates.inputs()).data(),
      .gates = scratch.Take<float>(layers.gates.width()).data(),
  });
}

void FastCeloClip(std::span<const float> gradient, std::span<float> clipped) {
  LOPT_DISPATCH(ClipCelo)(gradient.data(), std::ssize(gradient), clipped.data());
}

void ScheduledMomentsStep::Apply(std::span<const float> gradient, std::span<float> p,
                                 std::span<float> m, std::span<float> r) const {
  LOPT_DISPATCH(StepScheduledMoments)
  (*this, gradient.data(), std::ssize(gradient), p.data(), m.data(), r.data());
}

}  // namespace lopt
#endif  // HWY_ONCE
