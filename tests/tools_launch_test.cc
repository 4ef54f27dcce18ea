#include <doctest/doctest.h>
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/process_identity.h"
#include "lopt/base/run_lock.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/launch/rank_end.h"
#include "lopt/tools/launch/rank_guard.h"
#include "lopt/tools/launch/rank_watch.h"
#include "lopt/tools/launch/restart_policy.h"
#include "lopt/tools/launch/supervisor.h"
#include "tests/error_of.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {

namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

Strings Lines(const std::string& path) {
  std::ifstream file(path);
  Strings lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<Json> RestartLog(const std::string& out_dir) {
  std::vector<Json> entries;
  for (const std::string& line : Lines(out_dir + "/restarts.jsonl")) {
    entries.push_back(Json::parse(line));
  }
  return entries;
}

// What a stand-in for mpiexec can do, as shell functions; $n is the number of ranks that it was
// asked for and $attempt counts its runs.
constexpr const char* kShellFunctions = R"sh(
attempt=$(($(cat "$scratch/attempts" 2>/dev/null || echo 0) + 1))
echo $attempt > "$scratch/attempts"
n=$2
echo "$*" >> "$scratch/commands"
# status
write_manifest() {
  mkdir -p "$out/checkpoints"
  printf '{"format": "lopt run 1", "status": "%s", "updates": 0, "version": "", "isa": "", "seed": 0, "threads": 1}' \
    $1 > "$out/manifest.new"
  mv "$out/manifest.new" "$out/manifest.json"
}
write_run() { write_manifest running; }
finish() { write_manifest finished; exit 0; }
write_checkpoint() { mkdir -p "$out/checkpoints/step-$(printf %08d $1)"; }
# rank, process, updates, time
write_status() {
  mkdir -p "$out/status"
  printf '{"rank": %s, "host": "%s", "pid": %s, "updates": %s, "state": "running", "time_seconds": %s}' \
    $1 "$(hostname)" $2 $3 $4 > "$out/status/new-$1"
  mv "$out/status/new-$1" "$out/status/rank-$1.json"
}
# rank
write_killed() {
  mkdir -p "$out/status"
  echo "{\"rank\": $1, \"host\": \"$(hostname)\", \"exit_code\": 137, \"by_signal\": true, \"stopped\": false}" > "$out/status/new"
  mv "$out/status/new" "$out/status/end-$1.json"
}
)sh";

// A launch whose mpiexec is a shell script.
class FakeLaunch {
 public:
  explicit FakeLaunch(const std::string& script) {
    std::ofstream(scratch_ / "mpiexec")
        << fmt::format("scratch='{}'\nout='{}'\n", scratch_.path(), out()) << kShellFunctions
        << script << "\n";
    options.mpiexec = {"/bin/sh", scratch_ / "mpiexec"};
    options.program = {"lopt", "meta-train"};
    options.out_dir = out();
    options.restart = {.ranks = 2, .min_ranks = 2};
    options.wait = [this](double seconds) { delays.push_back(seconds); };
  }

  int Run() { return Supervise(options); }
  std::string out() const { return scratch_ / "run"; }
  // The words that each run of mpiexec got.
  Strings Commands() const { return Lines(scratch_ / "commands"); }

  SupervisorOptions options;
  std::vector<double> delays;  // waits before restarts

 private:
  TempDirectory scratch_;
};

FinishedProcess Launch(const Strings& arguments) {
  Strings words = {BuildPath("lopt"), "launch"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words);
}

void WriteStatus(const std::string& out_dir, const RankStatus& status) {
  WriteStatusFile(StatusPath(out_dir, status.rank), status);
}

void WriteManifest(const std::string& out_dir, const std::string& status) {
  std::filesystem::create_directories(out_dir);
  RunDirectory(out_dir).WriteManifest({.status = status});
}

}  // namespace

TEST_CASE("Delays double up to a bound and the restarts end after the given number") {
  RestartPolicy policy({.ranks = 4,
                        .min_ranks = 4,
                        .max_restarts = 5,
                        .first_delay_seconds = 1,
                        .max_delay_seconds = 6},
                       -1);
  const AttemptProgress nothing = {.started = true};
  for (const double delay : {1, 2, 4, 6, 6}) CHECK_EQ(policy.AfterFailure(nothing), delay);
  CHECK_FALSE(policy.AfterFailure(nothing).has_value());
}

TEST_CASE("Progress ends a series of failures: more updates or a newer checkpoint") {
  RestartPolicy policy({.ranks = 4, .min_ranks = 4, .max_restarts = 2}, 10);
  CHECK_EQ(policy.AfterFailure({.started = true, .checkpoint = 10, .updates = 10}), 1);
  CHECK_EQ(policy.AfterFailure({.started = true, .checkpoint = 10, .updates = 13}), 0);
  CHECK_EQ(policy.AfterFailure({.started = true, .checkpoint = 10, .updates = 12}), 1);
  CHECK_EQ(policy.AfterFailure({.started = true, .checkpoint = 11, .updates = 12}), 0);
  CHECK_EQ(policy.AfterFailure({.started = true, .checkpoint = 11, .updates = 13}), 1);
  CHECK_EQ(policy.AfterFailure({.started = true, .checkpoint = 11, .updates = 13}), 2);
  CHECK_FALSE(policy.AfterFailure({.started = true, .checkpoint = 11, .updates = 13}).has_value());
}

TEST_CASE("Two failed starts in a row halve the ranks, down to the given number") {
  RestartPolicy policy({.ranks = 9, .min_ranks = 3, .max_restarts = 9}, -1);
  std::vector<int> ranks;
  for (int failure = 0; failure < 7; ++failure) {
    policy.AfterFailure({.started = false});
    ranks.push_back(policy.ranks());
  }
  CHECK_EQ(ranks, std::vector<int>{9, 5, 5, 3, 3, 3, 3});

  RestartPolicy between({.ranks = 9, .min_ranks = 3}, -1);
  between.AfterFailure({.started = false});
  between.AfterFailure({.started = true});
  between.AfterFailure({.started = false});
  CHECK_EQ(between.ranks(), 9);
}

TEST_CASE("The watch names the ranks that ended and those that fell silent") {
  const TempDirectory out;
  RankWatch watch(out.path(), 100);
  watch.Read(101);
  CHECK(watch.All().empty());
  CHECK_EQ(watch.last_change(), 100);
  WriteStatus(out.path(), {.rank = 1, .host = "a", .updates = 6, .time_seconds = 1});
  watch.Read(102);
  CHECK_FALSE(watch.started());
  WriteStatus(out.path(), {.rank = 0, .host = "a", .updates = 7, .time_seconds = 1});
  WriteStatus(out.path(), {.rank = 2, .host = "b", .updates = 5, .time_seconds = 1});
  std::ofstream(out / "status/rank-3.json") << "{\"rank\": 3";
  watch.Read(102);
  CHECK(watch.started());
  CHECK_EQ(watch.All().size(), 3);
  CHECK_EQ(watch.updates(), 7);
  WriteStatus(out.path(), {.rank = 1, .host = "a", .updates = 8, .time_seconds = 2});
  watch.Read(110);
  CHECK_EQ(watch.last_change(), 110);
  CHECK(watch.Behind(8).empty());
  CHECK_EQ(DescribeRanks(watch.Behind(7)),
           "rank 0 on host a (last step 7), rank 2 on host b (last step 5)");

  CHECK_FALSE(watch.AnyEnded());
  WriteRankEnd(out.path(), {.rank = 2, .host = "b", .end = {.exit_code = 15}, .stopped = true});
  watch.Read(111);
  CHECK(watch.AnyEnded());
  CHECK(watch.Ended().empty());
  WriteRankEnd(out.path(), {.rank = 0, .host = "a", .end = {.exit_code = 1}});
  watch.Read(111);
  CHECK_EQ(DescribeRanks(watch.Ended()), "rank 0 on host a (last step 7)");
  WriteRankEnd(out.path(), {.rank = 1, .host = "a", .end = {.exit_code = 137, .by_signal = true}});
  WriteRankEnd(out.path(), {.rank = 9, .host = "c", .end = {.exit_code = 139, .by_signal = true}});
  watch.Read(111);
  CHECK_EQ(DescribeRanks(watch.Ended()),
           "rank 1 on host a (last step 8), rank 9 on host c (last step 0)");
  RemoveStatusFiles(out.path());
  CHECK(ReadStatusFiles<RankStatus>(out.path(), kRankStatus).empty());
  CHECK(ReadRankEnds(out.path()).empty());
}

TEST_CASE("A job that finishes is run once, with the words of its command") {
  FakeLaunch launch("finish");
  launch.options.program = {"lopt", "meta-train", "--preset", "smoke"};
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(launch.Commands(), Strings{"-n 2 lopt meta-train --preset smoke"});
  CHECK_FALSE(std::filesystem::exists(launch.out() + "/restarts.jsonl"));
}

TEST_CASE("What the run's manifest says counts, whatever mpiexec's exit code is") {
  {
    FakeLaunch launch("write_manifest finished; exit 9");
    CHECK_EQ(launch.Run(), kExitDone);
    CHECK_EQ(launch.Commands().size(), 1);
  }
  {
    FakeLaunch launch("write_manifest interrupted; exit 0");
    CHECK_EQ(launch.Run(), kExitInterrupted);
    CHECK_EQ(launch.Commands().size(), 1);
  }
  {
    FakeLaunch launch("[ $attempt = 3 ] && finish; write_run; exit 0");
    CHECK_EQ(launch.Run(), kExitDone);
    CHECK_EQ(launch.Commands().size(), 3);
    CHECK_EQ(RestartLog(launch.out())[0]["exit_code"], 0);
  }
  {
    FakeLaunch launch("[ $attempt = 2 ] && finish; exit 9");
    WriteManifest(launch.out(), "finished");  // with fewer updates than are wanted now
    launch.options.resume = true;
    CHECK_EQ(launch.Run(), kExitDone);
    CHECK_EQ(launch.Commands().size(), 2);
  }
}

TEST_CASE("A job that says it was interrupted is not restarted") {
  FakeLaunch launch("exit 75");
  CHECK_EQ(launch.Run(), kExitInterrupted);
  CHECK_EQ(launch.Commands().size(), 1);
}

TEST_CASE("A job with a killed rank is resumed, and the log names rank, host and last step") {
  FakeLaunch launch(R"sh(
[ $attempt = 2 ] && finish
write_run
write_checkpoint 40
write_status 0 11 42 1
write_status 1 12 41 1
write_killed 1
exit 9)sh");
  launch.options.overwrite = true;
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(launch.Commands(),
           Strings{"-n 2 lopt meta-train --overwrite", "-n 2 lopt meta-train --resume"});
  CHECK(launch.delays.empty());
  const std::vector<Json> log = RestartLog(launch.out());
  REQUIRE_EQ(log.size(), 1);
  CHECK_EQ(log[0]["reason"], "killed");
  CHECK_EQ(log[0]["attempt"], 1);
  CHECK_EQ(log[0]["ranks"], 2);
  CHECK_EQ(log[0]["exit_code"], 9);
  CHECK_EQ(
      log[0]["culprits"],
      Json::parse(fmt::format(R"([{{"rank": 1, "host": "{}", "last_step": 41}}])", HostName())));
  CHECK_EQ(log[0]["updates"], 42);
  CHECK_EQ(log[0]["checkpoint"], 40);
  CHECK_EQ(log[0]["restarted"], true);
  CHECK_EQ(log[0]["delay_seconds"], 0);
  CHECK_EQ(log[0]["time"].get<std::string>().size(), std::string("2026-01-31T12:00:00Z").size());
}

TEST_CASE("A job without progress is given up after the allowed restarts") {
  FakeLaunch launch("write_run; write_status 0 $$ 3 1; exit 1");
  launch.options.restart.max_restarts = 2;
  CHECK(ErrorOf([&] {
          launch.Run();
        }).starts_with("gave up after 3 failures in a row without progress: "));
  // The first attempt made three updates; the others began anew and came no further.
  CHECK_EQ(launch.Commands().size(), 4);
  CHECK_EQ(launch.delays, std::vector<double>{1, 2});
  const std::vector<Json> log = RestartLog(launch.out());
  REQUIRE_EQ(log.size(), 4);
  CHECK_EQ(log[2]["restarted"], true);
  CHECK_EQ(log[3]["restarted"], false);
  CHECK_EQ(log[3]["attempt"], 4);
}

TEST_CASE("A command that is refused is not tried again") {
  for (const int code : {1, 2}) {
    FakeLaunch launch(fmt::format("exit {}", code));
    CHECK_EQ(launch.Run(), code);
    CHECK_EQ(launch.Commands().size(), 1);
  }
}

TEST_CASE("A job that succeeds and makes no run is an error, and is not tried again") {
  FakeLaunch launch("exit 0");
  launch.options.restart.min_ranks = 1;
  CHECK_EQ(ErrorOf([&] { launch.Run(); }),
           fmt::format("the job ended with exit code 0 and without a run in {}, and would do so "
                       "again; what was launched: lopt meta-train",
                       launch.out()));
  CHECK_EQ(launch.Commands().size(), 1);
  CHECK_FALSE(std::filesystem::exists(launch.out() + "/restarts.jsonl"));
  // An mpiexec that ends with 0 although a rank was killed.
  FakeLaunch killed("[ $attempt = 2 ] && finish; write_killed 1; exit 0");
  CHECK_EQ(killed.Run(), kExitDone);
  CHECK_EQ(killed.Commands().size(), 2);
}

TEST_CASE("An error of the learner while it starts is not tried again, a lost rank is") {
  for (const int code : {kExitError, kExitRankLost}) {
    CAPTURE(code);
    FakeLaunch launch(
        fmt::format("[ $attempt = 2 ] && finish; write_run; write_status 1 $$ 0 1; exit {}", code));
    CHECK_EQ(launch.Run(), code == kExitError ? kExitError : kExitDone);
    CHECK_EQ(launch.Commands().size(), code == kExitError ? 1 : 2);
  }
}

TEST_CASE("A start that fails with too many ranks goes on with fewer") {
  FakeLaunch launch("[ $n -gt 3 ] && exit 1; finish");
  launch.options.restart = {.ranks = 8, .min_ranks = 3};
  CHECK_EQ(launch.Run(), kExitDone);
  Strings ranks;
  for (const std::string& command : launch.Commands()) ranks.push_back(command.substr(0, 4));
  CHECK_EQ(ranks, Strings{"-n 8", "-n 8", "-n 4", "-n 4", "-n 3"});
  CHECK_EQ(launch.delays, std::vector<double>{1, 2, 4, 8});
  CHECK_EQ(RestartLog(launch.out())[3]["reason"], "not started");
}

TEST_CASE("A run that was there before is neither resumed nor replaced unasked") {
  FakeLaunch launch("finish");
  std::filesystem::create_directories(launch.out());
  WriteManifest(launch.out(), "finished");
  CHECK_EQ(ErrorOf([&] { launch.Run(); }),
           launch.out() +
               " holds a run already: resume it (--resume), replace it (--overwrite), "
               "or choose another directory");
  CHECK(launch.Commands().empty());
  launch.options.resume = true;
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(launch.Commands(), Strings{"-n 2 lopt meta-train --resume"});
}

TEST_CASE("Going back is for the attempts until one has, and restarts go on from the newest") {
  // The second attempt dies while it removes the later checkpoint, the third after it has.
  FakeLaunch launch(R"sh(
[ $attempt = 4 ] && finish
[ $attempt = 1 ] || write_run
[ $attempt = 3 ] && { rm -r "$out/checkpoints/step-00000900"; write_status 0 $$ 10 1; }
exit 9)sh");
  for (const char* step : {"10", "900"}) {
    std::filesystem::create_directories(
        fmt::format("{}/checkpoints/step-{:0>8}", launch.out(), step));
  }
  WriteManifest(launch.out(), "finished");
  launch.options.resume = true;
  launch.options.from = 10;
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(
      launch.Commands(),
      Strings{"-n 2 lopt meta-train --resume --from 10", "-n 2 lopt meta-train --resume --from 10",
              "-n 2 lopt meta-train --resume --from 10", "-n 2 lopt meta-train --resume"});
  // None of them has come further than where it began.
  CHECK_EQ(launch.delays, std::vector<double>{1, 2, 4});
  for (const Json& entry : RestartLog(launch.out())) CHECK_EQ(entry["checkpoint"], 10);
}

TEST_CASE("A log of restarts or a manifest that cannot be used ends no launch") {
  FakeLaunch launch(R"sh(
[ $attempt = 3 ] && finish
write_run
[ $attempt = 2 ] && echo '{' > "$out/manifest.json"
exit 9)sh");
  std::filesystem::create_directories(launch.out() + "/restarts.jsonl");
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(launch.Commands().size(), 3);
  CHECK(std::filesystem::is_directory(launch.out() + "/restarts.jsonl"));
}

TEST_CASE("A run that is to be replaced is not resumed before it has been") {
  FakeLaunch launch("[ $attempt = 3 ] && finish; [ $attempt = 2 ] && write_run; exit 9");
  std::filesystem::create_directories(launch.out() + "/checkpoints/step-00000900");
  WriteManifest(launch.out(), "finished");
  WriteTextFile(launch.out() + "/restarts.jsonl", "{\"old\": true}\n");
  launch.options.overwrite = true;
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(launch.Commands(),
           Strings{"-n 2 lopt meta-train --overwrite", "-n 2 lopt meta-train --overwrite",
                   "-n 2 lopt meta-train --resume"});
  const std::vector<Json> log = RestartLog(launch.out());
  REQUIRE_EQ(log.size(), 2);
  CHECK_EQ(log[0]["checkpoint"], -1);
}

TEST_CASE("A job in which no rank reports any more is killed, stopped processes included") {
  FakeLaunch launch(R"sh(
[ $attempt = 2 ] && finish
write_run
setsid sleep 1000 &
echo $! > "$scratch/stopped"
kill -STOP $!
write_status 0 $! 5 1
kill -STOP $$)sh");
  launch.options.worker_timeout_seconds = 0.2;
  launch.options.silence_allowance_seconds = 0.1;
  CHECK_EQ(launch.Run(), kExitDone);
  const std::vector<Json> log = RestartLog(launch.out());
  REQUIRE_EQ(log.size(), 1);
  CHECK_EQ(log[0]["reason"], "hung");
  CHECK_EQ(log[0]["culprits"][0]["last_step"], 5);
  const int stopped =
      std::stoi(ReadTextFile(std::filesystem::path(launch.out()).parent_path() / "stopped"));
  CHECK_NE(kill(stopped, 0), 0);
}

TEST_CASE("A rank that fell silent before the others is named as hung") {
  FakeLaunch launch(R"sh(
[ $attempt = 2 ] && finish
write_run
write_status 0 $$ 8 1
write_status 1 1 7 1
i=0
until [ -e "$scratch/late" ]; do
  i=$((i + 1)); write_status 0 $$ 8 $i; sleep 0.02
  [ $i = 40 ] && touch "$scratch/late"
done
exit 1)sh");
  launch.options.worker_timeout_seconds = 0.3;
  launch.options.silence_allowance_seconds = 20;
  CHECK_EQ(launch.Run(), kExitDone);
  const std::vector<Json> log = RestartLog(launch.out());
  REQUIRE_EQ(log.size(), 1);
  CHECK_EQ(log[0]["reason"], "hung");
  REQUIRE_EQ(log[0]["culprits"].size(), 1);
  CHECK_EQ(log[0]["culprits"][0]["rank"], 1);
}

TEST_CASE("When mpiexec is killed what it left is ended before the restart") {
  FakeLaunch launch(R"sh(
if [ $attempt = 2 ]; then
  kill -0 $(cat "$scratch/left") 2>/dev/null && exit 1
  finish
fi
write_run
setsid sleep 1000 &
echo $! > "$scratch/left"
write_status 0 $! 5 1
kill -9 $$)sh");
  CHECK_EQ(launch.Run(), kExitDone);
  CHECK_EQ(RestartLog(launch.out())[0]["reason"], "mpiexec killed");
}

TEST_CASE("A signal to stop reaches the job, whose end ends the launch") {
  for (const char* signal : {"TERM", "INT", "HUP"}) {
    CAPTURE(signal);
    FakeLaunch launch(
        fmt::format("trap 'echo $attempt >> \"$scratch/stops\"; exit 75' TERM\nwrite_run\nkill -{} "
                    "$PPID\nwhile :; do sleep 0.01; done",
                    signal));
    CHECK_EQ(launch.Run(), kExitInterrupted);
    CHECK_EQ(Lines(std::filesystem::path(launch.out()).parent_path() / "stops"), Strings{"1"});
  }
}

TEST_CASE("A signal to stop that came before the job is started is not lost") {
  sigset_t stop;
  sigset_t before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_BLOCK, &stop, &before);
  raise(SIGTERM);
  FakeLaunch launch("");
  launch.options.mpiexec = {"/nowhere/mpiexec"};
  CHECK_EQ(launch.Run(), kExitInterrupted);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("A signal to stop that mpiexec answers by exit code 0 or an error is one all the same") {
  for (const char* end : {"exit 0", "exit 1", "write_run; exit 0", "write_run; exit 9"}) {
    CAPTURE(end);
    FakeLaunch launch(
        fmt::format("trap '{}' TERM; kill -TERM $PPID; while :; do sleep 0.01; done", end));
    CHECK_EQ(launch.Run(), kExitInterrupted);
    CHECK_EQ(launch.Commands().size(), 1);
  }
}

TEST_CASE("A signal to stop while a failed job is cleared away is not lost") {
  FakeLaunch launch(R"sh(
trap '' TERM
write_run
write_checkpoint 40
kill -TERM $PPID
exit 9)sh");
  CHECK_EQ(launch.Run(), kExitInterrupted);
  CHECK_EQ(launch.Commands().size(), 1);
  CHECK_FALSE(std::filesystem::exists(launch.out() + "/restarts.jsonl"));
}

TEST_CASE("A signal to stop that the job has lost is repeated") {
  FakeLaunch launch(R"sh(
trap 'signals=${signals}x; [ $signals = xxx ] && write_manifest interrupted && exit 0' TERM
kill -TERM $PPID
while :; do sleep 0.01; done)sh");
  CHECK_EQ(launch.Run(), kExitInterrupted);
  CHECK_EQ(RunDirectory(launch.out()).ReadManifest().status, "interrupted");
}

TEST_CASE("A job that is told to stop before it has started, and does not, is killed") {
  FakeLaunch launch("trap '' TERM; kill -TERM $PPID; while :; do sleep 0.01; done");
  launch.options.start_timeout_seconds = 1000;
  CHECK_EQ(launch.Run(), kExitInterrupted);
}

TEST_CASE("Output that nobody reads any more is a stop") {
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  std::fflush(stdout);  // under ThreadSanitizer _exit writes what is buffered
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    close(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    FakeLaunch launch("trap 'exit 75' TERM; echo line; while :; do sleep 0.01; done");
    const int code = launch.Run();
    _exit(launch.Commands().size() == 1 ? code : 1);
  }
  close(ends[1]);
  char byte = 0;
  CHECK_EQ(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  int status = 0;
  waitpid(supervisor, &status, 0);
  CHECK_EQ(WEXITSTATUS(status), kExitInterrupted);
}

TEST_CASE("A directory in which a launch or a rank runs is refused at once and left as it is") {
  for (const char* holder : {"launch", "run"}) {
    CAPTURE(holder);
    FakeLaunch launch("finish");
    WriteManifest(launch.out(), "running");
    WriteStatus(launch.out(), {.rank = 0, .host = "a", .updates = 7, .time_seconds = 1});
    WriteTextFile(launch.out() + "/restarts.jsonl", "{}\n");
    const RunLock lock(launch.out(), holder);
    for (const bool overwrite : {false, true}) {
      launch.options.resume = !overwrite;
      launch.options.overwrite = overwrite;
      CHECK_EQ(ErrorOf([&] { launch.Run(); }),
               fmt::format("{} is in use: process {} on host {} runs in it", launch.out(), getpid(),
                           HostName()));
    }
    CHECK(launch.Commands().empty());
    CHECK_EQ(Lines(launch.out() + "/restarts.jsonl"), Strings{"{}"});
    CHECK_EQ(ReadStatusFiles<RankStatus>(launch.out(), kRankStatus).size(), 1);
  }
}

TEST_CASE("A killed rank ends the job also where mpiexec goes on without it") {
  FakeLaunch launch(R"sh(
[ $attempt = 2 ] && finish
write_run
write_status 0 $$ 42 1
write_status 1 $$ 41 1
write_killed 1
while :; do sleep 0.01; done)sh");
  launch.options.worker_timeout_seconds = 1000;
  CHECK_EQ(launch.Run(), kExitDone);
  const std::vector<Json> log = RestartLog(launch.out());
  REQUIRE_EQ(log.size(), 1);
  CHECK_EQ(log[0]["reason"], "killed");
  CHECK_EQ(log[0]["exit_code"], 137);
  REQUIRE_EQ(log[0]["culprits"].size(), 1);
  CHECK_EQ(log[0]["culprits"][0]["rank"], 1);
}

TEST_CASE("A start has a timeout of its own") {
  FakeLaunch launch(R"sh(
[ $attempt = 2 ] && { sleep 1; finish; }
write_run
write_status 0 $$ 1 1
while :; do sleep 0.01; done)sh");
  launch.options.start_timeout_seconds = 1000;
  launch.options.worker_timeout_seconds = 0.2;
  launch.options.silence_allowance_seconds = 0.1;
  CHECK_EQ(launch.Run(), kExitDone);  // its first attempt falls silent, its second starts slowly
  CHECK_EQ(RestartLog(launch.out()).size(), 1);

  FakeLaunch stuck("while :; do sleep 0.01; done");
  stuck.options.restart.max_restarts = 0;
  stuck.options.start_timeout_seconds = 0.1;
  CHECK(ErrorOf([&] {
          stuck.Run();
        }).find("the learner has not reported in time, the job was killed") != std::string::npos);
  CHECK_EQ(RestartLog(stuck.out())[0]["reason"], "not started");
}

TEST_CASE("A job that dies of the signal to stop is not restarted") {
  FakeLaunch launch("kill -TERM $PPID\nwhile :; do sleep 0.01; done");
  CHECK_EQ(launch.Run(), kExitInterrupted);
  CHECK_EQ(launch.Commands().size(), 1);
}

TEST_CASE("A second signal to stop kills the job") {
  FakeLaunch launch("trap 'kill -TERM $PPID' TERM\nkill -TERM $PPID\nwhile :; do sleep 0.01; done");
  CHECK_EQ(launch.Run(), kExitInterrupted);
}

TEST_CASE("A signal to stop ends the wait before a restart") {
  FakeLaunch launch("kill -TERM $PPID; exit 9");
  launch.options.wait = {};
  launch.options.restart.first_delay_seconds = 1000;
  CHECK_EQ(launch.Run(), kExitInterrupted);
  CHECK_EQ(launch.Commands().size(), 1);
}

TEST_CASE("When the supervisor is killed so is mpiexec") {
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  const pid_t supervisor = fork();
  if (supervisor == 0) {
    // The write end is passed on to mpiexec; once nobody holds it the read end is at its end.
    close(ends[0]);
    FakeLaunch launch(fmt::format("echo started >&{}\nwhile :; do sleep 0.01; done", ends[1]));
    launch.Run();
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  char buffer[64];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(count));
    kill(supervisor, SIGKILL);
  }
  CHECK_EQ(said, "started\n");
  close(ends[0]);
  waitpid(supervisor, nullptr, 0);
}

TEST_CASE("An mpiexec that cannot be run is an error with the reason") {
  FakeLaunch launch("finish");
  launch.options.mpiexec = {"/nowhere/mpiexec"};
  CHECK_EQ(ErrorOf([&] { launch.Run(); }),
           "cannot run '/nowhere/mpiexec': No such file or directory");
}

TEST_CASE("Launch: help shows an example, and wrong command lines say what is wanted") {
  const FinishedProcess help = Launch({"--help"});
  CHECK_EQ(help.exit_code, 0);
  CHECK(help.output.starts_with("Usage: lopt launch"));
  CHECK(help.output.find("\nExamples:\n") != std::string::npos);

  for (const char* word : {"--help", "-h"}) {
    const FinishedProcess of_job = Launch({"-n", "2", "--mpiexec", "/nowhere/mpiexec", "--",
                                           "meta-train", "--preset", "smoke", word});
    CHECK_EQ(of_job.exit_code, 0);
    CHECK(of_job.output.starts_with("Usage: lopt meta-train"));
  }

  const std::string usage = "usage: lopt launch -n RANKS [OPTIONS] -- meta-train ... --out DIR\n";
  const std::vector<std::pair<Strings, std::string>> cases = {
      {{}, "lopt: What to launch is missing; " + usage},
      {{"-n", "2"}, "lopt: What to launch is missing; " + usage},
      {{"--", "meta-train", "--out", "x"}, "lopt: -n RANKS is missing; " + usage},
      {{"-n", "2", "--", "bench"}, "lopt: lopt launch runs meta-train, not 'bench'; " + usage},
      {{"-n", "2", "--", "meta-train"},
       "lopt: meta-train wants --out DIR here: a restart goes on from there; " + usage},
      {{"-n", "0", "--", "meta-train", "--out", "x"}, "lopt: --ranks wants at least 1, not 0\n"},
      {{"-n", "2", "--min-ranks", "3", "--", "meta-train", "--out", "x"},
       "lopt: --min-ranks wants at most the 2 of -n, not 3\n"},
      {{"-n", "2", "--worker-timeout", "0", "--", "meta-train", "--out", "x"},
       "lopt: --worker-timeout wants more than 0, not 0\n"},
      {{"-n", "2", "--start-timeout", "-1", "--", "meta-train", "--out", "x"},
       "lopt: --start-timeout wants more than 0, not -1\n"},
      {{"-n", "2", "--retries", "3", "--", "meta-train", "--out", "x"},
       "lopt: --retries is not an option here; the options are --ranks, --max-restarts, "
       "--min-ranks, --mpiexec, --start-timeout, --worker-timeout, --plugin, --help\n"},
      {{"-n", "2", "--", "meta-train", "--resume", "--overwrite", "--out", "x"},
       "lopt: Give --resume or --overwrite, not both\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const FinishedProcess finished = Launch(arguments);
    CHECK_EQ(finished.exit_code, 2);
    CHECK_EQ(finished.errors, message);
  }
}

TEST_CASE("A guard ends as its rank does and writes down what was not a success") {
  const TempDirectory out;
  const auto guard = [&](const std::string& script) {
    const pid_t child = fork();
    if (child == 0) _exit(GuardRank(out.path(), {"/bin/sh", "-c", script}));
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  setenv("PMI_RANK", "4", 1);
  CHECK_EQ(guard("exit 0"), 0);
  CHECK_EQ(guard("exit 75"), 75);
  CHECK_EQ(guard("trap 'exit 75' TERM; kill -INT $PPID; while :; do sleep 0.01; done"), 75);
  CHECK(ReadRankEnds(out.path()).empty());
  for (const auto& [script, code, by_signal] :
       {std::tuple("exit 3", 3, false), std::tuple("kill -9 $$", 137, true)}) {
    CHECK_EQ(guard(script), code);
    const std::vector<RankEnd> ends = ReadRankEnds(out.path());
    REQUIRE_EQ(ends.size(), 1);
    CHECK_EQ(ends[0].rank, 4);
    CHECK_EQ(ends[0].host, HostName());
    CHECK_EQ(ends[0].end.exit_code, code);
    CHECK_EQ(ends[0].end.by_signal, by_signal);
    CHECK_FALSE(ends[0].stopped);
  }
  CHECK_EQ(guard("kill -TERM $PPID; while :; do sleep 0.01; done"), 128 + SIGTERM);
  CHECK(ReadRankEnds(out.path())[0].stopped);
}

TEST_CASE("A guard passes the first signal to stop on, and no other") {
  const TempDirectory out;
  const pid_t child = fork();
  if (child == 0) {
    _exit(GuardRank(out.path(), {"/bin/sh", "-c",
                                 fmt::format(R"sh(
signals=0
trap 'signals=$((signals + 1)); [ $signals = 2 ] && exit 9' TERM
for i in 1 2 3; do kill -TERM $PPID; sleep 0.05; done
echo $signals > '{}'
exit 75)sh",
                                             out / "signals")}));
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(WEXITSTATUS(status), 75);
  CHECK_EQ(Lines(out / "signals"), Strings{"1"});
}

TEST_CASE("A guard whose output nobody reads, since mpiexec's process is killed, stops no rank") {
  const TempDirectory out;
  int ends[2];
  REQUIRE_EQ(pipe(ends), 0);
  close(ends[0]);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    _exit(GuardRank(out.path(), {"/bin/sh", "-c", R"sh(
trap 'exit 9' TERM
i=0
while [ $i -lt 20 ]; do sleep 0.01; i=$((i + 1)); done
[ "$LOPT_OUTPUT_IS_NO_STOP" ] && exit 75)sh"}));
  }
  close(ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  CHECK_EQ(WEXITSTATUS(status), 75);
}

TEST_CASE("Launch: the ranks run this program with the words after the dashes") {
  const TempDirectory scratch;
  std::ofstream(scratch / "mpiexec") << "printf '%s\\n' \"$*\"; exit 2\n";
  const FinishedProcess finished =
      Launch({"-n", "3", "--mpiexec", "/bin/sh " + (scratch / "mpiexec"), "--", "meta-train",
              "--overwrite", "--out=" + (scratch / "run"), "--steps", "7"});
  CHECK_EQ(finished.exit_code, 2);
  CHECK_EQ(
      finished.output,
      fmt::format("-n 3 {0} launch --guard {1} -- meta-train --out={1} --steps 7 --overwrite\n",
                  std::filesystem::canonical(BuildPath("lopt")).string(), scratch / "run"));
}

// Some supervisors leave it so to what they start.
TEST_CASE("Launch: a job is seen to end also where SIGCHLD was ignored") {
  const TempDirectory scratch;
  std::ofstream(scratch / "mpiexec") << "exit 2\n";
  const FinishedProcess finished = RunProcess(
      {"/usr/bin/env", "--ignore-signal=CHLD", BuildPath("lopt"), "launch", "-n", "1", "--mpiexec",
       "/bin/sh " + (scratch / "mpiexec"), "--", "meta-train", "--out=" + (scratch / "run")});
  CHECK_EQ(finished.exit_code, 2);
}

}  // namespace lopt
