#include "lopt/learner/train/train_optimizer.h"

#include <memory>
#include <span>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/of_another.h"
#include "lopt/lopt/rules/scaled_steps.h"
#include "lopt/lopt/rules/unknown_length.h"

namespace lopt {
namespace {

struct ThetaOptions {
  std::string file;
  double lr = 1;
  bool unknown_length = false;
  void Visit(FieldVisitor& v) {
    v.Field("file", &file, "The theta file, relative to the working directory.");
    v.Field("lr", &lr, Above(0),
            "What multiplies every step; 1 is the optimizer as it was trained.");
    v.Field("unknown_length", &unknown_length,
            "Whether the optimizer is not told the number of steps, which may then change on "
            "resume; what is evaluated and saved is an average over about the last tenth of them.");
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

// Another optimizer whose steps are multiplied.
class ScaledOptimizer : public OfAnotherOptimizer {
 public:
  ScaledOptimizer(const std::shared_ptr<const LearnedOptimizer>& optimizer, double lr)
      : OfAnotherOptimizer(optimizer, optimizer->theta_layout(), optimizer->needs_num_steps()),
        lr_(static_cast<float>(lr)) {}

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    return ScaleSteps(optimizer().Bind(params, theta), lr_);
  }

  float lr_;
};

// An average is one of steps that were multiplied, also where the file's optimizer averages.
std::shared_ptr<const LearnedOptimizer> OptimizerOf(Config config, const ThetaOptions& options) {
  const bool averages = config.Type() == "UnknownLength";
  if (averages) config = ReadOptions<UnknownLengthOptions>(config).optimizer;
  std::shared_ptr<const LearnedOptimizer> optimizer = OptimizerRegistry().Make(config);
  if (options.lr != 1) optimizer = std::make_shared<ScaledOptimizer>(optimizer, options.lr);
  if (!averages && !options.unknown_length) return optimizer;
  return std::make_shared<UnknownLength>(optimizer);
}

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
          TrainedRange range = file.trained_range;
          range.longest_training = file.trained_horizon;  // also where that alone is known
          return std::make_shared<TrainOptimizer>(
              TrainOptimizer{OptimizerOf(file.learned_optimizer, options), file.theta, range});
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
