#include "tools/simulate/small_run.h"

#include <map>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "learner/job/meta_trainer.h"
#include "tools/simulate/disk.h"
#include "tools/simulate/process.h"
#include "tools/simulate/process_files.h"

namespace lopt {
namespace {

UndisturbedRun RunUndisturbed(GradientSum sum) {
  MetaTrainConfig config = SmallRun(sum);
  config.checkpoint_steps = 1;
  config.keep_last = config.meta_steps + 1;
  World world(0, false);
  Disk disk([] { return 0.0; });
  const Machine machine{.host = "undisturbed", .boot = "first"};
  Process process(&world, {.name = "undisturbed", .machine = &machine});
  ProcessFiles files(&process, &disk, [] { return 0; });
  process.UseFiles(&files);
  UndisturbedRun run;
  std::string error;
  process.Run([&] {
    try {
      RunMetaTraining(config, {.out_dir = kSimulatedRun});
      const CheckpointStore store(std::string(kSimulatedRun) + "/checkpoints", {});
      for (const int64_t step : store.Steps()) run.checkpoints.push_back(store.Read(step));
      run.metrics = LinesWithoutLosses(ReadTextFile(std::string(kSimulatedRun) + "/metrics.jsonl"));
    } catch (const Error& caught) {
      error = caught.what();
    }
  });
  while (!process.ended()) Require(world.Step(), "the undisturbed run stands still");
  Require(error.empty(), "the undisturbed run fails: {}", error);
  run.steps_per_window =
      run.checkpoints.back().ledger.Total().Total() / (config.workers * config.meta_steps);
  return run;
}

}  // namespace

MetaTrainConfig SmallRun(GradientSum sum) {
  static const auto small = ReadOptions<MetaTrainConfig>(Config::Parse(R"({
    "learned_optimizer": {"type": "LearnableSGD"},
    "estimators": [
      {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 2},
       "num_tasks": 1, "trunc_length": 2, "std": 0.01,
       "schedule": {"type": "ConstantTruncationSchedule", "total_length": 6}}
    ],
    "workers": 3, "meta_steps": 5, "seed": 1,
    "checkpoint_seconds": 0, "eval_steps": 2, "eval_seeds": 1
  })",
                                                                       "the simulated run"));
  MetaTrainConfig config = small;
  config.gradient_sum = sum;
  return config;
}

const UndisturbedRun& Undisturbed(GradientSum sum) {
  thread_local std::map<GradientSum, UndisturbedRun> runs;
  const auto known = runs.find(sum);
  return known != runs.end() ? known->second : runs[sum] = RunUndisturbed(sum);
}

std::string LinesWithoutLosses(const std::string& metrics) {
  std::string lines;
  size_t at = 0;
  while (at < metrics.size()) {
    const size_t end = std::min(metrics.find_first_of(",}", at), metrics.size() - 1) + 1;
    const std::string_view field(metrics.data() + at, end - at);
    if (field.starts_with("\"lost_steps/")) {
      lines += field.back() == '}' ? "}" : "";
    } else {
      lines += field;
    }
    at = end;
  }
  return lines;
}

}  // namespace lopt
