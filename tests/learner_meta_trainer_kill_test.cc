#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "tests/learner_child.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

// All training happens in forked children: this process never has threads.

using OnEvent = std::function<void(std::string_view)>;

OnEvent KillAt(const std::string& where) {
  return [where](std::string_view event) {
    if (event == where) {
      ::raise(SIGKILL);
    }
  };
}

ChildEnd Train(int64_t workers, const std::string& directory, bool resume, const OnEvent& on_event,
               int threads = 2) {
  return RunInChild([&] {
    RunMetaTraining(
        SmallExperiment(workers),
        {.out_dir = directory, .threads = threads, .resume = resume, .on_event = on_event});
  });
}

void TrainUndisturbed(int64_t workers, const std::string& directory) {
  REQUIRE(Train(workers, directory, false, {}).exit_code == 0);
}

void CheckResumedEqualsUndisturbed(int64_t workers, const std::string& killed,
                                   const std::string& undisturbed) {
  REQUIRE(Train(workers, killed, true, {}, 1).exit_code == 0);
  CHECK(FinalTheta(killed) == FinalTheta(undisturbed));
  CHECK(MetricsLines(killed) == MetricsLines(undisturbed));
  CHECK(RunDirectory(killed).ReadManifest().status == "finished");
  CHECK(CheckpointStore(killed + "/checkpoints", {}).Steps() ==
        CheckpointStore(undisturbed + "/checkpoints", {}).Steps());
}

// Different whole numbers in [1, 20], the same every time.
std::set<int32_t> SeededSteps(uint64_t seed, int count) {
  std::set<int32_t> steps;
  for (uint64_t i = 0; static_cast<int>(steps.size()) < count; ++i) {
    steps.insert(Randint(FoldIn(KeyFromSeed(seed), i), 1, 21));
  }
  return steps;
}

void KillEverywhere(int64_t workers, const std::vector<std::string>& events) {
  const TempDirectory undisturbed;
  TrainUndisturbed(workers, undisturbed.path());
  for (const std::string& event : events) {
    CAPTURE(event);
    const TempDirectory directory;
    CHECK(Train(workers, directory.path(), false, KillAt(event)).signal == SIGKILL);
    CheckResumedEqualsUndisturbed(workers, directory.path(), undisturbed.path());
  }
}

// A sample that is not nightly: a process that is killed at seven places, or inside the write of
// five files.

TEST_CASE("A run that is killed inside the write of a file ends with the same theta") {
  const TempDirectory undisturbed;
  TrainUndisturbed(1, undisturbed.path());
  for (const char* event : {"checkpoint:7:workers:0", "checkpoint:7:learner",
                            "checkpoint:7:manifest", "theta", "finish"}) {
    CAPTURE(event);
    const TempDirectory directory;
    // The system ends a process that writes a file beyond this size.
    const ChildEnd end = Train(1, directory.path(), false, [&](std::string_view now) {
      if (now == event) {
        const rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      }
    });
    CHECK(end.signal == SIGXFSZ);
    CheckResumedEqualsUndisturbed(1, directory.path(), undisturbed.path());
  }
}

TEST_CASE("A run that is killed again and again ends with the same theta") {
  const TempDirectory undisturbed;
  TrainUndisturbed(2, undisturbed.path());
  const TempDirectory directory;
  bool resume = false;
  for (const char* event : {"step:6", "checkpoint:7:learner", "step:7", "step:13",
                            "checkpoint:14:rename", "step:19", "theta"}) {
    CAPTURE(event);
    CHECK(Train(2, directory.path(), resume, KillAt(event)).signal == SIGKILL);
    resume = true;
  }
  CheckResumedEqualsUndisturbed(2, directory.path(), undisturbed.path());
}

TEST_SUITE("nightly") {
  TEST_CASE("A run of one worker that is killed between updates ends with the same theta") {
    std::vector<std::string> events;
    for (const int32_t step : SeededSteps(1, 3)) {
      events.push_back("step:" + std::to_string(step));
    }
    KillEverywhere(1, events);
  }

  TEST_CASE("A run of one worker that is killed in a checkpoint ends with the same theta") {
    std::vector<std::string> events;
    for (const char* what :
         {"begin", "workers:0", "learner", "manifest", "rename", "retention", "end"}) {
      events.push_back(std::string("checkpoint:14:") + what);
    }
    KillEverywhere(1, events);
  }

  TEST_CASE("A run that is killed at its first checkpoint or at its end ends with the same theta") {
    KillEverywhere(1, {"checkpoint:0:begin", "checkpoint:0:rename", "checkpoint:20:manifest",
                       "theta", "finish"});
  }

  TEST_CASE("A run of four workers that is killed anywhere ends with the same theta") {
    std::vector<std::string> events = {"checkpoint:7:workers:0", "checkpoint:14:manifest"};
    for (const int32_t step : SeededSteps(2, 2)) {
      events.push_back("step:" + std::to_string(step));
    }
    KillEverywhere(4, events);
  }
}

}  // namespace
}  // namespace lopt
