#include "lopt/tools/simulate/small_run.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/mode.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/tools/simulate/disk.h"
#include "lopt/tools/simulate/process.h"
#include "lopt/tools/simulate/process_files.h"
#include "lopt/tools/simulate/quiet_log.h"

namespace lopt {
namespace {

constexpr int64_t kAsyncBatch = 2;

UndisturbedRun RunUndisturbed(const SmallRunKind& kind) {
  MetaTrainConfig config = SmallRun(kind);
  config.checkpoint_steps = 1;
  config.keep_last = config.meta_steps + 1;
  World world(0, false);
  const QuietLog log(&world);
  Disk disk([] { return 0.0; });
  const Machine machine{.host = "undisturbed", .boot = "first"};
  Process process(&world, {.name = "undisturbed", .machine = &machine});
  ProcessFiles files(&process, &disk, [](bool) { return 0; });
  process.UseFiles(&files);
  UndisturbedRun run;
  std::string error;
  process.Run([&] {
    try {
      RunMetaTraining(config, {.out_dir = kSimulatedRun});
      const CheckpointStore store(fmt::format("{}/checkpoints", kSimulatedRun), {});
      for (const int64_t step : store.Steps()) run.checkpoints.push_back(store.Read(step));
      run.files = ReadRunFiles(kSimulatedRun);
    } catch (const Error& caught) {
      error = caught.what();
    }
  });
  while (!process.ended()) Require(world.Step(), "the undisturbed run stands still");
  Require(error.empty(), "the undisturbed run fails: {}", error);
  const Checkpoint& last = run.checkpoints.back();
  int64_t windows = 0;
  for (const WorkerState& worker : last.workers) windows += worker.windows;
  run.steps_per_window = last.ledger.Total().Total() / windows;
  return run;
}

}  // namespace

// The learning rate is too high, so that the best theta, of 2 updates, is not the last.
MetaTrainConfig SmallRun(const SmallRunKind& kind) {
  static const auto small = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "LearnableSGD"},
    "estimators": [
      {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 2},
       "num_tasks": 1, "trunc_length": 2, "std": 0.01,
       "lengths": {"type": "ConstantTruncationSchedule", "total_length": 6}}
    ],
    "theta_opt": {"type": "Adam", "learning_rate": 2},
    "workers": 3, "meta_steps": 5, "seed": 1,
    "checkpoint_seconds": 0, "eval_steps": 2, "eval_seeds": 1
  })",
                                                                       "the simulated run"));
  MetaTrainConfig config = small;
  config.gradient_sum = kind.sum;
  config.eval_every = kind.judged ? 1 : 0;
  if (kind.async) config.mode = WriteOptions("Async", AsyncOptions{.batch_size = kAsyncBatch});
  return config;
}

int64_t WindowsPerUpdate(const SmallRunKind& kind) {
  const MetaTrainConfig config = SmallRun(kind);
  return (kind.async ? kAsyncBatch : config.workers) * config.windows_per_update;
}

const UndisturbedRun& Undisturbed(SmallRunKind kind) {
  thread_local std::map<SmallRunKind, UndisturbedRun> runs;
  const auto known = runs.find(kind);
  return known != runs.end() ? known->second : runs[kind] = RunUndisturbed(kind);
}

}  // namespace lopt
