// Theta by an optimizer that asks for losses, not for gradients: any with `ask` and `tell`.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/parallel.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"

// Stands for yours: a (mu/mu, lambda) evolution strategy whose mean moves to that of the best
// quarter.
class EvolutionStrategy {
 public:
  EvolutionStrategy(Eigen::VectorXf mean, float std, size_t thetas, lopt::Key key)
      : mean_(std::move(mean)), std_(std), thetas_(thetas, mean_), key_(key) {}

  const Eigen::VectorXf& mean() const { return mean_; }

  const std::vector<Eigen::VectorXf>& Ask() {
    key_ = lopt::FoldIn(key_, 0);
    for (size_t k = 0; k < thetas_.size(); ++k) {
      lopt::Normal(lopt::FoldIn(key_, k + 1), lopt::AsSpan(thetas_[k]));
      thetas_[k] = mean_ + std_ * thetas_[k];
    }
    return thetas_;
  }

  void Tell(const std::vector<double>& losses) {
    std::vector<size_t> order(losses.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](size_t k) { return losses[k]; });
    order.resize(order.size() / 4);
    mean_.setZero();
    for (const size_t k : order) mean_ += thetas_[k] / static_cast<float>(order.size());
  }

 private:
  Eigen::VectorXf mean_;
  float std_;
  std::vector<Eigen::VectorXf> thetas_;
  lopt::Key key_;
};

int main() {
  // An estimator of type FullES says which episodes are run and what they count.
  const auto config =
      lopt::ReadOptions<lopt::MetaTrainConfig>(lopt::Config::Load(EXAMPLE_DIR "/config.json"));
  const auto optimizer = lopt::OptimizerRegistry().Make(config.learned_optimizer);
  const lopt::TaskResources data("");
  lopt::Estimators estimators;
  for (const lopt::Config& estimator : config.estimators) {
    estimators.push_back(lopt::EstimatorRegistry().Make(estimator, optimizer, data));
  }

  // All thetas of a generation get the same tasks and draws, those of its number.
  const lopt::Key key = lopt::KeyFromSeed(static_cast<uint64_t>(config.seed));
  const Eigen::VectorXf start = optimizer->InitTheta(lopt::ThetaKey(key));
  EvolutionStrategy search(start, .05F, 32, key);
  lopt::ThreadPool(2).Run([&] {
    for (int64_t generation = 0; generation < config.meta_steps; ++generation) {
      search.Tell(MetaLosses(search.Ask(), estimators, lopt::WorkerKey(key, 0), generation));
    }
  });

  // On draws that it has not seen.
  const std::vector<double> losses =
      MetaLosses(std::vector{start, search.mean()}, estimators, lopt::WorkerKey(key, 1), 0);
  fmt::print("{} weights: meta-loss {:.3f}, after {} generations {:.3f}\n", start.size(), losses[0],
             config.meta_steps, losses[1]);
  lopt::WriteThetaFile("ask_tell.safetensors", {.learned_optimizer = config.learned_optimizer,
                                                .theta = search.mean(),
                                                .meta_steps = config.meta_steps,
                                                .trained_horizon = 50});
  return losses[1] < losses[0] - 1 ? 0 : 1;
}
