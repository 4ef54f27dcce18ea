// The tutorial's job end to end: meta-train, then train fresh tasks with the result.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lopt/base/eigen.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

constexpr int64_t kSteps = 300;

// Losses [kSteps, replicas] of fresh tasks, trained with theta. The draws are those of no training
// run.
UnrollTrace TrainFresh(const Config& task, const std::string& data_dir,
                       const Eigen::VectorXf& theta, int64_t replicas) {
  const LoptProblem problem(
      TaskRegistry().Make(task, TaskResources(data_dir)), std::make_shared<MLPLOpt>(),
      std::make_shared<NeverEndingTruncationSchedule>(), LoptProblemOptions{});
  const ThetaRows rows{.theta = AsSpan(theta), .rows = replicas};
  UnrollState state = problem.Start(rows, {}, SplitKey(KeyFromSeed(123456), replicas), kSteps);
  UnrollTrace trace;
  const std::vector<Key> keys = SplitKey(KeyFromSeed(654321), replicas);
  problem.Run({.theta = rows, .keys = keys, .steps = kSteps, .state = &state, .trace = &trace});
  return trace;
}

struct Outcome {
  double image_mean = 0;  // of the 300 losses, 16 image MLPs
  double image_last = 0;  // of the losses at steps 290 to 299
  double quadratic = 0;   // last loss, 1,024 quadratics
};

Outcome MetaTrainAndTry(int64_t updates, int64_t seed, const std::string& data_dir) {
  auto config = ReadOptions<MetaTrainConfig>(MetaTrainPresets().Find("tutorial"));
  config.meta_steps = updates;
  config.seed = seed;
  config.data_dir = data_dir;
  MetaTrainerOptions options;
  options.threads = 2;
  const Eigen::VectorXf theta = RunMetaTraining(config, options).learner.theta;
  const auto task = [&](size_t e) {
    return Config::FromJson(config.estimators[e].json().at("task"));
  };
  Outcome outcome;
  ThreadPool pool(2);
  pool.Run([&] {
    const UnrollTrace image = TrainFresh(task(1), data_dir, theta, 16);
    outcome.image_mean = image.loss.mean();
    outcome.image_last = image.loss.bottomRows(10).mean();
    outcome.quadratic = TrainFresh(task(0), data_dir, theta, 1024).loss.row(kSteps - 1).mean();
  });
  std::printf(
      "%6lld updates, seed %lld: image MLP mean %.3f, steps 290-299 %.3f; quadratic last %.4f\n",
      static_cast<long long>(updates), static_cast<long long>(seed), outcome.image_mean,
      outcome.image_last, outcome.quadratic);
  std::fflush(stdout);
  return outcome;
}

TEST_CASE("A short run on the generated images learns") {
  const Outcome before = MetaTrainAndTry(0, 0, "");
  const Outcome after = MetaTrainAndTry(200, 0, "");
  CHECK(before.image_last > 2.2);
  CHECK(before.quadratic > 18);
  CHECK(after.image_last < 2.1);
  CHECK(after.quadratic < 17.5);
}

TEST_CASE("A run of 400 updates on the generated images learns" * doctest::test_suite("nightly")) {
  const Outcome after = MetaTrainAndTry(400, 0, "");
  CHECK(after.image_last < 1.6);
  CHECK(after.quadratic < 16);
}

// Takes minutes, so it runs only when asked for, by tools/main_job, which makes a directory where
// all 10,000 images are the train split. The JAX package has a mean of .531 there (7 seeds, sd
// .046); on quadratics one seed has ten times the loss of another, so no mean of five is checked.
TEST_CASE("slow: a thousand updates on real digits reach the reference's losses" *
          doctest::skip()) {
  const char* data_dir = std::getenv("LOPT_MNIST_DIR");
  REQUIRE_MESSAGE(data_dir != nullptr,
                  "LOPT_MNIST_DIR must name a directory with IDX files of digits");
  double image = 0;
  double quadratic = 0;
  constexpr int kSeeds = 5;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Outcome outcome = MetaTrainAndTry(1000, seed, data_dir);
    image += outcome.image_last / kSeeds;
    quadratic += outcome.quadratic / kSeeds;
  }
  std::printf("mean of %d seeds: image MLP, steps 290-299 %.3f; quadratic last %.4f\n", kSeeds,
              image, quadratic);
  CHECK(image <= 0.60);
}

}  // namespace
}  // namespace lopt
