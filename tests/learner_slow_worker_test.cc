// Runs whose updates do not wait for all workers, with one that is as slow as can be: its windows
// end when a given number of updates has been made without it.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/estimators/registry.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/window_journal.h"
#include "lopt/tasks/registry.h"
#include "tests/learner_fakes.h"
#include "tests/learner_local_job.h"
#include "tests/temp_directory.h"
#include "tests/watched_transport.h"

namespace lopt {
namespace {

std::atomic<int64_t> updates_made = 0;
std::atomic<int64_t> slow_until = 0;  // updates; windows that begin later are quick

// An estimator that computes nothing, at once or slowly.
struct WaitOptions {
  bool slow = false;
  bool fails = false;
  void Visit(FieldVisitor& v) {
    v.Field("slow", &slow, "Whether it waits.");
    v.Field("fails", &fails, "Whether it throws.");
  }
};

MetaTrainConfig TwoWorkers(const Config& mode, int64_t meta_steps) {
  static const bool added = [] {
    EstimatorRegistry().Add<WaitOptions>(
        "Wait", "Waits.",
        [](const WaitOptions& options, const std::shared_ptr<const LearnedOptimizer>&,
           const TaskResources&) {
          return Configured([options](const WorkerWeights&, Key, int64_t) {
            Require(!options.fails, "the window failed");
            while (options.slow && updates_made < slow_until) {
              std::this_thread::yield();
            }
            return GradientEstimate{.gradient = Eigen::VectorXf::Zero(1),
                                    .mean_loss = 1,
                                    .counts = {.inner_steps = 10},
                                    .metrics = {}};
          });
        });
    return true;
  }();
  CHECK(added);
  auto config = ReadOptions<MetaTrainConfig>(Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableSGD"}, "workers": 2, "estimators_per_worker": 1,
          "estimators": [{"type": "Wait"}, {"type": "Wait", "slow": true}]})",
      "test"));
  config.mode = mode;
  config.meta_steps = meta_steps;
  return config;
}

// Both modes, with windows of worker 1 that take `updates` updates.
void WithSlowWorker(int64_t updates, const std::function<void(const Config& mode)>& test) {
  for (const Config& mode :
       {WriteOptions("Async", AsyncOptions{.staleness = 1000000}),
        WriteOptions("Sync", SyncOptions{.deadline_seconds = 1e-9, .quorum = 1})}) {
    CAPTURE(mode.Dump());
    updates_made = 0;
    slow_until = updates;
    test(mode);
  }
}

// Rank 0's options: counts the updates.
MetaTrainerOptions Counting(const std::string& directory = {}) {
  return {.out_dir = directory, .on_event = [](std::string_view event) {
            updates_made += event.starts_with("step:") ? 1 : 0;
          }};
}

TEST_CASE("Updates go on while a checkpoint waits for the window of a slow worker") {
  WithSlowWorker(50, [](const Config& mode) {
    const TempDirectory directory;
    MetaTrainConfig config = TwoWorkers(mode, 60);
    config.checkpoint_steps = 4;
    config.keep_last = 100;
    const LocalJob job = RunLocalJob(config, 2, Counting(directory.path()));
    CHECK(job.errors == std::vector<std::string>(2));
    CHECK(job.result.learner.outer_step == 60);
    const std::vector<int64_t> steps = CheckpointStore(directory / "checkpoints", {}).Steps();
    REQUIRE(steps.size() >= 3);
    CHECK(steps[1] == 4);  // complete when 50 updates had been made
    CHECK(steps.back() == 60);
    // Each accounts for all that its workers' states have behind them.
    for (const int64_t step : steps) {
      CAPTURE(step);
      const Checkpoint checkpoint =
          ReadCheckpoint(CheckpointStore(directory / "checkpoints", {}).Path(step));
      CHECK(checkpoint.learner.outer_step == step);
      for (int64_t w = 0; w < 2; ++w) {
        CHECK(checkpoint.ledger.OfWorker(w).Total() ==
              10 * checkpoint.workers[static_cast<size_t>(w)].windows);
      }
      CHECK(checkpoint.ledger.Total()[Outcome::kUsed] >= 10 * step);
    }
  });
}

TEST_CASE("The journal holds just the windows that ran, when weights were in flight too") {
  WithSlowWorker(20, [](const Config& mode) {
    const TempDirectory directory;
    const LocalJob job = RunLocalJob(TwoWorkers(mode, 40), 2, Counting(directory.path()));
    CHECK(job.errors == std::vector<std::string>(2));
    const auto checkpoint = CheckpointStore(directory / "checkpoints", {}).ReadNewest();
    Ledger ledger(2, 2);
    WindowJournal(directory / "windows.bin").GoOnFrom(0, std::vector<int64_t>(2), &ledger);
    CHECK(ledger.UnknownWindows() ==
          checkpoint->workers[0].windows + checkpoint->workers[1].windows);
    CHECK(checkpoint->ledger == job.result.ledger);
  });
}

TEST_CASE("The cause of a failure is told before what the learner's rank computes is waited for") {
  MetaTrainConfig config = TwoWorkers(WriteOptions("Sync", SyncOptions{}), 5);
  config.estimators = {config.estimators[1], config.estimators[0].With("fails", "true")};
  updates_made = 0;
  slow_until = 1;
  std::string cause;
  MetaTrainerOptions options;
  options.on_failure = [&](const char* text) {
    cause = text;
    slow_until = 0;
  };
  const LocalJob job = RunLocalJob(config, 2, options);
  CHECK(cause.starts_with("rank 1 ("));
  CHECK(cause.ends_with("): the window failed"));
  CHECK(job.errors[0] == cause);
}

std::atomic<bool> late_gradient_came = false;

// A task that is judged after the last update until the slow worker's gradient has come.
class LongJudged final : public TaskFamily {
 public:
  LongJudged() : TaskFamily({.params = Layout({{"x", {1}}})}) {}

 private:
  void DoInit(std::span<const float>, Key, std::span<float> params,
              std::span<float>) const override {
    params[0] = 0;
  }
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace&) const override {
    while (updates_made >= slow_until && !late_gradient_came) {
      std::this_thread::yield();
    }
    std::ranges::fill(evaluation.losses, 1.0F);
    std::ranges::fill(evaluation.gradients, 0.0F);
  }
};

struct LongJudgedOptions {
  void Visit(FieldVisitor&) {}
};

TEST_CASE("While the last theta is judged no worker gets weights") {
  TaskRegistry().Add<LongJudgedOptions>("LongJudged", "For this test.",
                                        [](const LongJudgedOptions&, const TaskResources&) {
                                          return std::make_shared<LongJudged>();
                                        });
  MetaTrainConfig config =
      TwoWorkers(WriteOptions("Sync", SyncOptions{.deadline_seconds = 1e-9, .quorum = 1}), 3);
  config.eval_tasks = {Config::Parse(R"({"type": "LongJudged"})", "test")};
  config.eval_every = 3;
  config.eval_steps = 1;
  config.eval_seeds = 1;
  updates_made = 0;
  slow_until = 3;
  const auto transports = MakeLocalTransports(2);
  int sent = 0;
  WatchedTransport watched(
      transports[0].get(), [&](int to, int kind) { sent += to == 1 && kind == kWeights ? 1 : 0; },
      [](int from, int kind) {
        if (from == 1 && kind == kGradients) late_gradient_came = true;
      });
  MetaTrainerOptions options = Counting();
  options.transport = &watched;
  std::thread other([&] { RunMetaTraining(config, {.transport = transports[1].get()}); });
  CHECK(RunMetaTraining(config, options).learner.outer_step == 3);
  other.join();
  CHECK(late_gradient_came);
  CHECK(sent == 1);
}

TEST_CASE("A rank that does not answer has one message with weights at a time") {
  WithSlowWorker(50, [](const Config& mode) {
    const auto transports = MakeLocalTransports(2);
    int outstanding = 0;
    int most = 0;
    WatchedTransport watched(
        transports[0].get(),
        [&](int to, int kind) {
          outstanding += to == 1 && kind == kWeights ? 1 : 0;
          most = std::max(most, outstanding);
        },
        [&](int from, int kind) { outstanding -= from == 1 && kind == kGradients ? 1 : 0; });
    MetaTrainerOptions options = Counting();
    options.transport = &watched;
    const MetaTrainConfig config = TwoWorkers(mode, 60);
    std::thread other([&] { RunMetaTraining(config, {.transport = transports[1].get()}); });
    CHECK(RunMetaTraining(config, options).learner.outer_step == 60);
    other.join();
    CHECK(most == 1);
  });
}

}  // namespace
}  // namespace lopt
