// A task family of one's own, known by name in configs, and a learned optimizer trained for it.
#include <fmt/core.h>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/tasks/registry.h"

struct RegressionOptions {
  int64_t dim = 5;
  void Visit(lopt::FieldVisitor& v) { v.Field("dim", &dim, lopt::AtLeast(1), "Inputs."); }
};

// Least squares: every task has its own target weights and sees 16 new examples in each step.
class Regression : public lopt::TaskFamily {
 public:
  explicit Regression(const RegressionOptions& options)
      : TaskFamily(
            {.config = lopt::Layout({{"target", {lopt::CheckOptions("Regression", options).dim}}}),
             .params = lopt::Layout({{"w", {options.dim}}})}) {}

 private:
  void DoSample(lopt::Key key, std::span<float> config) const override { Normal(key, config); }
  void DoInit(std::span<const float>, lopt::Key key, std::span<float> w,
              std::span<float>) const override {
    Normal(key, w);
  }
  void DoEvaluate(const lopt::TaskEvaluation& e, lopt::Workspace& scratch) const override {
    const int64_t dim = params_layout().size();
    const lopt::Workspace::Frame frame(scratch);  // gives back at its end what is taken here
    Eigen::Map<Eigen::MatrixXf> x(scratch.Take<float>(dim * 16).data(), dim, 16);
    Eigen::Map<Eigen::VectorXf> errors(scratch.Take<float>(16).data(), 16);
    for (int64_t row = 0; row < e.rows; ++row) {
      Normal(e.keys[row], {x.data(), static_cast<size_t>(x.size())});
      const Eigen::Map<const Eigen::VectorXf> w(&e.params[row * dim], dim);
      const Eigen::Map<const Eigen::VectorXf> target(&e.config[row * dim], dim);
      errors.noalias() = x.transpose() * w;
      errors.noalias() -= x.transpose() * target;
      e.losses[row] = errors.squaredNorm() / 16;
      if (e.gradients.empty()) continue;
      Eigen::Map<Eigen::VectorXf>(&e.gradients[row * dim], dim).noalias() = x * errors / 8;
    }
  }
};

int main() {
  lopt::TaskRegistry().Add<RegressionOptions>(
      "Regression", "Least squares with new examples in each step.",
      [](const RegressionOptions& o, const auto&) { return std::make_shared<Regression>(o); });
  const auto config = lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Parse(
      R"({"learned_optimizer": {"type": "MLPLOpt", "hidden_size": 16}, "meta_steps": 100,
          "theta_opt": {"type": "Adam", "learning_rate": 0.01},
          "estimators": [{"type": "TruncatedPES", "task": {"type": "Regression", "dim": 8},
                          "num_tasks": 64, "trunc_length": 20,
                          "random_initial_iteration_offset": 100,
                          "lengths": {"type": "ConstantTruncationSchedule"}}]})",
      "native_task.cc"));
  double first = 0;
  lopt::MetaTrainerOptions options;
  options.on_step = [&](const lopt::MetaTrainProgress& p) {
    if (p.updates == 1) first = p.summary->mean_loss;
    fmt::print("update {:3}: loss {:.3f}\n", p.updates, p.summary->mean_loss);
  };
  return RunMetaTraining(config, options).last.mean_loss < 0.5 * first ? 0 : 1;
}
