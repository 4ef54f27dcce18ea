// A learned optimizer of one's own, known by name in configs: signs of a momentum (Signum,
// Bernstein et al. 2018) with learning rate and decay as theta, meta-trained from a rate that is
// far too small.
#include <fmt/core.h>

#include <cmath>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/lopt/registry.h"

// m <- b m + (1 - b) g; p <- p - exp(log_lr) sign(m), with b = 1 - exp(log_one_minus_b).
class SignumRule : public lopt::UpdateRule {
 public:
  SignumRule(const lopt::Layout& params, const lopt::Layout& state, std::span<const float> theta)
      : UpdateRule(params, state), rate_(std::exp(theta[0])), b_(1 - std::exp(theta[1])) {}

 private:
  void DoUpdate(const lopt::StepInfo&, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, lopt::Workspace&) const override {
    float against = 0;  // numbers that step against their gradient
    for (size_t i = 0; i < params.size(); ++i) {
      float& momentum = state[i];
      momentum = b_ * momentum + (1 - b_) * gradient[i];
      if (momentum != 0) params[i] -= std::copysign(rate_, momentum);
      if (momentum * gradient[i] < 0) ++against;
    }
    state.back() = against;
  }

  float rate_;
  float b_;
};

struct SignumOptions {
  double learning_rate = 1e-3;
  double decay = 0.9;
  void Visit(lopt::FieldVisitor& v) {
    v.Field("learning_rate", &learning_rate, lopt::Above(0), "Before meta-training.");
    v.Field("decay", &decay, {.min = 0, .max = 1, .open_max = true},
            "Of the momentum, before meta-training.");
  }
};

class Signum : public lopt::LearnedOptimizer {
 public:
  explicit Signum(const SignumOptions& options)
      : LearnedOptimizer(lopt::Layout({{"log_lr", {1}}, {"log_one_minus_b", {1}}})),
        options_(lopt::CheckOptions("Signum", options)) {}

 private:
  void DoInitTheta(lopt::Key, std::span<float> theta) const override {
    theta[0] = static_cast<float>(std::log(options_.learning_rate));
    theta[1] = static_cast<float>(std::log(1 - options_.decay));
  }
  std::unique_ptr<lopt::UpdateRule> DoBind(const lopt::Layout& params,
                                           std::span<const float> theta) const override {
    const lopt::Layout state({{"momentum", {params.size()}}, {"noted/against", {}}});
    return std::make_unique<SignumRule>(params, state, theta);
  }

  SignumOptions options_;
};

int main() {
  lopt::OptimizerRegistry().Add<SignumOptions>(
      "Signum", "Steps of one size in the direction of a momentum's signs.",
      [](const SignumOptions& options) { return std::make_shared<Signum>(options); });
  const auto config = lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Parse(
      R"({"learned_optimizer": {"type": "Signum", "learning_rate": 1e-4}, "meta_steps": 200,
          "theta_opt": {"type": "Adam", "learning_rate": 0.05},
          "estimators": [{"type": "TruncatedPES", "num_tasks": 4, "trunc_length": 20, "std": 0.1,
                          "task": {"type": "ImageMLP", "hidden": [8], "batch_size": 32},
                          "random_initial_iteration_offset": 100, "with_metrics": true,
                          "lengths": {"type": "ConstantTruncationSchedule"}}]})",
      "own_optimizer.cc"));
  double first = 0;
  lopt::MetaTrainerOptions options;
  options.on_step = [&](const lopt::MetaTrainProgress& p) {
    if (p.updates == 1) first = p.summary->mean_loss;
    fmt::print("update {:3}: loss {:.3f}, {:.0f} numbers against their gradient\n", p.updates,
               p.summary->mean_loss, p.summary->estimators[0].metrics.at("optimizer/against"));
  };
  const lopt::MetaTrainResult result = RunMetaTraining(config, options);
  fmt::print("learning rate {:.4f}\n", std::exp(result.learner.theta(0)));
  return result.last.mean_loss < 0.6 * first ? 0 : 1;
}
