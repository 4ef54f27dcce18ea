#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "learner/run/checkpoint.h"
#include "learner/run/run_directory.h"
#include "tests/learner_runs.h"
#include "tests/mpi_job.h"
#include "tests/temp_directory.h"
#include "tools/commands.h"
#include "tools/launch/rank_end.h"
#include "tools/launch/rank_guard.h"
#include "tools/launch/supervisor.h"

// Real jobs of three ranks under mpiexec and the supervisor, of which a part is killed or stopped
// at a chosen moment. Each must go on by itself, or be resumed, to the theta of a run that nothing
// has happened to. No training runs in this process, which has no threads.

namespace lopt {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kRanks = 3;
constexpr int64_t kWorkers = 5;
constexpr int64_t kUpdates = 60;
constexpr int64_t kCheckpointSteps = 8;
constexpr double kWorkerTimeoutSeconds = 3;
constexpr double kStartTimeoutSeconds = 10;

// 60 updates in about a second. Every window has the same number of inner steps.
std::string ConfigText() {
  return R"({
    "learned_optimizer": {"type": "MLPLOpt", "hidden_size": 16},
    "theta_opt": {"type": "Adam", "learning_rate": 1e-3},
    "estimators": [
      {"type": "TruncatedPES", "task": {"type": "FixedDimQuadraticFamily", "dim": 20},
       "num_tasks": 8, "trunc_length": 50, "std": 0.01, "random_initial_iteration_offset": 100,
       "schedule": {"type": "ConstantTruncationSchedule", "total_length": 120}}
    ],
    "seed": 5, "checkpoint_seconds": 0,)" +
         fmt::format(
             R"("workers": {}, "meta_steps": {}, "checkpoint_steps": {},
                "worker_timeout_seconds": {}}})",
             kWorkers, kUpdates, kCheckpointSteps, kWorkerTimeoutSeconds);
}

// A run in a directory of its own.
class Run {
 public:
  Run() { std::ofstream(scratch_ / "config.json") << ConfigText(); }

  std::string out() const { return scratch_ / "run"; }
  std::string checkpoints() const { return out() + "/checkpoints"; }

  // The supervisor of the run, in a child.
  MarkedJob Start(int ranks, bool resume = false) const {
    return MarkedJob(out(), [this, ranks, resume] {
      return Supervise({.mpiexec = {LOPT_MPIEXEC},
                        .program = GuardedProgram(
                            out(), {LOPT_BINARY_DIR "/lopt", "meta-train", scratch_ / "config.json",
                                    "--threads", "1", "--out", out()}),
                        .out_dir = out(),
                        .resume = resume,
                        .restart = {.ranks = ranks,
                                    .min_ranks = ranks,
                                    .max_restarts = 3,
                                    .first_delay_seconds = 0.01},
                        .start_timeout_seconds = kStartTimeoutSeconds,
                        .worker_timeout_seconds = kWorkerTimeoutSeconds,
                        .silence_allowance_seconds = 1});
    });
  }

  std::vector<Json> RestartLog() const {
    std::ifstream file(out() + "/restarts.jsonl");
    std::vector<Json> entries;
    for (std::string line; std::getline(file, line);) entries.push_back(Json::parse(line));
    return entries;
  }

 private:
  TempDirectory scratch_;
};

// What one process gives that nothing happens to, as files; made once per test.
class Undisturbed {
 public:
  Undisturbed() {
    MarkedJob job(run_.out(), [this] {
      ::execl(LOPT_BINARY_DIR "/lopt", "lopt", "meta-train",
              (fs::path(run_.out()).parent_path() / "config.json").c_str(), "--threads", "2",
              "--out", run_.out().c_str(), nullptr);
      return 127;
    });
    REQUIRE_EQ(job.Wait(), kExitDone);
  }

  NamedArrays Theta() const { return FinalTheta(run_.out()); }
  StepShares Shares() const {
    return CheckpointStore(run_.checkpoints(), {}).ReadNewest()->ledger.Total();
  }

 private:
  Run run_;
};

enum class Moment { kBeforeFirstCheckpoint, kInCheckpoint, kInGather };

constexpr Moment kMoments[] = {Moment::kBeforeFirstCheckpoint, Moment::kInCheckpoint,
                               Moment::kInGather};
constexpr const char* kMomentNames[] = {"before the first checkpoint", "during a checkpoint",
                                        "during a gather"};

bool HasEntry(const std::string& directory, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.path().filename().string().starts_with(prefix)) return true;
  }
  return false;
}

std::optional<RankStatus> ReportOf(const Run& run, int rank) {
  for (const RankStatus& report : ReadStatusFiles<RankStatus>(run.out(), kRankStatus)) {
    if (report.rank == rank) return report;
  }
  return std::nullopt;
}

// Waits for the moment and returns the ranks' processes. Those in the second list have been
// stopped to hold the job there.
std::pair<std::map<int, pid_t>, std::vector<pid_t>> WaitFor(Moment moment, const Run& run,
                                                            const MarkedJob& job) {
  std::map<int, pid_t> ranks;
  WaitUntil("all ranks run", [&] {
    ranks = job.Ranks();
    return ranks.size() == kRanks;
  });
  if (moment == Moment::kBeforeFirstCheckpoint) {
    REQUIRE_FALSE(HasEntry(run.checkpoints(), "step-"));
    return {ranks, {}};
  }
  WaitUntil("there is a checkpoint", [&] { return HasEntry(run.checkpoints(), "step-00000008"); });
  if (moment == Moment::kInCheckpoint) {
    const pid_t learner = ranks.at(0);
    WaitUntil("a checkpoint has begun", [&] {
      if (!HasEntry(run.checkpoints(), "tmp-")) return false;
      ::kill(learner, SIGSTOP);
      if (HasEntry(run.checkpoints(), "tmp-")) return true;
      ::kill(learner, SIGCONT);
      return false;
    });
    return {ranks, {learner}};
  }
  // The learner can but wait for a worker that is stopped.
  ::kill(ranks.at(2), SIGSTOP);
  const int64_t updates = [&] {
    const double before = ReportOf(run, 1).value_or(RankStatus()).time_seconds;
    WaitUntil("rank 1 has reported",
              [&] { return ReportOf(run, 1).value_or(RankStatus()).time_seconds > before; });
    return ReportOf(run, 1)->updates;
  }();
  WaitUntil("the learner waits", [&] {
    const auto report = ReportOf(run, 0);
    return report && report->state == "waiting" && report->updates >= updates;
  });
  return {ranks, {ranks.at(2)}};
}

void Disturb(Moment moment, int signal, const std::vector<int>& targets, const Run& run,
             const MarkedJob& job) {
  const auto [ranks, held] = WaitFor(moment, run, job);
  for (const int target : targets) ::kill(ranks.at(target), signal);
  for (const pid_t pid : held) {
    const bool is_target = std::any_of(targets.begin(), targets.end(),
                                       [&](int target) { return ranks.at(target) == pid; });
    if (!is_target) ::kill(pid, SIGCONT);
  }
}

void CheckNothingIsLeft(const MarkedJob& job) {
  WaitUntil("no process is left", [&] { return job.Processes().empty(); });
}

void CheckEndedAsUndisturbed(const Run& run, const Undisturbed& undisturbed) {
  CHECK(FinalTheta(run.out()) == undisturbed.Theta());
  CHECK_EQ(RunDirectory(run.out()).ReadManifest().status, "finished");
  const Ledger ledger = CheckpointStore(run.checkpoints(), {}).ReadNewest()->ledger;
  const StepShares expected = undisturbed.Shares();
  const StepShares shares = ledger.Total();
  CHECK_EQ(shares[Fate::kUsed], expected[Fate::kUsed]);
  CHECK_EQ(shares.Total(), shares[Fate::kUsed] + shares[Fate::kLost]);
  CHECK_EQ(ledger.UnknownWindows(), 0);
  // Whole windows only: each of them has as many steps.
  CHECK_EQ(shares[Fate::kLost] % (expected[Fate::kUsed] / (kUpdates * kWorkers)), 0);
}

// Kills or stops the targets once at every moment; the supervisor does the rest.
void CheckRanks(int signal, const std::vector<int>& targets) {
  const Undisturbed undisturbed;
  for (const Moment moment : kMoments) {
    CAPTURE(kMomentNames[static_cast<int>(moment)]);
    const Run run;
    MarkedJob job = run.Start(kRanks);
    Disturb(moment, signal, targets, run, job);
    CHECK_EQ(job.Wait(), kExitDone);
    CheckNothingIsLeft(job);
    CheckEndedAsUndisturbed(run, undisturbed);
    const std::vector<Json> log = run.RestartLog();
    REQUIRE_EQ(log.size(), 1);
    CHECK_NE(log[0]["exit_code"], 0);
    const bool early = moment == Moment::kBeforeFirstCheckpoint;
    if (early && signal == SIGSTOP) continue;  // nobody may have reported yet
    CHECK_EQ(log[0]["reason"], signal == SIGKILL ? "killed" : "hung");
    CHECK_GE(log[0]["checkpoint"], early ? -1 : kCheckpointSteps);
    std::set<int> named;
    for (const Json& culprit : log[0]["culprits"]) named.insert(culprit["rank"].get<int>());
    const std::set<int> expected(targets.begin(), targets.end());
    if (signal == SIGSTOP) {
      CHECK(named == expected);
    } else {  // of two that are killed the second may end later
      CHECK_FALSE(named.empty());
      CHECK(std::includes(expected.begin(), expected.end(), named.begin(), named.end()));
    }
  }
}

// The run, whose supervisor has ended, goes on with another number of ranks.
void CheckResumes(const Run& run, int ranks, const Undisturbed& undisturbed) {
  const bool has_checkpoint = HasEntry(run.checkpoints(), "step-");
  if (has_checkpoint) {
    CHECK(CheckpointStore(run.checkpoints(), {}).ReadNewest().has_value());
  }
  MarkedJob job = run.Start(ranks, fs::exists(run.out() + "/manifest.json"));
  CHECK_EQ(job.Wait(), kExitDone);
  CheckNothingIsLeft(job);
  CheckEndedAsUndisturbed(run, undisturbed);
}

}  // namespace

TEST_CASE("Kill matrix: a killed learner") { CheckRanks(SIGKILL, {0}); }
TEST_CASE("Kill matrix: a killed worker") { CheckRanks(SIGKILL, {2}); }
TEST_CASE("Kill matrix: two killed workers") { CheckRanks(SIGKILL, {1, 2}); }
TEST_CASE("Kill matrix: a stopped learner") { CheckRanks(SIGSTOP, {0}); }
TEST_CASE("Kill matrix: a stopped worker") { CheckRanks(SIGSTOP, {2}); }
TEST_CASE("Kill matrix: two stopped workers") { CheckRanks(SIGSTOP, {1, 2}); }

TEST_CASE("Kill matrix: a killed mpiexec") {
  const Undisturbed undisturbed;
  for (const Moment moment : kMoments) {
    CAPTURE(kMomentNames[static_cast<int>(moment)]);
    const Run run;
    MarkedJob job = run.Start(kRanks);
    const auto held = WaitFor(moment, run, job).second;
    ::kill(job.Named("mpiexec"), SIGKILL);
    for (const pid_t pid : held) ::kill(pid, SIGCONT);
    CHECK_EQ(job.Wait(), kExitDone);
    CheckNothingIsLeft(job);
    CheckEndedAsUndisturbed(run, undisturbed);
    REQUIRE_EQ(run.RestartLog().size(), 1);
    CHECK_EQ(run.RestartLog()[0]["exit_code"], 128 + SIGKILL);
  }
}

TEST_CASE("Kill matrix: a killed process manager of a host leaves no ranks") {
  const Undisturbed undisturbed;
  const Run run;
  MarkedJob job = run.Start(kRanks);
  WaitFor(Moment::kInGather, run, job);
  ::kill(job.Named("hydra_pmi_proxy"), SIGKILL);
  CHECK_EQ(job.Wait(), kExitDone);
  CheckNothingIsLeft(job);
  CheckEndedAsUndisturbed(run, undisturbed);
}

TEST_CASE("Kill matrix: a killed supervisor leaves nothing, and the run goes on elsewhere") {
  const Undisturbed undisturbed;
  for (const Moment moment : kMoments) {
    CAPTURE(kMomentNames[static_cast<int>(moment)]);
    const Run run;
    MarkedJob job = run.Start(kRanks);
    const auto held = WaitFor(moment, run, job).second;
    ::kill(job.child(), SIGKILL);
    CHECK_EQ(job.Wait(), 128 + SIGKILL);
    CheckNothingIsLeft(job);  // also with a rank that is stopped
    CheckResumes(run, moment == Moment::kInGather ? 5 : 2, undisturbed);
  }
}

TEST_CASE("Kill matrix: SIGTERM to the supervisor or to mpiexec saves a checkpoint on every rank") {
  const Undisturbed undisturbed;
  for (const bool to_supervisor : {true, false}) {
    CAPTURE(to_supervisor);
    const Run run;
    MarkedJob job = run.Start(kRanks);
    WaitUntil("there is a checkpoint",
              [&] { return HasEntry(run.checkpoints(), "step-00000008"); });
    ::kill(to_supervisor ? job.child() : job.Named("mpiexec"), SIGTERM);
    CHECK_EQ(job.Wait(), kExitInterrupted);
    CheckNothingIsLeft(job);
    const RunManifest manifest = RunDirectory(run.out()).ReadManifest();
    CHECK_EQ(manifest.status, "interrupted");
    CHECK_LT(manifest.updates, kUpdates);
    CHECK_EQ(CheckpointStore(run.checkpoints(), {}).Steps().back(), manifest.updates);
    CHECK(run.RestartLog().empty());
    CheckResumes(run, to_supervisor ? 2 : 5, undisturbed);
  }
}

}  // namespace lopt
