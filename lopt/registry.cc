#include "lopt/registry.h"

#include <memory>

#include "lopt/adafac_mlp_lopt.h"
#include "lopt/learnable.h"
#include "lopt/mlp_lopt.h"

namespace lopt {
namespace {

template <class Optimizer, class Options>
void AddType(Registry<LearnedOptimizer>& registry, const char* type, const char* summary) {
  registry.Add<Options>(
      type, summary, [](const Options& options) { return std::make_shared<Optimizer>(options); });
}

Registry<LearnedOptimizer> BuiltIn() {
  Registry<LearnedOptimizer> registry("learned optimizer");
  AddType<MLPLOpt, MLPLOptOptions>(
      registry, "MLPLOpt",
      "A small network that maps each parameter's gradient, value, momenta and time to its step.");
  AddType<AdafacMLPLOpt, AdafacMLPLOptOptions>(
      registry, "AdafacMLPLOpt",
      "MLPLOpt with factored second moments, learned decays and four hidden units.");
  AddType<LearnableSGD, LearnableSGDOptions>(registry, "LearnableSGD",
                                             "Gradient descent with a learned learning rate.");
  AddType<LearnableSGDM, LearnableSGDMOptions>(
      registry, "LearnableSGDM", "Gradient descent with learned learning rate and momentum.");
  AddType<LearnableAdam, LearnableAdamOptions>(
      registry, "LearnableAdam", "Adam with learned learning rate, decays and epsilon.");
  return registry;
}

}  // namespace

Registry<LearnedOptimizer>& OptimizerRegistry() {
  static Registry<LearnedOptimizer> registry = BuiltIn();
  return registry;
}

}  // namespace lopt
