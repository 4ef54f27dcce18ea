// A gradient estimator of one's own, known by name in configs: central differences in each number
// of theta, for learned optimizers that have few. What it estimates has a closed form here.
#include <fmt/core.h>

#include <cmath>

#include "lopt/base/eigen.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/estimator_options.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/lopt/registry.h"

struct DifferencesOptions {
  int64_t num_tasks = 8;
  double step = 0.01;
  void Visit(lopt::FieldVisitor& v) {
    v.Field("num_tasks", &num_tasks, lopt::AtLeast(1), "Tasks, the same for every difference.");
    v.Field("step", &step, lopt::Above(0), "Half the distance of the two thetas compared.");
  }
};

// Every estimate trains the same fresh tasks for one whole episode under each of the 2 D thetas.
class Differences : public lopt::GradientEstimator {
 public:
  Differences(std::shared_ptr<const lopt::InnerProblem> problem,
              std::shared_ptr<const lopt::TruncationSchedule> schedule,
              const DifferencesOptions& options)
      : GradientEstimator(problem->theta_layout()),
        problem_(std::move(problem)),
        schedule_(std::move(schedule)),
        options_(lopt::CheckOptions("Differences", options)) {}

 private:
  // Nothing lives between two estimates.
  lopt::EstimatorState DoInitWorkerState(const lopt::WorkerWeights&, lopt::Key) const override {
    return {};
  }

  lopt::GradientEstimate DoEstimate(const lopt::WorkerWeights& weights, lopt::Key key,
                                    lopt::EstimatorState*) const override {
    const int64_t length = schedule_->Length(FoldIn(key, 0), weights.outer);
    const std::vector<lopt::Key> keys = SplitKey(FoldIn(key, 1), options_.num_tasks);
    lopt::GradientEstimate estimate;
    estimate.gradient.resize(weights.theta.size());
    const auto losses = [&](int64_t i, double change) -> Eigen::ArrayXXd {  // [length, num_tasks]
      Eigen::VectorXf theta = weights.theta;
      theta(i) += static_cast<float>(change);
      const lopt::ThetaRows rows = {.theta = lopt::AsSpan(theta), .rows = options_.num_tasks};
      lopt::UnrollState state = problem_->Start(rows, weights.outer, keys, length);
      lopt::UnrollTrace trace;
      problem_->Run({rows, weights.outer, keys, length, &state, &trace});
      estimate.counts += CountSteps(trace);
      return trace.loss;
    };
    double sum = 0;
    for (int64_t i = 0; i < weights.theta.size(); ++i) {
      const Eigen::ArrayXXd up = losses(i, options_.step);
      const Eigen::ArrayXXd down = losses(i, -options_.step);
      estimate.gradient(i) = static_cast<float>((up - down).mean() / (2 * options_.step));
      sum += (up + down).mean() / 2;
    }
    estimate.mean_loss = sum / static_cast<double>(weights.theta.size());
    return estimate;
  }

  std::shared_ptr<const lopt::InnerProblem> problem_;
  std::shared_ptr<const lopt::TruncationSchedule> schedule_;
  DifferencesOptions options_;
};

using AllOptions = lopt::WithOwn<DifferencesOptions>;  // with the task, the lengths, the weight ...

std::shared_ptr<const lopt::ConfiguredEstimator> Make(
    const AllOptions& options, std::shared_ptr<const lopt::LearnedOptimizer> optimizer,
    const lopt::TaskResources& resources) {
  const auto schedule = lopt::ScheduleRegistry().Make(options.lengths);
  const auto problem =
      MakeProblem(options, std::move(optimizer),
                  std::make_shared<lopt::NeverEndingTruncationSchedule>(), resources);
  return ConfiguredBy(options, problem->task(), schedule,
                      std::make_shared<Differences>(problem, schedule, options.own));
}

int main() {
  lopt::EstimatorRegistry().Add<AllOptions>("Differences", "Central differences.", Make);
  const auto config = lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableSGD", "learning_rate": 0.1}, "meta_steps": 200,
          "theta_opt": {"type": "Adam", "learning_rate": 0.05},
          "estimators": [{"type": "Differences", "task": {"type": "QuadraticTask"},
                          "lengths": {"type": "ConstantTruncationSchedule",
                                       "total_length": 2}}]})",
      "own_estimator.cc"));

  // Gradient descent on |x|^2 with learning rate r makes (1 - 2 r) x of x. The mean loss of its
  // first two steps is |x|^2 (1 + (1 - 2 r)^2) / 2, whose derivative by theta = log(r) is
  // -2 |x|^2 r (1 - 2 r).
  const double r = 0.1;
  const auto optimizer = lopt::OptimizerRegistry().Make(config.learned_optimizer);
  const auto made =
      lopt::EstimatorRegistry().Make(config.estimators[0], optimizer, lopt::TaskResources(""));
  const lopt::WorkerWeights weights = {.theta = optimizer->InitTheta({}), .outer = {}};
  lopt::EstimatorState state = made->estimator->InitWorkerState(weights, {});
  const lopt::GradientEstimate at =
      made->estimator->Estimate(weights, lopt::KeyFromSeed(1), &state);
  const double ratio = at.gradient(0) / at.mean_loss;
  const double wanted = -4 * r * (1 - 2 * r) / (1 + (1 - 2 * r) * (1 - 2 * r));
  fmt::print("gradient / loss: {:.5f}, wanted {:.5f}\n", ratio, wanted);

  // The best learning rate makes x zero in one step.
  const double best = std::exp(RunMetaTraining(config, {}).learner.theta(0));
  fmt::print("learning rate {:.4f}, wanted 0.5\n", best);
  return std::abs(ratio - wanted) < 1e-3 && std::abs(best - 0.5) < 0.01 ? 0 : 1;
}
