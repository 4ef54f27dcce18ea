#include "lopt/lopt/adafac/adafac_mlp_lopt.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt_kernel.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/network/plain_network.h"

namespace lopt {
namespace {

const AdafacMLPLOptOptions& CheckAdafac(const AdafacMLPLOptOptions& options) {
  CheckOptions("AdafacMLPLOpt", options);
  const AdafacFeatures features(options);
  Require(features.m >= 1, "AdafacMLPLOpt: initial_momentum_decays must have one decay or more");
  Require(features.r == 1 || features.r == features.m,
          "AdafacMLPLOpt: initial_rms_decays must have 1 decay or as many as "
          "initial_momentum_decays, {}; it has {}",
          features.m, features.r);
  Require(features.f == features.m,
          "AdafacMLPLOpt: initial_adafactor_decays must have as many decays as "
          "initial_momentum_decays, {}; it has {}",
          features.m, features.f);
  return options;
}

Layout AdafacTheta(const AdafacMLPLOptOptions& options) {
  const AdafacFeatures features(options);
  std::vector<std::pair<std::string, Shape>> tensors;
  int64_t in = features.count + MLPLOpt::kTimes;
  for (int64_t l = 0; l <= options.hidden_layers; ++l) {
    const int64_t out = l == options.hidden_layers ? 2 : options.hidden_size;
    tensors.emplace_back("nn/w" + std::to_string(l), Shape{in, out});
    tensors.emplace_back("nn/b" + std::to_string(l), Shape{out});
    in = out;
  }
  tensors.emplace_back("momentum_decays", Shape{features.m});
  tensors.emplace_back("rms_decays", Shape{features.r});
  tensors.emplace_back("adafactor_decays", Shape{features.f});
  return Layout(std::move(tensors));
}

}  // namespace

void AdafacMLPLOptOptions::Visit(FieldVisitor& v) {
  v.Field("hidden_size", &hidden_size, Between(1, 65536), "Width of the network's hidden layers.");
  v.Field("hidden_layers", &hidden_layers, Between(1, 64),
          "Number of the network's hidden layers.");
  v.Field("exp_mult", &exp_mult, {}, "Factor of the second output under the exponential.");
  v.Field("step_mult", &step_mult, {}, "Factor of the step.");
  const Range decay = {.min = 0, .max = 1, .open_max = true};
  v.Field("initial_momentum_decays", &initial_momentum_decays, decay,
          "Decays of the momenta where theta's offsets are 0.");
  v.Field(
      "initial_rms_decays", &initial_rms_decays, decay,
      "Decays of the means of squares where theta's offsets are 0: one, or as many as momenta.");
  v.Field("initial_adafactor_decays", &initial_adafactor_decays, decay,
          "Decays of the factored second moments where theta's offsets are 0: as many as momenta.");
}

AdafacMLPLOpt::AdafacMLPLOpt(const AdafacMLPLOptOptions& options)
    : LearnedOptimizer(AdafacTheta(CheckAdafac(options))), options_(options) {}

void AdafacMLPLOpt::DoInitTheta(Key key, std::span<float> theta) const {
  std::fill(theta.begin(), theta.end(), 0.0f);
  for (int64_t l = 0; l <= options_.hidden_layers; ++l) {
    const LayoutEntry& entry = theta_layout().Find("nn/w" + std::to_string(l));
    InitLayer(FoldIn(key, static_cast<uint64_t>(l)), entry.shape[0],
              theta.subspan(entry.offset, entry.size));
  }
}

std::unique_ptr<UpdateRule> AdafacMLPLOpt::DoBind(const Layout& params,
                                                  std::span<const float> theta) const {
  const AdafacFeatures features(options_);
  return MakeAdafacMlpLoptKernel(options_, params, AdafacState(features, params), theta);
}

}  // namespace lopt
