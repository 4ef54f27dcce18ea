// A computation that hangs, on a rank that answers, ends the job.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <regex>
#include <string>
#include <string_view>

#include "lopt/base/file.h"
#include "lopt/base/progress.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/mode.h"
#include "tests/learner_child.h"
#include "tests/learner_fakes.h"
#include "tests/learner_local_job.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

struct HangOptions {
  int64_t after = 0;
  void Visit(FieldVisitor& v) { v.Field("after", &after, {}, "Windows that end."); }
};

[[noreturn]] void Hang() {
  for (;;) ::pause();
}

MetaTrainConfig Hanging(const Config& mode, int64_t after) {
  EstimatorRegistry().Add<HangOptions>(
      "Hang", "Hangs.",
      [](const HangOptions& options, const std::shared_ptr<const LearnedOptimizer>&,
         const TaskResources&) {
        return Configured([options](const WorkerWeights&, Key, int64_t windows) {
          if (windows >= options.after) Hang();
          return GradientEstimate{.gradient = Eigen::VectorXf::Zero(1),
                                  .mean_loss = 1,
                                  .counts = {.inner_steps = 1},
                                  .metrics = {}};
        });
      });
  auto config = ReadOptions<MetaTrainConfig>(
      Config::Parse(R"({"learned_optimizer": {"type": "LearnableSGD"}, "workers": 2,
                        "progress_timeout_seconds": 0.3, "estimators": [{"type": "Hang"}]})",
                    "test"));
  config.mode = mode;
  config.estimators[0] = config.estimators[0].With("after", std::to_string(after));
  config.meta_steps = 1000000000;
  return config;
}

// Runs the job in a process of its own and returns what it says when it ends so.
std::string Complaint(const std::function<void()>& run) {
  const TempDirectory directory;
  const std::string path = directory / "stderr";
  const ChildEnd end = RunInChild([&] {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT, 0644);
    ::dup2(file, STDERR_FILENO);
    run();
  });
  CHECK(end.exit_code == kExitRankLost);
  return ReadTextFile(path);
}

TEST_CASE("A rank whose computation hangs ends the job, in every mode") {
  for (const Config& mode :
       {WriteOptions("Sync", SyncOptions{}), WriteOptions("Async", AsyncOptions{}),
        WriteOptions("Sync", SyncOptions{.deadline_seconds = 1e-9, .quorum = 1})}) {
    CAPTURE(mode.Dump());
    const std::string complaint = Complaint([&] { RunLocalJob(Hanging(mode, 3), 2); });
    static const std::regex wanted(
        "lopt: rank [01] \\(.+\\) has made no progress for [0-9.]+ s, longer than "
        "progress_timeout_seconds, in state computing; its last step is [0-9]+; it ends the job\n");
    CHECK(std::regex_search(complaint, wanted));
  }
}

TEST_CASE("A checkpoint that hangs ends the job") {
  const std::string complaint = Complaint([] {
    const TempDirectory directory;
    MetaTrainConfig config = Hanging(WriteOptions("Async", AsyncOptions{}), 1000000000);
    config.checkpoint_steps = 2;
    RunMetaTraining(config, {.out_dir = directory.path(), .on_event = [](std::string_view event) {
                               if (event == "checkpoint:2:manifest") Hang();
                             }});
  });
  CHECK(complaint.find("in state checkpointing") != std::string::npos);
}

TEST_CASE("Each sign of progress is another number") {
  const int64_t before = ProgressNoted();
  NoteProgress();
  CHECK(ProgressNoted() != before);
}

}  // namespace
}  // namespace lopt
