#include "tests/reference/mlp_lopt_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lopt/lopt/mlp/mlp_lopt_step.h"
#include "lopt/lopt/network/plain_network.h"
#include "tests/reference/bfloat16_network.h"
#include "tests/reference/plain_sums.h"

namespace lopt {
namespace {

class Reference : public UpdateRule {
 public:
  Reference(const MLPLOptOptions& options, const Layout& params, const Layout& state,
            std::span<const float> theta)
      : UpdateRule(params, state),
        network_(MLPLOpt::Features(options), options.hidden_size, options.hidden_layers, 2, theta),
        bfloat16_(MLPLOpt::kNormalized, MLPLOpt::Features(options) - MLPLOpt::kNormalized,
                  options.hidden_size, options.hidden_layers, theta, true),
        options_(options) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const MlpLoptStep step(StepOptionsOf(options_), info.step, info.num_steps);
    const size_t tensors = params_layout().entries().size();
    for (size_t n = 0; n < tensors; ++n) {
      const LayoutEntry& entry = params_layout().entries()[n];
      const LayoutEntry& momenta = state_layout().entries()[n];
      UpdateTensor(step, gradient.subspan(entry.offset, entry.size),
                   params.subspan(entry.offset, entry.size),
                   state.subspan(momenta.offset, momenta.size), scratch);
    }
  }

  void UpdateTensor(const MlpLoptStep& step, std::span<const float> g, std::span<float> p,
                    std::span<float> m, Workspace& scratch) const {
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

    double sums[MLPLOpt::kNormalized];
    float scale[MLPLOpt::kNormalized];
    for (int k = 0; k < MLPLOpt::kNormalized; ++k) {
      sums[k] = SumOfSquares(std::ssize(p), [&](int64_t i) { return feature(i, k); });
      scale[k] = InverseRootMeanSquare(step.normalizer_epsilon(), sums[k], std::ssize(p));
    }
    const float multiplier = step.Multiplier(std::ssize(p), sums);

    const Workspace::Frame frame(scratch);
    const std::span<float> x = scratch.Take<float>(network_.width());
    const std::span<float> y = scratch.Take<float>(network_.width());
    for (size_t i = 0; i < p.size(); ++i) {
      for (int k = 0; k < MLPLOpt::kNormalized; ++k) x[k] = feature(i, k) * scale[k];
      for (int k = 0; k < MLPLOpt::kTimes; ++k) {
        x[MLPLOpt::kNormalized + k] = std::tanh(step.time() / MLPLOpt::kTimeScales[k] - 1.0f);
      }
      std::copy_n(step.progress(), step.progress_size(),
                  x.begin() + MLPLOpt::kNormalized + MLPLOpt::kTimes);
      std::span<const float> outputs;
      std::vector<float> of_bfloat16;
      if (options_.precision == Precision::kBfloat16) {
        of_bfloat16 = bfloat16_.Run({x.begin(), x.begin() + MLPLOpt::Features(options_)});
        outputs = of_bfloat16;
      } else {
        outputs = network_.Run(x, y);
      }
      p[i] -= outputs[0] * std::exp(outputs[1] * step.exp_mult()) * multiplier;
    }
  }

  PlainNetwork network_;
  PlainBfloat16Network bfloat16_;
  MLPLOptOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> ReferenceMLPLOpt::DoBind(const Layout& params,
                                                     std::span<const float> theta) const {
  const Layout state = MLPLOpt(options()).Bind(params, theta)->state_layout();
  return std::make_unique<Reference>(options(), params, state, theta);
}

}  // namespace lopt
