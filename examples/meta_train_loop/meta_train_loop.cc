// The loop that `lopt meta-train` runs, by hand: workers compute gradients under the learner's
// weights, and the learner steps theta by their mean.
#include <fmt/core.h>

#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/lopt/registry.h"

int main() {
  const auto config =
      lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Load(EXAMPLE_DIR "/config.json"));

  // The parts, each made by its name from a config; types of one's own are registered first.
  const auto optimizer = lopt::OptimizerRegistry().Make(config.learned_optimizer);
  const lopt::TaskResources data("");
  lopt::Estimators estimators;
  for (const lopt::Config& estimator : config.estimators) {
    estimators.push_back(lopt::EstimatorRegistry().Make(estimator, optimizer, data));
  }
  const lopt::GradientLearner learner(optimizer, config.theta_opt);

  // All that lives between two updates is in these states, and all that is random comes from this
  // key, so the loop can be stopped, saved and moved anywhere.
  const lopt::Key run_key = lopt::KeyFromSeed(static_cast<uint64_t>(config.seed));
  lopt::LearnerState state = learner.Init(lopt::ThetaKey(run_key));
  std::vector<lopt::WorkerState> workers;
  for (int64_t w = 0; w < config.workers; ++w) {
    workers.push_back(lopt::InitWorkerState(learner.GetStateForWorker(state), estimators,
                                            lopt::WorkerKey(run_key, w)));
  }

  for (int64_t update = 1; update <= config.meta_steps; ++update) {
    const lopt::WorkerWeights weights = learner.GetStateForWorker(state);
    std::vector<lopt::AggregatedGradient> gradients;
    for (int64_t w = 0; w < config.workers; ++w) {
      gradients.push_back(lopt::GradientWorkerCompute(weights, estimators, /*windows=*/1,
                                                      lopt::WorkerKey(run_key, w), &workers[w]));
    }
    lopt::UpdateSummary summary;
    state = learner.Update(std::move(state), gradients, &summary);
    if (update % 10 == 0) {
      fmt::print("update {:3}: loss {:.3f}, gradient {:.3f}\n", update, summary.mean_loss,
                 summary.gradient_norm);
    }
  }

  // The same bits as the library's own loop, which is that of the program.
  const bool same = lopt::RunMetaTraining(config, {}).learner.theta == state.theta;
  fmt::print("RunMetaTraining {}\n", same ? "gives the same theta" : "differs");
  return same ? 0 : 1;
}
