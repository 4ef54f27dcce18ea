#include <doctest/doctest.h>
#include <fmt/core.h>
#include <grp.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/launch/rank_end.h"
#include "tests/learner_child.h"
#include "tests/learner_runs.h"
#include "tests/mpi_job.h"
#include "tests/paths.h"
#include "tests/patience.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

// Real jobs of three ranks under mpiexec and the supervisor, of which a part is killed or stopped
// at a chosen moment. Each must go on by itself, or be resumed, to the theta of a run that nothing
// has happened to; in the modes without reproducible bits, to the end with every step accounted
// for. No training runs in this process, which has no threads.

namespace lopt {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kRanks = 3;
constexpr int64_t kWorkers = 5;
constexpr int64_t kUpdates = 60;  // of a reproducible run
constexpr int64_t kCheckpointSteps = 8;

// How long a rank may be silent after it has reported, and before. A job that is not stopped never
// comes near either.
struct Timeouts {
  double worker_seconds = 3.0 * Patience();
  double start_seconds = 10.0 * Patience();
};

// 8 tasks, 50 steps, pairs.
constexpr int64_t kStepsOfWindow = 8 * 50 * 2;
constexpr int kNobody = 65534;

// How a job is run.
struct Setup {
  std::string name = {};
  std::string mpiexec = LOPT_MPIEXEC;
  std::string mode = R"({"type": "Sync"})";
  bool reproducible = true;
  int64_t updates = kUpdates;
  bool ordinary_user = false;  // where the tests run as root
  // The task, and the option of lopt launch for the plug-in that it comes from.
  const char* task = "FixedDimQuadraticFamily";
  std::string plugin = {};
  Timeouts timeouts = {};
};

const Setup kOneHost = {.name = "one host"};
// Two process managers, each with ranks of its own, as on two hosts.
const Setup kTwoHosts = {.name = "two hosts, -disable-auto-cleanup",
                         .mpiexec = LOPT_MPIEXEC
                         " -disable-auto-cleanup -launcher fork -hosts localhost,127.0.0.1 -ppn 1"};
// Without a barrier updates follow each other faster.
const Setup kAsync = {.name = "Async",
                      .mode = R"({"type": "Async", "batch_size": 3})",
                      .reproducible = false,
                      .updates = 10 * kUpdates};
const Setup kDeadline = {.name = "deadline_seconds",
                         .mode = R"({"type": "Sync", "deadline_seconds": 0.02, "quorum": 2})",
                         .reproducible = false,
                         .updates = 4 * kUpdates};
const Setup kPlugin = {.name = "a plug-in",
                       .task = "PluginTask",
                       .plugin = "--plugin " + BuildPath("tests/plugin_good.so")};
const Setup kOrdinaryUser = {.name = "an ordinary user", .ordinary_user = true};

// 60 updates in about a second. Every window has the same number of inner steps.
std::string ConfigText(const Setup& setup) {
  return fmt::format(
      R"({{
    "learned_optimizer": {{"type": "MLPLOpt", "hidden_size": 16}},
    "theta_opt": {{"type": "Adam", "learning_rate": 1e-3}},
    "estimators": [
      {{"type": "TruncatedPES", "task": {{"type": "{}", "dim": 20}},
       "num_tasks": 8, "trunc_length": 50, "std": 0.01, "random_initial_iteration_offset": 100,
       "lengths": {{"type": "ConstantTruncationSchedule", "total_length": 120}}}}
    ],
    "seed": 5, "checkpoint_seconds": 0, "workers": {}, "meta_steps": {}, "checkpoint_steps": {},
    "worker_timeout_seconds": {}, "mode": {}}})",
      setup.task, kWorkers, setup.updates, kCheckpointSteps, setup.timeouts.worker_seconds,
      setup.mode);
}

void BecomeNobody() {
  Require(::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0,
          "cannot become an ordinary user");
}

// Whether a run can be an ordinary user's; the test is skipped where it cannot.
bool CanBeOrdinaryUser() {
  if (::geteuid() != 0) return true;
  const TempDirectory scratch;
  const auto write = [&] {
    BecomeNobody();
    WriteTextFile(scratch / "file", "");
  };
  if (::chown(scratch.path().c_str(), kNobody, kNobody) == 0 && RunInChild(write).exit_code == 0) {
    return true;
  }
  SkipTest("the user nobody cannot write to a directory of its own in " +
           fs::temp_directory_path().string());
  return false;
}

// Whether the processes of a job are known: those of MPICH's mpiexec, Hydra, which names ranks by
// PMI_RANK. The test is skipped where they are not.
bool HasHydra() {
  static const std::string version = RunProcess({LOPT_MPIEXEC, "--version"}).output;
  if (version.find("HYDRA") != std::string::npos) return true;
  SkipTest(LOPT_MPIEXEC " is not MPICH's (Hydra), whose processes the test knows");
  return false;
}

// A run in a directory of its own.
class Run {
 public:
  explicit Run(const Setup& setup) : setup_(setup) {
    std::ofstream(config()) << ConfigText(setup);
    if (!LeavesRoot()) return;
    // The build may lie where only root comes to, as in a home.
    program_ = scratch_ / "lopt";
    fs::copy_file(BuildPath("lopt"), program_);
    REQUIRE_EQ(::chown(scratch_.path().c_str(), kNobody, kNobody), 0);
  }

  const Setup& setup() const { return setup_; }
  std::string config() const { return scratch_ / "config.json"; }
  std::string out() const { return scratch_ / "run"; }
  std::string checkpoints() const { return out() + "/checkpoints"; }

  // The supervisor of the run, as a child.
  MarkedJob Start(int ranks, bool resume = false) const {
    return MarkedJob(out(), [&]() -> int {
      if (LeavesRoot()) {
        fs::current_path(scratch_.path());  // where mpiexec starts the ranks
        BecomeNobody();
      }
      const std::vector<std::string> words = {
          "/bin/sh", "-c",
          fmt::format(
              "exec '{}' launch -n {} {} --max-restarts 3 --start-timeout {} --worker-timeout {} "
              "--mpiexec '{}' -- meta-train '{}' --threads 1 --out '{}' {}",
              program_, ranks, setup_.plugin, setup_.timeouts.start_seconds,
              setup_.timeouts.worker_seconds, setup_.mpiexec, config(), out(),
              resume ? "--resume" : "")};
      Execute(Arguments(words));
    });
  }

  std::vector<Json> RestartLog() const {
    std::ifstream file(out() + "/restarts.jsonl");
    std::vector<Json> entries;
    for (std::string line; std::getline(file, line);) entries.push_back(Json::parse(line));
    return entries;
  }

 private:
  bool LeavesRoot() const { return setup_.ordinary_user && ::geteuid() == 0; }

  Setup setup_;
  std::string program_ = BuildPath("lopt");
  TempDirectory scratch_;
};

// What one process gives that nothing happens to, as files; made when it is first asked for.
class Undisturbed {
 public:
  static const Undisturbed& Get() {
    static const Undisturbed undisturbed;
    return undisturbed;
  }

  NamedArrays Theta() const { return FinalTheta(run_.out()); }
  StepShares Shares() const {
    return CheckpointStore(run_.checkpoints(), {}).ReadNewest()->ledger.Total();
  }

 private:
  Undisturbed() : run_(kOneHost) {
    MarkedJob job(run_.out(), [this]() -> int {
      const std::vector<std::string> words = {
          BuildPath("lopt"), "meta-train", run_.config(), "--threads", "2", "--out", run_.out()};
      Execute(Arguments(words));
    });
    REQUIRE_EQ(job.Wait(), kExitDone);
  }

  Run run_;
};

enum class Moment { kBeforeFirstCheckpoint, kInCheckpoint, kInGather };

// Without a barrier between updates the learner never waits for one rank.
std::vector<Moment> MomentsOf(const Setup& setup) {
  std::vector<Moment> moments = {Moment::kBeforeFirstCheckpoint, Moment::kInCheckpoint};
  if (setup.reproducible) moments.push_back(Moment::kInGather);
  return moments;
}
const std::string kMomentNames[] = {"before the first checkpoint", "during a checkpoint",
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
  job.WaitUntil("all ranks run", [&] {
    ranks = job.Ranks();
    return ranks.size() == kRanks;
  });
  if (moment == Moment::kBeforeFirstCheckpoint) {
    REQUIRE_FALSE(HasEntry(run.checkpoints(), "step-"));
    return {ranks, {}};
  }
  job.WaitUntil("there is a checkpoint",
                [&] { return HasEntry(run.checkpoints(), "step-00000008"); });
  if (moment == Moment::kInCheckpoint) {
    const pid_t learner = ranks.at(0);
    job.WaitUntil("a checkpoint has begun", [&] {
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
    job.WaitUntil("rank 1 has reported",
                  [&] { return ReportOf(run, 1).value_or(RankStatus()).time_seconds > before; });
    return ReportOf(run, 1)->updates;
  }();
  job.WaitUntil("the learner waits", [&] {
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

void CheckEnded(const Run& run) {
  CHECK_EQ(RunDirectory(run.out()).ReadManifest().status, "finished");
  const auto checkpoint = CheckpointStore(run.checkpoints(), {}).ReadNewest();
  CHECK_EQ(checkpoint->learner.outer_step, run.setup().updates);
  const Ledger& ledger = checkpoint->ledger;
  const StepShares shares = ledger.Total();
  // Whole windows only.
  for (const auto& [outcome, word] : kOutcomes) CHECK_EQ(shares[outcome] % kStepsOfWindow, 0);
  if (!run.setup().reproducible) {
    CHECK_GT(shares[Outcome::kUsed], 0);
    CHECK_EQ(FinalTheta(run.out()).size(), Undisturbed::Get().Theta().size());
    return;
  }
  CHECK(FinalTheta(run.out()) == Undisturbed::Get().Theta());
  CHECK_EQ(shares[Outcome::kUsed], Undisturbed::Get().Shares()[Outcome::kUsed]);
  CHECK_EQ(shares[Outcome::kUsed], kUpdates * kWorkers * kStepsOfWindow);
  CHECK_EQ(shares.Total(), shares[Outcome::kUsed] + shares[Outcome::kLost]);
  CHECK_EQ(ledger.UnknownWindows(), 0);
}

// The job goes on when they have passed. In a gather the test itself holds a rank for a while,
// which must not be found first.
Timeouts TimeoutsOfStopped(Moment moment) {
  if (moment == Moment::kInGather) return {};
  return {.worker_seconds = 1.0 * Patience()};
}

// Kills or stops the targets once at every moment; the supervisor does the rest.
void CheckRanks(const Setup& setup, int signal, const std::vector<int>& targets) {
  if (!HasHydra()) return;
  CAPTURE(setup.name);
  for (const Moment moment : MomentsOf(setup)) {
    CAPTURE(kMomentNames[static_cast<int>(moment)]);
    Setup timed = setup;
    if (signal == SIGSTOP) timed.timeouts = TimeoutsOfStopped(moment);
    const Run run(timed);
    MarkedJob job = run.Start(kRanks);
    Disturb(moment, signal, targets, run, job);
    CHECK_EQ(job.Wait(), kExitDone);
    CheckNothingIsLeft(job);
    CheckEnded(run);
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
void CheckResumes(const Run& run, int ranks) {
  const bool has_checkpoint = HasEntry(run.checkpoints(), "step-");
  if (has_checkpoint) {
    CHECK(CheckpointStore(run.checkpoints(), {}).ReadNewest().has_value());
  }
  MarkedJob job = run.Start(ranks, fs::exists(run.out() + "/manifest.json"));
  CHECK_EQ(job.Wait(), kExitDone);
  CheckNothingIsLeft(job);
  CheckEnded(run);
}

void CheckKilledMpiexec(const Setup& setup) {
  if (!HasHydra()) return;
  CAPTURE(setup.name);
  for (const Moment moment : MomentsOf(setup)) {
    CAPTURE(kMomentNames[static_cast<int>(moment)]);
    const Run run(setup);
    MarkedJob job = run.Start(kRanks);
    const auto held = WaitFor(moment, run, job).second;
    ::kill(job.Named("mpiexec"), SIGKILL);
    for (const pid_t pid : held) ::kill(pid, SIGCONT);
    CHECK_EQ(job.Wait(), kExitDone);
    CheckNothingIsLeft(job);
    CheckEnded(run);
    REQUIRE_EQ(run.RestartLog().size(), 1);
    CHECK_EQ(run.RestartLog()[0]["exit_code"], 128 + SIGKILL);
  }
}

void CheckKilledProcessManager(const Setup& setup) {
  if (!HasHydra()) return;
  CAPTURE(setup.name);
  const Run run(setup);
  MarkedJob job = run.Start(kRanks);
  job.WaitUntil("there is a checkpoint",
                [&] { return HasEntry(run.checkpoints(), "step-00000008"); });
  ::kill(job.Named("hydra_pmi_proxy"), SIGKILL);
  CHECK_EQ(job.Wait(), kExitDone);
  CheckNothingIsLeft(job);
  CheckEnded(run);
}

void CheckKilledSupervisor(const Setup& setup) {
  if (!HasHydra()) return;
  CAPTURE(setup.name);
  for (const Moment moment : MomentsOf(setup)) {
    CAPTURE(kMomentNames[static_cast<int>(moment)]);
    const Run run(setup);
    MarkedJob job = run.Start(kRanks);
    const auto held = WaitFor(moment, run, job).second;
    ::kill(job.child(), SIGKILL);
    CHECK_EQ(job.Wait(), 128 + SIGKILL);
    CheckNothingIsLeft(job);  // also with a rank that is stopped
    CheckResumes(run, moment == Moment::kInGather ? 5 : 2);
  }
}

void CheckStop(const Setup& setup) {
  if (!HasHydra()) return;
  CAPTURE(setup.name);
  for (const bool to_supervisor : {true, false}) {
    CAPTURE(to_supervisor);
    const Run run(setup);
    MarkedJob job = run.Start(kRanks);
    job.WaitUntil("there is a checkpoint",
                  [&] { return HasEntry(run.checkpoints(), "step-00000008"); });
    ::kill(to_supervisor ? job.child() : job.Named("mpiexec"), SIGTERM);
    CHECK_EQ(job.Wait(), kExitInterrupted);
    CheckNothingIsLeft(job);
    const RunManifest manifest = RunDirectory(run.out()).ReadManifest();
    CHECK_EQ(manifest.status, "interrupted");
    CHECK_LT(manifest.updates, setup.updates);
    CHECK_EQ(CheckpointStore(run.checkpoints(), {}).Steps().back(), manifest.updates);
    CHECK(run.RestartLog().empty());
    CheckResumes(run, to_supervisor ? 2 : 5);
  }
}

}  // namespace

TEST_CASE("Kill matrix: a killed worker") { CheckRanks(kOneHost, SIGKILL, {2}); }
TEST_CASE("Kill matrix: a stopped learner") { CheckRanks(kOneHost, SIGSTOP, {0}); }
TEST_CASE("Kill matrix: a killed supervisor leaves nothing, and the run goes on elsewhere") {
  CheckKilledSupervisor(kOneHost);
}
TEST_CASE("Kill matrix on two hosts: a killed process manager of one") {
  CheckKilledProcessManager(kTwoHosts);
}
TEST_CASE("Kill matrix, Async: a killed learner") { CheckRanks(kAsync, SIGKILL, {0}); }

TEST_SUITE("nightly") {
  TEST_CASE("Kill matrix as an ordinary user: a killed worker") {
    if (CanBeOrdinaryUser()) CheckRanks(kOrdinaryUser, SIGKILL, {2});
  }
  TEST_CASE("Kill matrix: a killed learner") { CheckRanks(kOneHost, SIGKILL, {0}); }
  TEST_CASE("Kill matrix: two killed workers") { CheckRanks(kOneHost, SIGKILL, {1, 2}); }
  TEST_CASE("Kill matrix: a stopped worker") { CheckRanks(kOneHost, SIGSTOP, {2}); }
  TEST_CASE("Kill matrix: two stopped workers") { CheckRanks(kOneHost, SIGSTOP, {1, 2}); }
  TEST_CASE("Kill matrix: a killed mpiexec") { CheckKilledMpiexec(kOneHost); }
  TEST_CASE("Kill matrix: a killed process manager of a host leaves no ranks") {
    CheckKilledProcessManager(kOneHost);
  }
  TEST_CASE(
      "Kill matrix: SIGTERM to the supervisor or to mpiexec saves a checkpoint on every rank") {
    CheckStop(kOneHost);
  }
  TEST_CASE("Kill matrix on two hosts: a killed learner") { CheckRanks(kTwoHosts, SIGKILL, {0}); }
  TEST_CASE("Kill matrix on two hosts: a killed worker") { CheckRanks(kTwoHosts, SIGKILL, {1}); }
  TEST_CASE("Kill matrix on two hosts: a stopped worker") { CheckRanks(kTwoHosts, SIGSTOP, {1}); }
  TEST_CASE("Kill matrix on two hosts: a killed mpiexec") { CheckKilledMpiexec(kTwoHosts); }
  TEST_CASE("Kill matrix on two hosts: a killed supervisor") { CheckKilledSupervisor(kTwoHosts); }
  TEST_CASE("Kill matrix on two hosts: SIGTERM") { CheckStop(kTwoHosts); }
  TEST_CASE("Kill matrix, Async: a killed worker") { CheckRanks(kAsync, SIGKILL, {2}); }
  TEST_CASE("Kill matrix, Async: a stopped worker") { CheckRanks(kAsync, SIGSTOP, {2}); }
  TEST_CASE("Kill matrix, Async: a killed supervisor") { CheckKilledSupervisor(kAsync); }
  TEST_CASE("Kill matrix, Async: SIGTERM") { CheckStop(kAsync); }
  TEST_CASE("Kill matrix, deadline: a killed learner") { CheckRanks(kDeadline, SIGKILL, {0}); }
  TEST_CASE("Kill matrix, deadline: a killed worker") { CheckRanks(kDeadline, SIGKILL, {2}); }
  TEST_CASE("Kill matrix, deadline: a stopped worker") { CheckRanks(kDeadline, SIGSTOP, {2}); }
  TEST_CASE("Kill matrix, deadline: a killed supervisor") { CheckKilledSupervisor(kDeadline); }
  TEST_CASE("Kill matrix, deadline: SIGTERM") { CheckStop(kDeadline); }
  TEST_CASE("Kill matrix, a plug-in's task: a killed worker") { CheckRanks(kPlugin, SIGKILL, {2}); }
  TEST_CASE("Kill matrix as an ordinary user: a killed mpiexec") {
    if (CanBeOrdinaryUser()) CheckKilledMpiexec(kOrdinaryUser);
  }
  TEST_CASE("Kill matrix as an ordinary user: a killed supervisor") {
    if (CanBeOrdinaryUser()) CheckKilledSupervisor(kOrdinaryUser);
  }
  TEST_CASE("Kill matrix as an ordinary user: SIGTERM") {
    if (CanBeOrdinaryUser()) CheckStop(kOrdinaryUser);
  }
}

}  // namespace lopt
