#include "lopt/lopt/mlp/mlp_lopt.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/lopt/mlp/mlp_lopt_kernel.h"
#include "lopt/lopt/network/plain_network.h"

namespace lopt {
namespace {

Layout ThetaLayout(const MLPLOptOptions& options) {
  std::vector<std::pair<std::string, Shape>> tensors;
  int64_t in = MLPLOpt::Features(options);
  for (int64_t l = 0; l <= options.hidden_layers; ++l) {
    const int64_t out = l == options.hidden_layers ? 2 : options.hidden_size;
    const std::string layer = "mlp/linear_" + std::to_string(l);
    tensors.emplace_back(layer + "/w", Shape{in, out});
    tensors.emplace_back(layer + "/b", Shape{out});
    in = out;
  }
  return Layout(std::move(tensors));
}

Layout MomentaLayout(const Layout& params) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : params.entries()) {
    const int64_t blocks = (entry.size + MLPLOpt::kBlock - 1) / MLPLOpt::kBlock;
    tensors.emplace_back("momenta/" + entry.name,
                         Shape{blocks, MLPLOpt::kMomenta, MLPLOpt::kBlock});
  }
  return Layout(std::move(tensors));
}

std::string WhatNeedsNumSteps(const MLPLOptOptions& options) {
  return options.progress_features ? "MLPLOpt with progress_features"
                                   : NeedOfNumSteps("MLPLOpt", options.schedule);
}

}  // namespace

void MLPLOptOptions::Visit(FieldVisitor& v) {
  v.Field("hidden_size", &hidden_size, Between(1, 65536), "Width of the network's hidden layers.");
  v.Field("hidden_layers", &hidden_layers, Between(1, 64),
          "Number of the network's hidden layers.");
  v.Field("exp_mult", &exp_mult, {}, "Factor of the second output under the exponential.");
  v.Field("step_mult", &step_mult, {}, "Factor of the step.");
  v.Field("progress_features", &progress_features,
          "Whether the network also sees step / steps and ln(steps) / 10.");
  VisitSchedule(v, &schedule);
  v.Field("relative_step", &relative_step,
          "Whether a tensor's step shrinks with its gradient: times rms(g) beside the rms of the "
          "gradient's mean so far, at most 1.");
  v.Field("relative_to_parameter", &relative_to_parameter,
          "Whether a tensor's step is multiplied by max(rms(p), 1e-3).");
  v.Field("normalizer_epsilon", &normalizer_epsilon, AtLeast(1e-37),
          "Number added to the mean square by whose root a feature is divided; 1e-24 lets small "
          "gradients be seen.");
  v.Choice("precision", &precision, kPrecisions,
           "Numbers that the network's hidden layers multiply: fp32, or bf16, which is faster on "
           "processors with AMX.");
}

MLPLOpt::MLPLOpt(const MLPLOptOptions& options)
    : LearnedOptimizer(ThetaLayout(CheckOptions("MLPLOpt", options)),
                       WhatNeedsNumSteps(CheckOptions("MLPLOpt", options))),
      options_(options) {}

void MLPLOpt::DoInitTheta(Key key, std::span<float> theta) const {
  std::fill(theta.begin(), theta.end(), 0.0f);
  for (int64_t l = 0; l <= options_.hidden_layers; ++l) {
    const LayoutEntry& entry = theta_layout().Find("mlp/linear_" + std::to_string(l) + "/w");
    InitLayer(FoldIn(key, static_cast<uint64_t>(l)), entry.shape[0],
              theta.subspan(entry.offset, entry.size));
  }
}

std::unique_ptr<UpdateRule> MLPLOpt::DoBind(const Layout& params,
                                            std::span<const float> theta) const {
  return MakeMlpLoptKernel(options_, params, MomentaLayout(params), theta);
}

}  // namespace lopt
