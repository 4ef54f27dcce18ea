#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/gradient_buffer.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "tests/error_of.h"
#include "tests/learner_fakes.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

WorkerGradient OfStep(int64_t step, int64_t worker = 0) {
  WorkerGradient gradient;
  gradient.worker = worker;
  gradient.gradient.outer_step = step;
  return gradient;
}

TEST_CASE("A gradient is taken if its weights are at most `staleness` updates behind") {
  GradientBuffer buffer({.batch_size = 1, .staleness = 2});
  CHECK_FALSE(buffer.Put(5, OfStep(2)));
  CHECK(buffer.Put(5, OfStep(3)));
  CHECK(buffer.Put(5, OfStep(5)));
  CHECK_FALSE(buffer.Put(5, OfStep(6)));
  CHECK(buffer.gradients().size() == 2);
}

TEST_CASE("A batch is the oldest gradients, and the others stay") {
  GradientBuffer buffer({.batch_size = 5, .staleness = 2});
  for (int64_t worker = 0; worker < 8; ++worker) {
    CHECK(buffer.Ready() == (worker >= 5));
    CHECK(buffer.Put(3, OfStep(3, worker)));
  }
  const std::vector<WorkerGradient> batch = buffer.Gather();
  REQUIRE(batch.size() == 5);
  for (int64_t worker = 0; worker < 5; ++worker) {
    CHECK(batch[static_cast<size_t>(worker)].worker == worker);
  }
  CHECK(buffer.gradients().size() == 3);
  CHECK_THROWS_WITH_AS(buffer.Gather(), "a batch of 5 gradients is not there, only 3", Error);
  CHECK(buffer.Prune(5).empty());
  CHECK(buffer.Prune(6).size() == 3);
  CHECK(buffer.gradients().empty());
}

TEST_CASE("Under discount old gradients are kept and weigh 1 over 1 + age") {
  GradientBuffer buffer(
      {.batch_size = 1, .staleness = 2, .staleness_policy = StalenessPolicy::kDiscount});
  CHECK(buffer.Put(5, OfStep(1)));
  CHECK_FALSE(buffer.Put(5, OfStep(6)));
  CHECK(buffer.Weight(5, OfStep(1)) == 0.2);
  CHECK(buffer.Weight(5, OfStep(3)) == 1);
  CHECK(buffer.Prune(9).empty());
}

TEST_CASE("In any order of arrival every gradient of staleness 0 is of the learner's step") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    GradientBuffer buffer({.batch_size = 5, .staleness = 0});
    int64_t step = 0;
    std::vector<int64_t> weights_of(5);  // the step that each worker computes with
    int64_t put = 0, dropped = 0, used = 0;
    for (uint64_t event = 0; step < 10; ++event) {
      const auto worker = static_cast<size_t>(Randint(FoldIn(KeyFromSeed(seed), event), 0, 5));
      ++put;
      dropped += buffer.Put(step, OfStep(weights_of[worker], static_cast<int64_t>(worker))) ? 0 : 1;
      weights_of[worker] = step;
      if (buffer.Ready()) {
        for (const WorkerGradient& gradient : buffer.Gather()) {
          CHECK(gradient.gradient.outer_step == step);
          ++used;
        }
        ++step;
        dropped += static_cast<int64_t>(buffer.Prune(step).size());
      }
    }
    CHECK(used == 50);
    CHECK(put == used + dropped);
  }
}

std::atomic<int64_t> echo_windows = 0;  // run so far, in any test

// An estimator whose gradient is the outer step of its weights.
struct EchoOptions {
  void Visit(FieldVisitor&) {}
};

MetaTrainConfig Echo(const AsyncOptions& mode) {
  static const bool added = [] {
    EstimatorRegistry().Add<EchoOptions>(
        "Echo", "Its gradient is the outer step.",
        [](const EchoOptions&, const std::shared_ptr<const LearnedOptimizer>&,
           const TaskResources&) {
          return Configured([](const WorkerWeights& weights, Key, int64_t) {
            ++echo_windows;
            const auto step = static_cast<float>(weights.outer.outer_step);
            return GradientEstimate{.gradient = Eigen::VectorXf::Constant(1, step),
                                    .mean_loss = step,
                                    .counts = {.inner_steps = 10},
                                    .metrics = {}};
          });
        });
    return true;
  }();
  CHECK(added);
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableSGD", "learning_rate": 1},
          "theta_opt": {"type": "SGD", "learning_rate": 1}, "workers": 5, "meta_steps": 10,
          "estimators": [{"type": "Echo"}], "checkpoint_steps": 4})",
      "test"));
  config.mode = WriteOptions("Async", mode);
  return config;
}

TEST_CASE("Ten asynchronous updates of five workers use gradients of the learner's own step") {
  for (int repeat = 0; repeat < 3; ++repeat) {
    const LocalJob job = RunLocalJob(Echo({.batch_size = 5, .staleness = 0}), 5);
    CHECK(job.errors == std::vector<std::string>(5));
    CHECK(job.result.learner.outer_step == 10);
    // 0 + 1 + ... + 9, from log(1) = 0.
    CHECK(job.result.learner.theta[0] == -45);
    const StepShares total = job.result.ledger.Total();
    CHECK(total[Outcome::kUsed] == 10 * 5 * 10);
    CHECK(total[Outcome::kLate] + total[Outcome::kNonFinite] == 0);
  }
}

TEST_CASE("An asynchronous run that is resumed accounts for what was pending") {
  const TempDirectory directory;
  MetaTrainConfig config = Echo({.batch_size = 3});
  const LocalJob first = RunLocalJob(config, 3, MetaTrainerOptions{.out_dir = directory.path()});
  CHECK(first.errors == std::vector<std::string>(3));
  config.meta_steps = 20;
  const LocalJob second =
      RunLocalJob(config, 2, MetaTrainerOptions{.out_dir = directory.path(), .resume = true});
  CHECK(second.errors == std::vector<std::string>(2));
  const auto checkpoint = CheckpointStore(directory / "checkpoints", {}).ReadNewest();
  CHECK(checkpoint->learner.outer_step == 20);
  // Every window of 10 steps that a worker has run is in one of the shares.
  int64_t windows = 0;
  for (const WorkerState& worker : checkpoint->workers) windows += worker.windows;
  CHECK(second.result.ledger.UnknownWindows() == 0);
  CHECK(checkpoint->ledger.Total().Total() == 10 * windows);
  CHECK(second.result.ledger == checkpoint->ledger);
  CHECK(second.result.ledger.Total()[Outcome::kUsed] == 20 * 3 * 10);
}

TEST_CASE("An asynchronous run that fails and is resumed counts what it lost") {
  const TempDirectory directory;
  const MetaTrainConfig config = Echo({.batch_size = 2, .staleness = 3});
  const int64_t before = echo_windows;
  // The newest checkpoint is of update 4.
  const LocalJob failed = RunLocalJob(config, 3, [&](int rank) {
    MetaTrainerOptions options{.out_dir = directory.path()};
    if (rank == 0) {
      options.on_event = [](std::string_view event) {
        if (event == "step:7") throw Error("enough");
      };
    }
    return options;
  });
  CHECK(failed.errors[0] == "enough");
  const LocalJob resumed =
      RunLocalJob(config, 2, MetaTrainerOptions{.out_dir = directory.path(), .resume = true});
  CHECK(resumed.errors == std::vector<std::string>(2));
  const Ledger& ledger = resumed.result.ledger;
  CHECK(ledger.Total()[Outcome::kUsed] == 10 * 2 * 10);
  CHECK(ledger.Total()[Outcome::kLost] > 0);
  // The windows of 10 steps that have run; of those in flight at the failure some had not begun,
  // and those rolled back that were not run again are known by their number only.
  const int64_t counted = ledger.Total().Total() / 10 + ledger.UnknownWindows();
  CHECK(counted >= echo_windows - before);
  CHECK(counted <= echo_windows - before + config.workers);
}

TEST_CASE("With a deadline an update goes ahead with a quorum, and the rest is late") {
  // The mean over those that arrived: each update's gradient is the outer step in any case.
  MetaTrainConfig config = Echo({});
  config.mode = WriteOptions("Sync", SyncOptions{.deadline_seconds = 1e-9, .quorum = 2});
  const LocalJob job = RunLocalJob(config, 3);
  CHECK(job.errors == std::vector<std::string>(3));
  CHECK(job.result.learner.theta[0] == -45);
  const StepShares total = job.result.ledger.Total();
  CHECK(total[Outcome::kUsed] >= 10 * 2 * 10);
  CHECK(total[Outcome::kUsed] <= 10 * 5 * 10);
  CHECK(total[Outcome::kUsed] + total[Outcome::kLate] == total.Total());
}

TEST_CASE("Keys that do not go together are errors, from C++ as from a file") {
  MetaTrainConfig config = SmallExperiment(1);
  const auto error = [&] {
    const std::string text = ErrorOf([&] { CheckConfig(config); });
    CHECK(ErrorOf([&] { RunMetaTraining(config, {}); }) == text);
    CHECK(ErrorOf([&] { Experiment experiment(config); }) == text);
    return text;
  };
  const auto sync = [](double deadline_seconds, int64_t quorum) {
    return WriteOptions("Sync",
                        SyncOptions{.deadline_seconds = deadline_seconds, .quorum = quorum});
  };
  config.mode = sync(1, 0);
  CHECK(error() ==
        "deadline_seconds and quorum go together: the time after which an update goes ahead and "
        "the workers that it needs at least; got 1 and 0");
  config.mode = sync(0, 1);
  CHECK(error().starts_with("deadline_seconds and quorum go together"));
  config.mode = sync(1, 2);
  CHECK(error() == "mode.quorum is 2, but there are only 1 workers");
  config.mode = Config::Parse(R"({"type": "Asynch"})", "test");
  CHECK(error().find("Asynch") != std::string::npos);
  config.mode = Config::Parse(R"({"type": "Async", "quorum": 2})", "test");
  CHECK(error().find("unknown key 'mode.quorum'") != std::string::npos);
  config = SmallExperiment(1);
  config.estimators_per_worker = 4;
  CHECK(error() == "estimators_per_worker is 4, but there are only 3 estimators");
  config.estimators_per_worker = 2;
  CHECK(error().starts_with("1 workers with 2 estimators each do not run all 3 estimators"));
  config = SmallExperiment(1);
  config.keep_last = 0;
  CHECK(error() == "meta-training: keep_last must be at least 1, got 0");
  config = SmallExperiment(1);
  config.estimators.clear();
  CHECK(error() == "estimators: must name at least one estimator");
}

TEST_CASE("The mode is Sync by default, and a file says the same as C++") {
  const auto read = [](const std::string& mode) {
    return *ModeRegistry().Make(Config::Parse(mode, "test"));
  };
  const auto sync = std::get<SyncOptions>(*ModeRegistry().Make(SmallExperiment(1).mode));
  CHECK(sync.deadline_seconds == 0);
  CHECK(sync.quorum == 0);
  const auto async = std::get<AsyncOptions>(read(R"({"type": "Async", "batch_size": 3,
      "staleness": 2, "staleness_policy": "discount"})"));
  CHECK(async.batch_size == 3);
  CHECK(async.staleness == 2);
  CHECK(async.staleness_policy == StalenessPolicy::kDiscount);
  CHECK(WriteOptions("Async", async).Dump(-1) ==
        R"({"type":"Async","batch_size":3,"staleness":2,"staleness_policy":"discount"})");
  CHECK(WhyNotReproducible(read(R"({"type": "Sync"})")).empty());
  CHECK(WhyNotReproducible(async).starts_with("mode Async: "));
  CHECK(WhyNotReproducible(read(R"({"type": "Sync", "deadline_seconds": 2, "quorum": 1})"))
            .starts_with("deadline_seconds is 2: "));
}

TEST_CASE("The keys of the mode that were at the top level are errors that say where they are") {
  const auto error = [](const std::string& keys) {
    return ErrorOf([&] {
      ReadOptions<MetaTrainConfig>(Config::Parse(R"({"learned_optimizer": {"type": "LearnableSGD"},
                            "theta_opt": {"type": "SGD"}, "estimators": [], )" +
                                                     keys + "}",
                                                 "test"));
    });
  };
  CHECK(error(R"("seed": 1)") == "no error");
  CHECK(error(R"("mode": "async", "batch_size": 2)") ==
        "config: 2 problems\n"
        "  'batch_size' is now a key of mode: \"mode\": {\"type\": \"Async\", ...}\n"
        "  'mode' must be an object with a \"type\", got \"async\"; valid types of mode: Sync, "
        "Async");
  CHECK(error(R"("quorum": 2)") ==
        "config: 'quorum' is now a key of mode: \"mode\": {\"type\": \"Sync\", ...}");
}

TEST_CASE("Estimators are dealt out in turn or drawn, and a worker runs its own only") {
  MetaTrainConfig config = SmallExperiment(4, 4);
  CHECK(EstimatorsOfWorker(config, 2) == std::vector<int64_t>{0, 1, 2});
  config.estimators_per_worker = 2;
  CHECK(EstimatorsOfWorker(config, 0) == std::vector<int64_t>{0, 1});
  CHECK(EstimatorsOfWorker(config, 1) == std::vector<int64_t>{0, 2});
  CHECK(EstimatorsOfWorker(config, 2) == std::vector<int64_t>{1, 2});
  const MetaTrainResult result = RunMetaTraining(config, {});
  CHECK(RunLocalJob(config, 3).result.learner.theta == result.learner.theta);
  for (int64_t w = 0; w < 4; ++w) {
    const std::vector<int64_t> chosen = EstimatorsOfWorker(config, w);
    for (int64_t e = 0; e < 3; ++e) {
      const bool runs = std::find(chosen.begin(), chosen.end(), e) != chosen.end();
      CHECK((result.ledger.Of(w, e).Total() > 0) == runs);
    }
  }
  config.estimator_placement = EstimatorPlacement::kRandom;
  std::vector<int64_t> times(3);
  for (int64_t w = 0; w < 300; ++w) {
    const std::vector<int64_t> drawn = EstimatorsOfWorker(config, w);
    REQUIRE(drawn.size() == 2);
    CHECK(drawn[0] < drawn[1]);
    for (const int64_t e : drawn) ++times[static_cast<size_t>(e)];
  }
  // Each with probability 2/3: 200, standard error 8.2.
  for (const int64_t count : times) CHECK(std::abs(count - 200) < 33);
}

}  // namespace
}  // namespace lopt
