#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <string>
#include <string_view>
#include <thread>

#include "lopt/learner/job/messages.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"
#include "tests/watched_transport.h"

namespace lopt {
namespace {

TEST_CASE("While a run is read for a resume the learner's rank gives signs of life") {
  const TempDirectory directory;
  MetaTrainConfig config = SmallExperiment(4, 3);
  config.worker_timeout_seconds = 0.4;  // a sign of life every 0.05 s
  RunMetaTraining(config, {.out_dir = directory.path()});
  config.meta_steps = 5;
  for (const bool gather : {false, true}) {
    CAPTURE(gather);
    config.gather_checkpoints = gather;
    const auto transports = MakeLocalTransports(3);
    std::atomic<int> heartbeats = 0;
    std::map<int, int> sent;  // by kind of message
    WatchedTransport watched(
        transports[0].get(),
        [&](int, int kind) {
          ++sent[kind];
          heartbeats += kind == kHeartbeat ? 1 : 0;
        },
        [](int, int) {});
    const MetaTrainerOptions options = {.out_dir = directory.path(),
                                        .resume = true,
                                        .on_event =
                                            [&](std::string_view event) {
                                              const int before = heartbeats;
                                              while (event == "resume" && heartbeats < before + 6) {
                                                std::this_thread::yield();
                                              }
                                            },
                                        .transport = &watched};
    std::vector<std::thread> others;
    for (const int rank : {1, 2}) {
      others.emplace_back([&, rank] {
        RunMetaTraining(config, {.out_dir = directory.path(),
                                 .transport = transports[static_cast<size_t>(rank)].get()});
      });
    }
    CHECK(RunMetaTraining(config, options).learner.outer_step == config.meta_steps);
    for (std::thread& other : others) other.join();
    // Ranks read their workers' states themselves if they can.
    CHECK(sent[kState] == (gather ? 3 : 0));
    config.meta_steps += 2;
  }
}

}  // namespace
}  // namespace lopt
