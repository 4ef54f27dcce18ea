// One type of every kind, each the same as one of the program's.
#include "lopt/estimators/estimator_options.h"
#include "lopt/estimators/truncated_es.h"
#include "lopt/learner/plugin.h"
#include "lopt/lopt/rules/float64_rules.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/quadratic/quadratic.h"

namespace {

struct NoOptions {
  void Visit(lopt::FieldVisitor&) {}
};

class NoChange : public lopt::Augmentation {
 public:
  NoChange() : Augmentation(lopt::Layout()) {}
  bool Changes(const lopt::AugmentedRow&) const override { return false; }
  void Augment(const lopt::AugmentedRow&, const lopt::ImageBatch&, float*,
               lopt::Workspace&) const override {}
};

}  // namespace

LOPT_PLUGIN(types) {
  types.tasks.Add<lopt::QuadraticOptions>(
      "PluginTask", "FixedDimQuadraticFamily.", [](const auto& options, const auto&) {
        return std::make_shared<lopt::FixedDimQuadraticFamily>(options);
      });
  types.augmentations.Add<NoOptions>("PluginAugmentation", "None.", [](const auto&, const auto&) {
    return std::make_shared<NoChange>();
  });
  types.optimizers.Add<lopt::LearnableSGDOptions>(
      "PluginOptimizer", "LearnableSGD.",
      [](const auto& options) { return std::make_shared<lopt::LearnableSGD>(options); });
  types.optimizers.Add<lopt::SGDOptions>("PluginThetaOpt", "SGD.", [](const auto& options) {
    return std::make_shared<lopt::SGD>(options);
  });
  lopt::AddTruncated<lopt::TruncatedES, lopt::TruncatedES::Options>(
      &types.estimators, "PluginEstimator", "TruncatedES.");
  types.schedules.Add<lopt::ConstantTruncationSchedule::Options>(
      "PluginSchedule", "ConstantTruncationSchedule.", [](const auto& options) {
        return std::make_shared<lopt::ConstantTruncationSchedule>(options);
      });
}
