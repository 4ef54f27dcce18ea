#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_files.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/worker_files.h"
#include "lopt/lopt/registry.h"
#include "tests/error_of.h"
#include "tests/file_size_limit.h"
#include "tests/flushed_paths.h"
#include "tests/learner_child.h"
#include "tests/replace_in_file.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

const char* const kConfig = R"({"learned_optimizer": {"type": "LearnableAdam"}, "seed": 3})";

Array Floats(std::vector<float> values) {
  return Array::Of<float>({static_cast<int64_t>(values.size())}, values);
}

// A checkpoint of two workers with two estimators, the second without a state; all numbers depend
// on the step.
Checkpoint Make(int64_t step) {
  const auto x = static_cast<float>(step);
  Checkpoint checkpoint;
  checkpoint.config = Config::Parse(kConfig, "test");
  checkpoint.isa = "avx2";
  checkpoint.device = "NVIDIA H100";
  checkpoint.run_key = {.hi = 1, .lo = 0xFFFFFFFFU};
  checkpoint.theta = OptimizerRegistry()
                         .Make(Config::Parse(R"({"type": "LearnableAdam"})", "test"))
                         ->theta_layout();
  checkpoint.learner.outer_step = step;
  checkpoint.learner.skipped_updates = 2;
  checkpoint.learner.theta = Eigen::VectorXf::LinSpaced(checkpoint.theta.size(), x, 0.3F);
  checkpoint.learner.theta_opt.Set("m", Floats({0.1F, x, 3e-39F, -0.0F}));
  checkpoint.logs = {.seconds = 0.1 * static_cast<double>(step),
                     .bytes = {{"metrics.jsonl", step}}};
  checkpoint.totals = {{.inner_steps = step, .non_finite = 1, .episodes_ended = 2}, {}};
  for (int w = 0; w < 2; ++w) {
    WorkerState worker;
    worker.windows = step * 2;
    worker.estimators.resize(2);
    worker.estimators[0].Set("unroll/params", Floats(std::vector<float>(5000, x + w)));
    worker.estimators[0].Set("felt", Floats({x, 1}));
    checkpoint.workers.push_back(std::move(worker));
  }
  return checkpoint;
}

void CheckSame(const Checkpoint& got, const Checkpoint& wanted) {
  CHECK(got.config.Dump() == wanted.config.Dump());
  CHECK(got.isa == wanted.isa);
  CHECK(got.device == wanted.device);
  CHECK(got.run_key == wanted.run_key);
  CHECK(got.theta == wanted.theta);
  CHECK(got.learner.outer_step == wanted.learner.outer_step);
  CHECK(got.learner.skipped_updates == wanted.learner.skipped_updates);
  CHECK(got.learner.theta == wanted.learner.theta);
  CHECK(got.learner.theta_opt == wanted.learner.theta_opt);
  CHECK(got.workers == wanted.workers);
  CHECK(got.totals == wanted.totals);
  CHECK(got.logs == wanted.logs);
}

std::string ReadError(const std::string& directory) {
  return ErrorOf([&] { ReadCheckpoint(directory); });
}

TEST_CASE("What is read is what was written, bit for bit") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {});
  store.Write(Make(10));
  CheckSame(ReadCheckpoint(store.Path(10)), Make(10));
  store.Write(Make(20));
  CheckSame(*store.ReadNewest(), Make(20));
  CHECK(store.Path(20) == directory / "step-00000020");
}

TEST_CASE("Workers share files up to a size, and any of them are read back alone") {
  std::vector<WorkerState> workers(7);
  for (size_t w = 0; w < workers.size(); ++w) {
    workers[w].windows = static_cast<int64_t>(w) + 5;
    workers[w].estimators.resize(2);
    workers[w].estimators[0].Set("x", Floats({static_cast<float>(w), 2.5F}));  // 8 bytes
  }
  const TempDirectory directory;
  CheckpointStore store(directory.path(), {});
  Checkpoint checkpoint = Make(10);
  store.Begin(10);
  std::vector<CheckpointFile> files;
  PackWorkers(
      0, workers,
      [&](const WorkerBlock& range, const std::vector<std::byte>& bytes) {
        CHECK(range.count == (range.first == 6 ? 1 : 3));
        files.push_back(
            WriteCheckpointFile(store.TemporaryPath(10), WorkersFileName(range), bytes));
      },
      20);
  REQUIRE(files.size() == 3);
  CHECK(files[1].name == "workers-00003-00005.safetensors");
  store.Commit(checkpoint, files);
  CHECK(ReadCheckpoint(store.Path(10)).workers == workers);
  for (int64_t first = 0; first < 7; ++first) {
    for (int64_t count = 0; count <= 7 - first; ++count) {
      CHECK(ReadWorkers(store.Path(10), first, count, 2) ==
            std::vector(workers.begin() + first, workers.begin() + first + count));
    }
  }
  const Checkpoint windows = ReadCheckpoint(store.Path(10), WorkerStates::kWindows);
  REQUIRE(windows.workers.size() == 7);
  CHECK(windows.workers[6].windows == 11);
  CHECK(windows.workers[6].estimators.empty());
  const auto missing = [&](const std::string& error) {
    return error == "checkpoint " + store.Path(10) + ": manifest.json lists no file with worker 7";
  };
  CHECK(missing(ErrorOf([&] { ReadWorkers(store.Path(10), 5, 3, 2); })));
}

TEST_CASE("The name of a file says which workers it holds") {
  const auto workers = [](const char* name) { return WorkersOfFile(name).value_or(WorkerBlock{}); };
  CHECK(WorkersFileName({.first = 123456, .count = 2}) == "workers-123456-123457.safetensors");
  CHECK(workers("workers-123456-123457.safetensors").first == 123456);
  CHECK(workers("workers-00003-00005.safetensors").count == 3);
  for (const char* name :
       {"learner.safetensors", "workers-.safetensors", "workers-1.safetensors",
        "workers-2-1.safetensors", "workers-1-2x.safetensors", "workers-1-2",
        "workers--1-2.safetensors", "workers-0-9223372036854775807.safetensors"}) {
    CAPTURE(name);
    CHECK_FALSE(WorkersOfFile(name).has_value());
  }
}

TEST_CASE("A store without checkpoints has no newest one") {
  const TempDirectory directory;
  CHECK_FALSE(CheckpointStore(directory.path(), {}).ReadNewest().has_value());
  CHECK_FALSE(CheckpointStore(directory / "not-there", {}).ReadNewest().has_value());
}

TEST_CASE("A checkpoint can be chosen, and those after it removed") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {.keep_last = 9});
  CHECK_THROWS_WITH_AS(
      store.Read(10),
      (directory.path() + " holds no checkpoint of step 10; there are: none").c_str(), Error);
  for (int64_t step = 0; step <= 40; step += 10) {
    store.Write(Make(step));
  }
  CheckSame(store.Read(20), Make(20));
  CHECK_THROWS_WITH_AS(store.Read(15),
                       (directory.path() + " holds no checkpoint of step 15; there "
                                           "are: 0, 10, 20, 30, 40")
                           .c_str(),
                       Error);
  store.RemoveAfter(20);
  CHECK(store.Steps() == std::vector<int64_t>{0, 10, 20});
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 3);
}

TEST_CASE("The newest checkpoints stay, and the first at or after each multiple of keep_every") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {.keep_last = 2, .keep_every = 20});
  for (const int64_t step : {0, 10, 20, 33, 47, 58, 85, 90, 97}) {
    store.Write(Make(step));
  }
  CHECK(store.Steps() == std::vector<int64_t>{0, 20, 47, 85, 90, 97});
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 6);
  CHECK_THROWS_WITH_AS(CheckpointStore(directory.path(), {.keep_last = 0}),
                       "CheckpointStore: keep_last must be >= 1, got 0", Error);
}

TEST_CASE("A checkpoint of a step that there is already is an error") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {});
  store.Write(Make(10));
  CHECK_THROWS_WITH_AS(store.Write(Make(10)),
                       ("checkpoint " + store.Path(10) + " exists already").c_str(), Error);
}

TEST_CASE("A half-written or damaged checkpoint is an error that says what is wrong") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {});
  store.Write(Make(10));
  const std::string path = store.Path(10);
  const std::string start = "checkpoint " + path + ": ";

  SUBCASE("no such directory") {
    CHECK(ReadError(directory / "step-5") ==
          "checkpoint " + directory.path() + "/step-5: there is no such directory");
  }
  SUBCASE("a temporary directory") {
    fs::rename(path, directory / "tmp-step-00000010");
    CHECK(ReadError(directory / "tmp-step-00000010") ==
          "checkpoint " + directory.path() +
              "/tmp-step-00000010: this is what an unfinished write left behind, not a checkpoint");
  }
  SUBCASE("no manifest") {
    fs::remove(path + "/manifest.json");
    CHECK(ReadError(path) == start + "manifest.json is missing, so the checkpoint is not complete");
  }
  SUBCASE("half a manifest") {
    fs::resize_file(path + "/manifest.json", 40);
    CHECK(ReadError(path).starts_with(start + "manifest.json: line "));
  }
  SUBCASE("a manifest with an unknown member") {
    ReplaceInFile(path + "/manifest.json", "outer_step", "outer_steps");
    CHECK(ReadError(path) == start + "manifest.json: 'outer_step' is missing");
    ReplaceInFile(path + "/manifest.json", "outer_steps", "outer_step\": 10, \"inner_step");
    CHECK(ReadError(path) == start +
                                 "manifest.json: 'inner_step' is unknown; there may be: format, "
                                 "outer_step, workers, logs, files");
  }
  SUBCASE("a manifest of a later program") {
    ReplaceInFile(path + "/manifest.json", "lopt checkpoint 2", "lopt checkpoint 9");
    CHECK(ReadError(path) == start +
                                 "manifest.json: its format is 'lopt checkpoint 9', this program "
                                 "reads 'lopt checkpoint 2'");
  }
  SUBCASE("a missing file") {
    fs::remove(path + "/workers-00000-00001.safetensors");
    CHECK(ReadError(path) == start + "workers-00000-00001.safetensors is missing");
  }
  SUBCASE("a file that the manifest does not list") {
    ReplaceInFile(path + "/manifest.json", "workers-00000-00001", "workers-00000-00000");
    CHECK(ReadError(path) == start + "workers-00000-00000.safetensors is missing");
    ReplaceInFile(path + "/manifest.json", "workers-00000-00000", "workers-00001-00001");
    CHECK(ReadError(path) == start + "manifest.json lists no file with worker 0");
  }
  SUBCASE("a truncated file") {
    const auto size = fs::file_size(path + "/workers-00000-00001.safetensors");
    fs::resize_file(path + "/workers-00000-00001.safetensors", 100);
    CHECK(ReadError(path) ==
          fmt::format("{}workers-00000-00001.safetensors has 100 bytes, manifest.json says {}",
                      start, size));
  }
  SUBCASE("one wrong bit") {
    std::vector<std::byte> bytes = ReadFile(path + "/learner.safetensors");
    bytes[bytes.size() / 2] ^= std::byte{1};
    WriteFile(path + "/learner.safetensors", bytes);
    const std::string error = ReadError(path);
    CHECK(error.starts_with(start + "learner.safetensors has CRC-32 "));
    CHECK(error.ends_with(": the file is damaged"));
  }
  SUBCASE("a log of a negative length") {
    ReplaceInFile(path + "/manifest.json", "\"metrics.jsonl\": ", "\"metrics.jsonl\": -");
    CHECK(ReadError(path).starts_with(
        start + "manifest.json: the log metrics.jsonl has a length of at least 0, got -"));
  }
  SUBCASE("a directory that was renamed") {
    fs::rename(path, directory / "step-00000007");
    CHECK(ReadError(directory / "step-00000007") ==
          "checkpoint " + directory.path() +
              "/step-00000007: manifest.json says outer step 10; the directory has been renamed: "
              "give it back its name, step-00000010");
    fs::rename(directory / "step-00000007", directory / "the-best");
    CHECK(ReadError(directory / "the-best") == "no error");
  }
  SUBCASE("a manifest with another step") {
    ReplaceInFile(path + "/manifest.json", "\"outer_step\": 10", "\"outer_step\": 11");
    CHECK(ReadError(path) ==
          start + "learner.safetensors is of outer step 10, manifest.json of 11");
  }
}

TEST_CASE("A checkpoint with weights that are not finite is an error") {
  const TempDirectory directory;
  CheckpointStore store(directory.path(), {});
  Checkpoint checkpoint = Make(1);
  checkpoint.learner.theta[2] = std::numeric_limits<float>::infinity();
  store.Write(checkpoint);
  const std::string path = store.Path(1);
  CHECK(ReadError(path) ==
        path +
            "/learner.safetensors: weights must be finite numbers; theta/one_minus_beta2 [1] has 1 "
            "number that is not finite, the first is inf at 0");
}

TEST_CASE("A damaged newest checkpoint is an error that names the older valid ones") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {.keep_last = 4});
  store.Write(Make(10));
  store.Write(Make(20));
  store.Write(Make(30));
  store.Write(Make(40));
  fs::remove(store.Path(20) + "/learner.safetensors");
  fs::remove(store.Path(40) + "/learner.safetensors");
  const std::string start = "checkpoint " + store.Path(40) + ": learner.safetensors is missing. ";
  CHECK_THROWS_WITH_AS(store.ReadNewest(),
                       (start + "To go on from another one: --from STEP; valid: 10, 30").c_str(),
                       Error);
  CHECK_THROWS_WITH_AS(store.Read(20),
                       ("checkpoint " + store.Path(20) + ": learner.safetensors is missing. " +
                        "To go on from another one: --from STEP; valid: 10, 30")
                           .c_str(),
                       Error);
  fs::remove_all(store.Path(10));
  fs::remove_all(store.Path(20));
  fs::remove_all(store.Path(30));
  CHECK_THROWS_WITH_AS(store.ReadNewest(),
                       (start + "There is no valid one: begin anew (--overwrite)").c_str(), Error);
}

TEST_CASE("A damaged newest checkpoint of arrays is an error that says what to do") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {.keep_last = 4});
  CHECK_FALSE(store.ReadNewestArrays().has_value());
  for (const int64_t step : {10, 20, 30, 40}) {
    ArraysCheckpoint checkpoint{.step = step, .file = {}};
    checkpoint.file.arrays.Set("x", Floats({static_cast<float>(step)}));
    store.Write(checkpoint);
  }
  const auto damage = [&](int64_t step) { fs::remove(store.Path(step) + "/state.safetensors"); };
  const auto error = [&] { return ErrorOf([&] { store.ReadNewestArrays(); }); };
  const std::string start = "checkpoint " + store.Path(40) + ": state.safetensors is missing. ";
  damage(40);
  CHECK(error() == start + "To go on from step 30, move " + store.Path(40) + " away");
  damage(30);
  CHECK(error() == start + "To go on from step 20, move " + store.Path(40) + " and " +
                       store.Path(30) + " away");
  damage(20);
  damage(10);
  CHECK(error() == start + "There is no valid one: begin anew (--overwrite)");
}

TEST_CASE("A disk that is full during a checkpoint leaves the last good one") {
  const TempDirectory directory;
  const CheckpointStore store(directory.path(), {.keep_last = 1});
  store.Write(Make(10));
  for (const rlim_t bytes : {8000, 300, 0}) {
    {
      const FileSizeLimit limit(bytes);
      CHECK_THROWS_WITH_AS(store.Write(Make(20)),
                           ("cannot write " + directory.path() +
                            "/tmp-step-00000020/workers-00000-00001.safetensors: File too large")
                               .c_str(),
                           Error);
    }
    CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
    CheckSame(*store.ReadNewest(), Make(10));
  }
  store.Write(Make(20));
  CheckSame(*store.ReadNewest(), Make(20));
}

TEST_CASE("A directory that cannot be written is an error") {
  const TempDirectory directory;
  WriteTextFile(directory / "file", "");
  const CheckpointStore store(directory / "file", {});
  CHECK_THROWS_AS(store.Write(Make(10)), Error);
}

TEST_CASE("A write that is killed anywhere leaves the old checkpoint or the whole new one") {
  std::vector<std::string> events;
  {
    const TempDirectory directory;
    CheckpointStore(directory.path(), {}, [&](std::string_view event) {
      events.emplace_back(event);
    }).Write(Make(20));
  }
  CHECK(events == std::vector<std::string>{"checkpoint:20:begin", "checkpoint:20:workers:0",
                                           "checkpoint:20:learner", "checkpoint:20:manifest",
                                           "checkpoint:20:rename", "checkpoint:20:retention",
                                           "checkpoint:20:end"});
  const auto check = [](const std::function<void(std::string_view)>& die, int signal, bool is_new) {
    const TempDirectory directory;
    const CheckpointStore store(directory.path(), {.keep_last = 1});
    store.Write(Make(10));
    const ChildEnd end = RunInChild(
        [&] { CheckpointStore(directory.path(), {.keep_last = 1}, die).Write(Make(20)); });
    CHECK(end.signal == signal);
    flushed_paths.clear();
    store.Settle();
    CHECK(flushed_paths == std::vector<std::string>{directory.path()});
    for (const auto& entry : fs::directory_iterator(directory.path())) {
      CHECK(entry.path().filename().string().starts_with("step-"));
    }
    CheckSame(*store.ReadNewest(), Make(is_new ? 20 : 10));
    if (!is_new) {
      store.Write(Make(20));
      CheckSame(*store.ReadNewest(), Make(20));
    }
  };
  for (size_t e = 0; e < events.size(); ++e) {
    CAPTURE(events[e]);
    check(
        [&](std::string_view event) {
          if (event == events[e]) ::raise(SIGKILL);
        },
        SIGKILL, e >= 5);
  }
  // In the middle of a file: the system ends a process that writes beyond its limit.
  for (size_t e = 1; e <= 3; ++e) {
    for (const rlim_t bytes : {0, 1, 100, 255}) {
      CAPTURE(events[e]);
      CAPTURE(bytes);
      check(
          [&](std::string_view event) {
            if (event == events[e]) {
              const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
              ::setrlimit(RLIMIT_FSIZE, &limit);
            }
          },
          SIGXFSZ, false);
    }
  }
}

}  // namespace
}  // namespace lopt
