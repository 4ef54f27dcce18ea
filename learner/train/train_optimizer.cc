#include "lopt/learner/train/train_optimizer.h"

#include "lopt/base/error.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

struct ThetaOptions {
  std::string file;
  void Visit(FieldVisitor& v) {
    v.Field("file", &file, "The theta file, relative to the working directory.");
  }
};

struct BaselineOptions {
  double learning_rate = 0;  // must be given
  void Visit(FieldVisitor& v) {
    v.Field("learning_rate", &learning_rate, Above(0), "The learning rate.");
  }
};

struct InitialOptions {
  Config learned_optimizer;
  void Visit(FieldVisitor& v) {
    v.Typed("learned_optimizer", &learned_optimizer, OptimizerRegistry().table(),
            "The optimizer, such as a hand-designed one.");
  }
};

std::shared_ptr<const TrainOptimizer> WithInitialTheta(
    const std::shared_ptr<const LearnedOptimizer>& optimizer) {
  return std::make_shared<TrainOptimizer>(TrainOptimizer{optimizer, optimizer->InitTheta(Key{})});
}

}  // namespace

Registry<TrainOptimizer>& TrainOptimizerRegistry() {
  static Registry<TrainOptimizer> registry = [] {
    Registry<TrainOptimizer> types("optimizer");
    types.Add<ThetaOptions>(
        "Theta", "A learned optimizer with the weights of a theta file.",
        [](const ThetaOptions& options) {
          Require(!options.file.empty(), "optimizer.file: the theta file is missing");
          const ThetaFile file = ReadThetaFile(options.file);
          return std::make_shared<TrainOptimizer>(TrainOptimizer{
              OptimizerRegistry().Make(file.learned_optimizer), file.theta, file.trained_range});
        });
    types.Add<InitialOptions>(
        "Initial", "An optimizer with the theta that its options begin with.",
        [](const InitialOptions& options) {
          return WithInitialTheta(OptimizerRegistry().Make(options.learned_optimizer));
        });
    for (const Baseline& baseline : BaselinesNamed("classic")) {
      types.Add<BaselineOptions>(
          baseline.name, "The evaluations' baseline of this name, with a learning rate of its own.",
          [baseline](const BaselineOptions& options) {
            return WithInitialTheta(baseline.Make({&options.learning_rate, 1}));
          });
    }
    return types;
  }();
  return registry;
}

}  // namespace lopt
