// Learner and workers on the ranks of a program of one's own. Each rank computes a block of the
// logical workers; rank 0 is the learner too.
//   mpiexec -n 3 learner_and_workers
#include <fmt/core.h>

#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/transport/collectives.h"
#include "lopt/learner/transport/job.h"
#include "lopt/lopt/registry.h"

int main() {
  return lopt::RunJob([](lopt::Transport* ranks) {
    const auto config =
        lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Load(EXAMPLE_DIR "/config.json"));
    const auto optimizer = lopt::OptimizerRegistry().Make(config.learned_optimizer);
    const lopt::TaskResources data("");
    lopt::Estimators estimators;
    for (const lopt::Config& estimator : config.estimators) {
      estimators.push_back(lopt::EstimatorRegistry().Make(estimator, optimizer, data));
    }
    const lopt::GradientLearner learner(optimizer, config.theta_opt);
    const lopt::Key run_key = lopt::KeyFromSeed(static_cast<uint64_t>(config.seed));
    lopt::LearnerState state = learner.Init(lopt::ThetaKey(run_key));  // rank 0 goes on with it

    // This rank's logical workers.
    std::vector<lopt::Key> keys;
    std::vector<lopt::WorkerState> workers;
    for (int64_t w = config.workers * ranks->rank() / ranks->size();
         w < config.workers * (ranks->rank() + 1) / ranks->size(); ++w) {
      keys.push_back(lopt::WorkerKey(run_key, w));
      workers.push_back(
          lopt::InitWorkerState(learner.GetStateForWorker(state), estimators, keys.back()));
    }

    lopt::Collectives collectives(ranks);
    const lopt::RankGroup all = lopt::AllRanks(*ranks);
    for (int64_t update = 0; update < config.meta_steps; ++update) {
      // The learner's theta goes to all, and all put gradients to the learner.
      const auto weights = lopt::FromWire<lopt::WorkerWeights>(collectives.Await(
          collectives.Broadcast(all, 0, lopt::ToWire(learner.GetStateForWorker(state)))));
      const auto put = lopt::ComputeWorkers(weights, estimators, /*windows=*/1, keys, workers);
      std::vector<lopt::AggregatedGradient> gradients;
      for (const auto& bytes : collectives.Await(collectives.Gather(all, 0, lopt::ToWire(put)))) {
        for (auto& gradient : lopt::FromWire<std::vector<lopt::AggregatedGradient>>(bytes)) {
          gradients.push_back(std::move(gradient));
        }
      }
      if (ranks->rank() == 0) state = learner.Update(std::move(state), gradients);
    }
    if (ranks->rank() != 0) return 0;

    // The bits of `lopt meta-train` on any number of ranks.
    const bool same = lopt::RunMetaTraining(config, {}).learner.theta == state.theta;
    fmt::print("{} ranks {}\n", ranks->size(), same ? "give one process's theta" : "differ");
    return same ? 0 : 1;
  });
}
