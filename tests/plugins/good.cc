// One type of every kind, each the same as one of the program's.
#include "lopt/estimators/estimator_options.h"
#include "lopt/estimators/truncated_es.h"
#include "lopt/learner/plugin.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/quadratic/quadratic.h"

namespace {

// SGD.
class PluginThetaOpt : public lopt::ThetaOpt {
 public:
  explicit PluginThetaOpt(const lopt::ThetaOptOptions& options)
      : ThetaOpt(lopt::CheckOptions("PluginThetaOpt", options), {}) {}

 private:
  void DoUpdate(double learning_rate, int64_t, std::span<const double> gradient,
                std::span<float> theta, std::span<const std::span<float>>) const override {
    for (size_t i = 0; i < theta.size(); ++i) {
      theta[i] = static_cast<float>(theta[i] - learning_rate * gradient[i]);
    }
  }
};

struct NoOptions {
  void Visit(lopt::FieldVisitor&) {}
};

struct HalfRate : lopt::LearningRateSchedule {
  double Scale(int64_t) const override { return 0.5; }
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
  lopt::AddTruncated<lopt::TruncatedES, lopt::TruncatedES::Options>(
      &types.estimators, "PluginEstimator", "TruncatedES.");
  types.schedules.Add<lopt::ConstantTruncationSchedule::Options>(
      "PluginSchedule", "ConstantTruncationSchedule.", [](const auto& options) {
        return std::make_shared<lopt::ConstantTruncationSchedule>(options);
      });
  types.theta_opts.Add<lopt::ThetaOptOptions>("PluginThetaOpt", "SGD.", [](const auto& options) {
    return std::make_shared<PluginThetaOpt>(options);
  });
  types.learning_rate_schedules.Add<NoOptions>(
      "PluginRate", "Half the rate.", [](const auto&) { return std::make_shared<HalfRate>(); });
}
