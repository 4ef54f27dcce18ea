#include "lopt/lopt/registry.h"

#include <memory>
#include <string>
#include <utility>

#include "lopt/base/every_key.h"
#include "lopt/base/options.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/celo/celo.h"
#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/rnn/rnn_mlp_lopt.h"
#include "lopt/lopt/rules/float64_rules.h"
#include "lopt/lopt/rules/hand_designed.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/rules/learned_scheduler.h"
#include "lopt/lopt/rules/matrices_and_vectors.h"
#include "lopt/lopt/rules/orthogonal_steps.h"
#include "lopt/lopt/rules/unknown_length.h"

namespace lopt {
namespace {

// An optimizer that knows what it was made from.
template <class Optimizer, class Options>
class Made : public Optimizer {
 public:
  Made(const char* type, const Options& options)
      : Optimizer(options), config_(WriteOptions(type, options)) {}
  Config config() const override { return config_; }

 private:
  Config config_;
};

template <class Optimizer, class Options>
void AddType(Registry<LearnedOptimizer>& registry, const char* type, const char* summary) {
  registry.Add<Options>(type, summary, [type](const Options& options) {
    return std::make_shared<Made<Optimizer, Options>>(type, options);
  });
}

Registry<LearnedOptimizer> BuiltIn() {
  Registry<LearnedOptimizer> registry("learned optimizer", kTypesOfPlugins);
  AddType<MLPLOpt, MLPLOptOptions>(
      registry, "MLPLOpt",
      "A small network that maps each parameter's gradient, value, momenta and time to its step.");
  AddType<AdafacMLPLOpt, AdafacMLPLOptOptions>(
      registry, "AdafacMLPLOpt",
      "MLPLOpt with factored second moments, learned decays and four hidden units.");
  AddType<Celo, CeloOptions>(
      registry, "Celo",
      "AdafacMLPLOpt's features and network in other numbers, with a learned scheduler that sees "
      "the losses.");
  AddType<CeloAdam, ScheduledMomentsOptions>(registry, "CeloAdam",
                                             "Adam with the learning rate of Celo's scheduler.");
  AddType<Sinv6, ScheduledMomentsOptions>(
      registry, "Sinv6",
      "Celo's scheduler on Adam's moments, with steps in proportion to the parameters' size.");
  AddType<Celo2Base, Celo2BaseOptions>(
      registry, "Celo2Base",
      "A network of 347 weights that maps each parameter's gradient, value and moments to a "
      "direction, normalised over its matrix.");
  AddType<Celo2, Celo2Options>(
      registry, "Celo2",
      "Celo2Base with directions of matrices made orthogonal, and Adam for biases.");
  AddType<RNNMLPLOpt, RNNMLPLOptOptions>(
      registry, "RNNMLPLOpt",
      "An LSTM for each tensor, which hear each other, and a network for its parameters.");
  AddType<OrthogonalSteps, OrthogonalStepsOptions>(
      registry, "OrthogonalSteps",
      "Another optimizer whose steps of matrices are made orthogonal and keep their size.");
  AddType<MatricesAndVectors, MatricesAndVectorsOptions>(
      registry, "MatricesAndVectors",
      "Two optimizers, one for tensors of two axes or more and one for all others.");
  AddType<LearnedScheduler, LearnedSchedulerOptions>(
      registry, "LearnedScheduler",
      "Another optimizer whose directions are kept: a small network gives each tensor's step its "
      "size.");
  AddType<UnknownLength, UnknownLengthOptions>(registry, "UnknownLength",
                                               "Another optimizer in trainings that may stop at "
                                               "any time: an average of the params is judged "
                                               "and saved.");
  AddType<Adam, AdamOptions>(registry, AdamOptions::kType, "Adam in float64.");
  AddType<AdamW, AdamWOptions>(
      registry, AdamWOptions::kType,
      "Adam in float64 with weight decay that does not pass through the moments.");
  AddType<SGD, SGDOptions>(registry, SGDOptions::kType, "Gradient descent in float64.");
  AddType<SGDM, SGDMOptions>(registry, SGDMOptions::kType,
                             "Gradient descent with momentum in float64.");
  AddType<LearnableSGD, LearnableSGDOptions>(registry, "LearnableSGD",
                                             "Gradient descent with a learned learning rate.");
  AddType<LearnableSGDM, LearnableSGDMOptions>(
      registry, "LearnableSGDM", "Gradient descent with learned learning rate and momentum.");
  AddType<LearnableAdam, LearnableAdamOptions>(
      registry, "LearnableAdam", "Adam with learned learning rate, decays and epsilon.");
  AddType<Nesterov, NesterovOptions>(registry, NesterovOptions::kType,
                                     "Gradient descent with Nesterov's momentum.");
  AddType<NAdamW, NAdamWOptions>(registry, NAdamWOptions::kType,
                                 "Adam with Nesterov's momentum and decoupled weight decay.");
  AddType<Lion, LionOptions>(registry, LionOptions::kType,
                             "Steps of one size, by the sign of a momentum.");
  AddType<ScheduleFreeAdamW, ScheduleFreeAdamWOptions>(
      registry, ScheduleFreeAdamWOptions::kType, "AdamW with an average in place of a schedule.");
  AddType<Prodigy, ProdigyOptions>(registry, ProdigyOptions::kType,
                                   "Adam that estimates its learning rate on the way.");
  AddType<Muon, MuonOptions>(registry, MuonOptions::kType,
                             "Momentum made orthogonal for matrices, AdamW for other tensors.");
  AddType<SOAP, SOAPOptions>(registry, SOAPOptions::kType,
                             "Adam in the eigenbases of Shampoo's statistics.");
  return registry;
}

}  // namespace

Registry<LearnedOptimizer>& OptimizerRegistry() {
  static Registry<LearnedOptimizer> registry = BuiltIn();
  return registry;
}

Config ResolvedOptimizer(Config optimizer) {
  return WithEveryKey("learned_optimizer", std::move(optimizer), OptimizerRegistry().table());
}

}  // namespace lopt
