#include "lopt/mlp_lopt_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lopt {
namespace {

constexpr int kFeatures = MLPLOpt::kNormalized + MLPLOpt::kTimes;

struct Linear {
  int64_t in;
  int64_t out;
  std::vector<float> weights;  // [in, out]
  std::vector<float> bias;
};

std::vector<Linear> Layers(const MLPLOptOptions& options, std::span<const float> theta) {
  std::vector<Linear> layers;
  const float* next = theta.data();
  for (int64_t l = 0; l <= options.hidden_layers; ++l) {
    Linear layer;
    layer.in = l == 0 ? kFeatures : options.hidden_size;
    layer.out = l == options.hidden_layers ? 2 : options.hidden_size;
    layer.weights.assign(next, next + layer.in * layer.out);
    next += layer.in * layer.out;
    layer.bias.assign(next, next + layer.out);
    next += layer.out;
    layers.push_back(std::move(layer));
  }
  return layers;
}

// max(x, 0) that passes NaN on.
float Relu(float x) { return x < 0.0f ? 0.0f : x; }

class Reference : public UpdateRule {
 public:
  Reference(const MLPLOptOptions& options, const Layout& params, const Layout& state,
            std::span<const float> theta)
      : UpdateRule(params, state),
        layers_(Layers(options, theta)),
        exp_mult_(static_cast<float>(options.exp_mult)),
        step_mult_(static_cast<float>(options.step_mult)) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const size_t tensors = params_layout().entries().size();
    for (size_t n = 0; n < tensors; ++n) {
      const LayoutEntry& entry = params_layout().entries()[n];
      const LayoutEntry& momenta = state_layout().entries()[n];
      UpdateTensor(info.step, gradient.subspan(entry.offset, entry.size),
                   params.subspan(entry.offset, entry.size),
                   state.subspan(momenta.offset, momenta.size), scratch);
    }
  }

  void UpdateTensor(int64_t step, std::span<const float> g, std::span<float> p, std::span<float> m,
                    Workspace& scratch) const {
    const auto momentum = [&](size_t i, int k) -> float& {
      return m[(i / MLPLOpt::kBlock * MLPLOpt::kMomenta + k) * MLPLOpt::kBlock +
               i % MLPLOpt::kBlock];
    };
    const auto feature = [&](size_t i, int k) {
      return k == 0 ? g[i] : k == 1 ? p[i] : momentum(i, k - 2);
    };

    for (size_t i = 0; i < p.size(); ++i) {
      for (int k = 0; k < MLPLOpt::kMomenta; ++k) {
        const float decay = MLPLOpt::kDecays[k];
        momentum(i, k) = decay * momentum(i, k) + (1.0f - decay) * g[i];
      }
    }

    float scale[MLPLOpt::kNormalized];
    for (int k = 0; k < MLPLOpt::kNormalized; ++k) {
      double sum = 0;
      for (size_t i = 0; i < p.size(); ++i) sum += double{feature(i, k) * feature(i, k)};
      const float mean_square = static_cast<float>(sum) / static_cast<float>(p.size());
      scale[k] = 1.0f / std::sqrt(MLPLOpt::kNormalizerEpsilon + mean_square);
    }

    const Workspace::Frame frame(scratch);
    const int64_t widest = std::max<int64_t>(kFeatures, layers_.front().out);
    std::span<float> x = scratch.Take<float>(widest);
    std::span<float> y = scratch.Take<float>(widest);
    for (size_t i = 0; i < p.size(); ++i) {
      for (int k = 0; k < MLPLOpt::kNormalized; ++k) x[k] = feature(i, k) * scale[k];
      for (int k = 0; k < MLPLOpt::kTimes; ++k) {
        x[MLPLOpt::kNormalized + k] =
            std::tanh(static_cast<float>(step) / MLPLOpt::kTimeScales[k] - 1.0f);
      }
      for (size_t l = 0; l < layers_.size(); ++l) {
        const Linear& layer = layers_[l];
        for (int64_t out = 0; out < layer.out; ++out) {
          float sum = 0;
          for (int64_t in = 0; in < layer.in; ++in) {
            sum += x[in] * layer.weights[in * layer.out + out];
          }
          y[out] = sum + layer.bias[out];
          if (l + 1 < layers_.size()) y[out] = Relu(y[out]);
        }
        std::swap(x, y);
      }
      p[i] -= x[0] * std::exp(x[1] * exp_mult_) * step_mult_;
    }
  }

  std::vector<Linear> layers_;
  float exp_mult_;
  float step_mult_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeMlpLoptReference(const MLPLOptOptions& options,
                                                 const Layout& params, const Layout& state,
                                                 std::span<const float> theta) {
  return std::make_unique<Reference>(options, params, state, theta);
}

}  // namespace lopt
