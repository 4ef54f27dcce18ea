// `lopt sweep` as a user runs it.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/utf8.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/tables.h"
#include "lopt/tools/shell.h"
#include "tests/csv_digits.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/replace_in_file.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr int kToBeContinued = 75;

using OnOutput = std::function<void(pid_t, const std::string&)>;

FinishedProcess Sweep(const std::string& list, const Words& options,
                      const OnOutput& on_output = {}) {
  Words words = {BuildPath("lopt"), "sweep", list};
  words.insert(words.end(), options.begin(), options.end());
  return RunProcess(words, on_output);
}

// Two variants and seeds, seconds in all; `seeds` and more settings as given.
std::string WriteList(const std::string& path, const std::string& seeds = "[0, 1]",
                      const std::string& rate = "1e-2") {
  WriteTextFile(path, fmt::format(R"({{
    "meta_train": {{"preset": "smoke", "set": ["checkpoint_steps=5", "meta_steps=120",
      "eval_every=60", "eval_seeds=1", "eval_steps=5"]}},
    "variants": {{"base": [], "rate": ["theta_opt.learning_rate={}"]}},
    "seeds": {},
    "eval": {{"preset": "smoke", "baselines": "Adam,SGDM", "options": ["--seeds", "4"]}}
  }})",
                                  rate, seeds));
  return path;
}

// How often lopt was started for the piece.
int64_t Starts(const std::string& piece) {
  const std::string log = ReadTextFile(piece + ".log");
  int64_t starts = 0;
  for (size_t at = 0; (at = log.find("$ ", at)) != std::string::npos; ++at) ++starts;
  return starts;
}

// Of table.csv, by variant, task and steps.
std::map<std::string, std::vector<std::string>> CsvRows(const std::string& path) {
  std::map<std::string, std::vector<std::string>> rows;
  std::istringstream text(ReadTextFile(path));
  for (std::string line; std::getline(text, line);) {
    std::vector<std::string> cells;
    std::istringstream of_line(line);
    for (std::string cell; std::getline(of_line, cell, ',');) cells.push_back(cell);
    rows[cells.at(0) + " " + cells.at(1) + " " + cells.at(2)] = cells;
  }
  return rows;
}

// The last held-out loss of a meta-training.
double EvalLoss(const std::string& out, const std::string& variant, int seed) {
  std::istringstream lines(
      ReadTextFile(fmt::format("{}/runs/{}/seed-{}/meta-train/metrics.jsonl", out, variant, seed)));
  double loss = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("eval_loss")) loss = json["eval_loss"].get<double>();
  }
  return loss;
}

// Mean and standard deviation of two numbers.
std::string Spread(const std::vector<double>& two) {
  return fmt::format("{:.3g} ± {:.2g}", (two[0] + two[1]) / 2,
                     std::abs(two[0] - two[1]) / std::sqrt(2.0));
}

// A sweep in one go, made once.
const std::string& Undisturbed() {
  static const TempDirectory scratch;
  static const std::string out = [] {
    const FinishedProcess finished =
        Sweep(WriteList(scratch / "list.json"), {"--out", scratch / "out"});
    CAPTURE(finished.output);
    REQUIRE(finished.exit_code == 0);
    return scratch / "out";
  }();
  return out;
}

TEST_CASE("A sweep's table has the figures of one evaluation of all its results") {
  const std::string& out = Undisturbed();
  const TempDirectory scratch;
  Words words = {BuildPath("lopt"), "eval",      "--preset", "smoke",         "--seeds", "4",
                 "--baselines",     "Adam,SGDM", "--out",    scratch / "eval"};
  for (const char* variant : {"base", "rate"}) {
    for (const int seed : {0, 1}) {
      words.insert(words.end(),
                   {"--theta", fmt::format("{}{}={}/runs/{}/seed-{}/meta-train/theta.safetensors",
                                           variant, seed, out, variant, seed)});
    }
  }
  REQUIRE(RunProcess(words).exit_code == 0);
  const Summary summary = Summarize(ReadResults(scratch / "eval/results.jsonl").runs);
  const auto rows = CsvRows(out + "/table.csv");
  const std::string markdown = ReadTextFile(out + "/table.md");
  CHECK(
      Has(markdown, "| variant | seeds | held-out loss | test loss / best baseline's | lowest |"));
  CHECK(Has(markdown, "4 of 4 runs are finished."));
  CHECK(rows.size() == 1 + 2 * 3);
  for (const char* variant : {"base", "rate"}) {
    std::vector<double> ratios;
    for (const AggregateRow& row : summary.aggregate) {
      if (row.optimizer.starts_with(variant)) ratios.push_back(row.best_ratio.value().value);
    }
    REQUIRE(ratios.size() == 2);
    const std::vector<double> held_out = {EvalLoss(out, variant, 0), EvalLoss(out, variant, 1)};
    CHECK(Has(markdown,
              fmt::format("| {} | 2 | {} | {} |", variant, Spread(held_out), Spread(ratios))));
  }
  for (const SummaryRow& best : summary.rows) {
    if (!best.best_baseline) continue;
    for (const char* variant : {"base", "rate"}) {
      std::vector<double> losses;
      for (const SummaryRow& row : summary.rows) {
        if (row.task == best.task && row.steps == best.steps && row.optimizer.starts_with(variant))
          losses.push_back(row.test_loss.value);
      }
      REQUIRE(losses.size() == 2);
      const double mean = (losses[0] + losses[1]) / 2;
      const std::vector<std::string>& row =
          rows.at(fmt::format("{} {} {}", variant, best.task, best.steps));
      CHECK(row.at(3) == "2");
      CHECK(std::stod(row.at(4)) == doctest::Approx(mean));
      CHECK(std::stod(row.at(5)) ==
            doctest::Approx(std::abs(losses[0] - losses[1]) / std::sqrt(2.0)));
      CHECK(row.at(6) == best.optimizer);
      CHECK(std::stod(row.at(7)) == doctest::Approx(best.test_loss.value));
      CHECK(std::stod(row.at(8)) == doctest::Approx(mean / best.test_loss.value));
    }
  }
}

TEST_CASE("A sweep gives every variant its first seed first, and tunes the baselines once") {
  const TempDirectory scratch;
  const FinishedProcess finished = Sweep(WriteList(scratch / "list.json", "[7, 3]"),
                                         {"--out", scratch / "out", "--budget", "1h"});
  REQUIRE(finished.exit_code == 0);
  size_t at = 0;
  for (const char* line :
       {" baselines: eval\n", " base, seed 7: meta-train\n", " base, seed 7: eval\n",
        " rate, seed 7: meta-train\n", " rate, seed 7: eval\n", " base, seed 3: meta-train\n",
        " base, seed 3: eval\n", " rate, seed 3: meta-train\n", " rate, seed 3: eval\n"}) {
    CAPTURE(line);
    const size_t found = finished.output.find(line);
    REQUIRE(found != std::string::npos);
    CHECK(found >= at);
    at = found;
  }
  for (const auto& entry : fs::recursive_directory_iterator(scratch / "out")) {
    if (entry.path().filename() != "results.jsonl") continue;
    const bool of_baselines = Has(entry.path().string(), "/baselines/");
    CHECK(Has(ReadTextFile(entry.path().string()), R"("optimizer":"Adam")") == of_baselines);
  }
}

TEST_CASE("A sweep that is killed and started again goes on, with the table of one in one go") {
  struct End {
    const char* line;  // after which it ends
    const char* file;  // that it waits for, in the sweep's folder; empty: at once
    int signal;
  };
  const TempDirectory scratch;
  const std::string list = WriteList(scratch / "list.json");
  const std::string out = scratch / "out";
  const std::string second = out + "/runs/base/seed-1/meta-train";
  for (const End& end : {End{"baselines: eval\n", "", SIGKILL},
                         {"base, seed 0: meta-train\n",
                          "/runs/base/seed-0/meta-train/checkpoints/step-00000005", SIGKILL},
                         {"rate, seed 0: eval\n", "", SIGKILL},
                         {"base, seed 1: meta-train\n",
                          "/runs/base/seed-1/meta-train/checkpoints/step-00000005", SIGTERM}}) {
    CAPTURE(end.line);
    bool ended = false;
    const FinishedProcess finished =
        Sweep(list, {"--out", out}, [&](pid_t sweep, const std::string& output) {
          if (ended || !Has(output, end.line)) return;
          while (*end.file != 0 && !fs::exists(out + end.file) && !fs::exists(out + "/table.md")) {
            ::usleep(1000);
          }
          ::kill(sweep, end.signal);
          ended = true;
        });
    REQUIRE(ended);
    CHECK(finished.exit_code == (end.signal == SIGKILL ? 128 + SIGKILL : kToBeContinued));
  }
  CHECK(Has(ReadTextFile(out + "/table.md"), "2 of 4 runs are finished; left: base, seed 1; rate"));
  const FinishedProcess rest = Sweep(list, {"--out", out});
  CHECK(rest.exit_code == 0);
  CHECK(Has(rest.output, "base, seed 1: meta-train, goes on\n"));
  CHECK_FALSE(Has(rest.output, "seed 0"));
  CHECK(Has(ReadTextFile(second + ".log"), "--resume\n"));
  CHECK(Starts(second) == 2);
  CHECK(Starts(out + "/runs/rate/seed-0/meta-train") == 1);  // its evaluation was killed
  CHECK(Starts(out + "/runs/rate/seed-1/eval") == 1);
  CHECK(ReadTextFile(out + "/table.csv") == ReadTextFile(Undisturbed() + "/table.csv"));

  const FinishedProcess again = Sweep(list, {"--out", out});
  CHECK(again.exit_code == 0);
  CHECK_FALSE(Has(again.output, "eval\n"));
  CHECK(Starts(out + "/runs/rate/seed-1/eval") == 1);
}

TEST_CASE("What would not fit into the budget is not started, and what is going on is stopped") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  REQUIRE(Sweep(WriteList(scratch / "list.json", "[0]"), {"--out", out}).exit_code == 0);
  // As if meta-training of the one variant had taken a day.
  const std::string record = out + "/runs/base/seed-0/meta-train.json";
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(ReadTextFile(record));
  json["seconds"] = 86400;
  WriteTextFile(record, json.dump());
  const FinishedProcess finished =
      Sweep(WriteList(scratch / "list.json"), {"--out", out, "--budget", "10h"});
  CHECK(finished.exit_code == kToBeContinued);
  CHECK(Has(finished.output, "base, seed 1: not started; it needs 24:00:"));
  CHECK(Has(finished.output, " of the budget are left\n"));
  CHECK(Has(finished.output, "rate, seed 1: eval\n"));
  CHECK(Has(finished.output, "3 of 4 runs are finished; left: base, seed 1."));

  const FinishedProcess none = Sweep(scratch / "list.json", {"--out", out, "--budget", "0"});
  CHECK(none.exit_code == kToBeContinued);
  CHECK(Has(none.output, "the budget is used up\n"));

  WriteTextFile(scratch / "long.json", R"({
    "variants": {"long": {"preset": "smoke", "set": ["meta_steps=100000000"]}},
    "seeds": [0], "eval": {"preset": "smoke", "baselines": "none"}})");
  const FinishedProcess stopped =
      Sweep(scratch / "long.json", {"--out", scratch / "long", "--budget", "1s"});
  CHECK(stopped.exit_code == kToBeContinued);
  CHECK(Has(stopped.output,
            "long, seed 0: meta-train is stopped, the budget is used up; it can be resumed"));
}

TEST_CASE("A budget in which nothing gets further is an error") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  REQUIRE(Sweep(WriteList(scratch / "list.json", "[0]"), {"--out", out}).exit_code == 0);
  // As if meta-trainings of both variants had taken a day.
  for (const char* variant : {"base", "rate"}) {
    const std::string record = fmt::format("{}/runs/{}/seed-0/meta-train.json", out, variant);
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(ReadTextFile(record));
    json["seconds"] = std::string(variant) == "base" ? 86400 : 90000;
    WriteTextFile(record, json.dump());
  }
  const FinishedProcess runs =
      Sweep(WriteList(scratch / "list.json"), {"--out", out, "--budget", "10h"});
  CHECK(runs.exit_code == 1);
  CHECK(Has(runs.output, "rate, seed 1: not started; it needs 25:00:"));
  CHECK(Has(runs.errors,
            "lopt: --budget: 10:00:00 is shorter than each run that is left, so the same command "
            "would never start one; wanted more than 24:00:"));
  CHECK(runs.errors.ends_with(", for base, seed 1\n"));

  WriteTextFile(scratch / "long.json", R"({
    "variants": {"any": {"preset": "smoke"}}, "seeds": [0],
    "eval": {"preset": "smoke", "baselines": "Adam", "options": ["--steps", "10000000"]}})");
  const FinishedProcess task =
      Sweep(scratch / "long.json", {"--out", scratch / "long", "--budget", "1s"});
  CHECK(task.exit_code == 1);
  CHECK(task.errors ==
        "lopt: --budget: 0:00:01 is shorter than one task of the evaluation takes (baselines), and "
        "a stop keeps whole tasks alone, so the same command would never go on; take a longer "
        "one\n");
}

TEST_CASE("What failed is said where a sweep is stopped meanwhile, too") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "list.json", R"({"variants": {
    "bad": {"preset": "smoke", "set": ["theta_opt.learning_rate=-1"]},
    "long": {"preset": "smoke", "set": ["meta_steps=100000000"]}},
    "seeds": [0], "eval": {"preset": "smoke", "baselines": "none"}})");
  bool sent = false;
  const FinishedProcess stopped = Sweep(scratch / "list.json", {"--out", scratch / "out"},
                                        [&](pid_t process, const std::string& output) {
                                          if (sent || !Has(output, "long, seed 0: meta-train"))
                                            return;
                                          sent = true;
                                          ::kill(process, SIGTERM);
                                        });
  CHECK(stopped.exit_code == 1);
  CHECK(Has(stopped.output, "Failed: bad, seed 0\n"));
}

// A sweep of a program in its place: a shell script that ends at once, with files as those of lopt.
// Its list is project/list.json.
class StubSweep {
 public:
  explicit StubSweep(const std::string& variants = R"("a": [], "b": [])",
                     const std::string& more = "") {
    Set("", "");
    fs::create_directory(scratch_ / "project");
    WriteTextFile(scratch_ / "project/list.json", R"({"meta_train": {"preset": "smoke"},
      "variants": {)" + variants + R"(}, "seeds": [0],
      "eval": {"preset": "smoke", "baselines": "none"})" +
                                                      more + "}");
  }
  // Shell commands that the program begins with; the directory of its output is $out.
  void Set(const std::string& meta_train, const std::string& eval) const {
    WriteTextFile(scratch_ / "lopt", R"(for word; do
  if [ "$before" = --out ]; then out=$word; fi
  before=$word
done
mkdir -p "$out"
pwd
if [ "$1" = meta-train ]; then
  : > "$out/metrics.jsonl"
  )" + meta_train + R"(
  echo '{"updates": 0}' > "$out/manifest.json"
else
  )" + eval + R"(
  echo '{"version": "0", "isa": "none"}' > "$out/manifest.json"
  echo '{"task": "t", "optimizer": "a", "steps": [5], "test_loss": [1], "diverged": [false],' \
    '"learning_rate": [], "tuning_loss": []}' > "$out/results.jsonl"
fi
)");
  }
  // `shell` is what a shell does before, and `end` behind its command.
  FinishedProcess Run(const std::string& options = "", const std::string& shell = "",
                      const std::string& end = "", const std::string& project = "project") const {
    return RunProcess(
        {"/bin/sh", "-c",
         fmt::format(
             "{} exec python3 -I {} --list={} --out={} --program=/bin/sh --program={} {} {}", shell,
             ShellQuoted(SourcePath("tools/sweep/sweep.py")), scratch_ / (project + "/list.json"),
             Out(), scratch_ / "lopt", options, end)});
  }
  std::string Out() const { return scratch_ / "out"; }
  std::string Of(const std::string& piece) const { return Out() + "/runs/" + piece; }
  std::string operator/(const std::string& file) const { return scratch_ / file; }

 private:
  TempDirectory scratch_;
};

TEST_CASE("A signal that comes with the end of a run stops the sweep") {
  for (const char* signal : {"INT", "TERM", "HUP"}) {
    CAPTURE(signal);
    const StubSweep sweep;
    sweep.Set(fmt::format("trap '' TERM; kill -{} $PPID", signal), "");
    const FinishedProcess stopped = sweep.Run();
    CHECK(stopped.exit_code == kToBeContinued);
    CHECK(
        Has(stopped.output, fmt::format("stopped by SIG{} after a, seed 0: meta-train\n", signal)));
    CHECK_FALSE(Has(stopped.output, "eval\n"));
    CHECK(Has(stopped.output, "0 of 2 runs are finished; left: a, seed 0; b, seed 0."));
    if (signal != std::string("INT")) continue;
    sweep.Set("", "");
    const FinishedProcess rest = sweep.Run();
    CHECK(rest.exit_code == 0);
    CHECK_FALSE(Has(rest.output, "a, seed 0: meta-train"));
  }
}

TEST_CASE("What fails while it is told to stop has failed, and nothing follows it") {
  const StubSweep sweep;
  sweep.Set("trap 'echo no space; exit 1' TERM; kill -TERM $PPID; while :; do :; done", "");
  const FinishedProcess failed = sweep.Run();
  CHECK(failed.exit_code == 1);
  CHECK(Has(failed.output, "a, seed 0: meta-train failed with exit code 1 ("));
  CHECK(Has(failed.output, "): no space\n"));
  CHECK(Has(failed.output, "stopped by SIGTERM after a, seed 0: meta-train\n"));
  CHECK(Has(failed.output, "\nFailed: a, seed 0\n"));
  CHECK_FALSE(Has(failed.output, "b, seed 0: meta-train"));
}

TEST_CASE("A sweep that is started with SIGCHLD ignored sees how its runs end") {
  const StubSweep sweep;
  sweep.Set("case $out in */a/*) exit 3;; esac", "");
  // Of its words the first is the shell's `exec`.
  const FinishedProcess finished = sweep.Run(
      "",
      "exec python3 -c 'import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
      "os.execvp(sys.argv[2], sys.argv[2:])'");
  CHECK(finished.exit_code == 1);
  CHECK(Has(finished.output, "a, seed 0: meta-train failed with exit code 3 ("));
  CHECK(Has(finished.output, "1 of 2 runs are finished; left: a, seed 0."));
}

TEST_CASE("Relative paths of the environment are those of the caller's directory") {
  const StubSweep sweep(R"("a": [])");
  fs::create_directory(sweep / "elsewhere");
  const std::string here = sweep / "elsewhere";
  const auto environment = [&](const std::string& variables) {
    sweep.Set(R"(for name in PYTHONPATH LD_LIBRARY_PATH TMPDIR LOPT_MODULE_DIR; do
      eval "echo \"$name is \${$name-not set}.\""
    done)",
              "");
    fs::remove_all(sweep.Out());
    const FinishedProcess finished = sweep.Run("", fmt::format("cd {}; {}", here, variables));
    CHECK(finished.errors == "");
    CHECK(finished.exit_code == 0);
    return ReadTextFile(sweep.Of("a/seed-0/meta-train.log"));
  };
  const std::string all = environment(
      "PYTHONPATH=p:/q LD_LIBRARY_PATH=lib:/x TMPDIR=tmp LOPT_MODULE_DIR=m PYTHONSAFEPATH=");
  // The caller's directory comes first, as for python -m.
  CHECK(Has(all, fmt::format("PYTHONPATH is {0}:{0}/p:/q.\n", here)));
  CHECK(Has(all, fmt::format("LD_LIBRARY_PATH is {}/lib:/x.\n", here)));
  CHECK(Has(all, fmt::format("TMPDIR is {}/tmp.\n", here)));
  CHECK(Has(all, fmt::format("LOPT_MODULE_DIR is {}/m.\n", here)));
  const std::string none =
      environment("unset PYTHONPATH LD_LIBRARY_PATH; TMPDIR= LOPT_MODULE_DIR= PYTHONSAFEPATH=1");
  CHECK(Has(none, "PYTHONPATH is not set.\n"));
  CHECK(Has(none, "LD_LIBRARY_PATH is not set.\n"));
  CHECK(Has(none, "TMPDIR is .\n"));
  CHECK(Has(none, "LOPT_MODULE_DIR is .\n"));
}

TEST_CASE("A list may come from a pipe") {
  const StubSweep sweep(R"("a": [])");
  for (const char* pipe : {"/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}) {
    CAPTURE(pipe);
    const FinishedProcess finished = sweep.Run(
        fmt::format("--list={}", pipe), fmt::format("cd '{}'; cat list.json |", sweep / "project"));
    CHECK(finished.errors == "");
    CHECK(finished.exit_code == 0);
  }
}

TEST_CASE("Two files with one name count both") {
  const StubSweep sweep(R"("a": {"preset": "smoke", "options":
    ["--plugin", "one/plugin.so", "--plugin", "two/plugin.so", "--plugin=./two/plugin.so"]},
    "b": [])");
  const std::string record = sweep.Of("a/seed-0/meta-train.json");
  for (const char* folder : {"one", "two"}) {
    fs::create_directory(sweep / fmt::format("project/{}", folder));
    WriteTextFile(sweep / fmt::format("project/{}/plugin.so", folder), folder);
  }
  REQUIRE(sweep.Run().exit_code == 0);
  auto json = nlohmann::ordered_json::parse(ReadTextFile(record));
  CHECK(json["files"].size() == 2);
  CHECK(json["files"].value("plugin.so", "") == "two");
  CHECK(json["files"].value("plugin.so (2)", "") == "one");
  WriteTextFile(sweep / "project/one/plugin.so", "other");
  CHECK(Has(sweep.Run("--table").errors, "other contents of plugin.so (2); give "));
  // Earlier versions noted the last alone.
  json["files"].erase("plugin.so (2)");
  WriteTextFile(record, json.dump());
  CHECK(sweep.Run().exit_code == 0);
  WriteTextFile(sweep / "project/two/plugin.so", "other");
  CHECK(Has(sweep.Run("--table").errors, "other contents of plugin.so; give "));
}

TEST_CASE("Initial weights that are gone while a run goes on still count") {
  const StubSweep sweep(R"("a": ["init_theta=w/base.st"])");
  const std::string weights = sweep / "project/w/base.st";
  fs::create_directory(sweep / "project/w");
  WriteTextFile(weights, "1");
  sweep.Set(R"(mkdir -p "$out/checkpoints/step-1"; exit 75)", "");
  REQUIRE(sweep.Run().exit_code == 1);
  fs::remove(weights);
  sweep.Set("", "");
  const FinishedProcess rest = sweep.Run();
  CHECK(rest.exit_code == 0);
  CHECK(Has(rest.output, "a, seed 0: meta-train, goes on\n"));
  CHECK(sweep.Run("--table").exit_code == 0);
  WriteTextFile(weights, "2");
  CHECK(Has(sweep.Run("--table").errors, "other contents of base.st; give "));
}

TEST_CASE("Weights that a run begins with are those beside the list, however they are named") {
  const StubSweep sweep(R"("set": ["init_theta=w/base.st"], "text": ["init_theta=\"w/base.st\""],
    "equals": {"preset": "smoke", "options": ["--init-theta=w/base.st"]},
    "word": {"preset": "smoke", "options": ["--init-theta", "w/base.st"]},
    "config": {"config": "own.json"})");
  const Words variants = {"set", "text", "equals", "word", "config"};
  const auto record_of = [&](const std::string& variant) {
    return sweep.Of(variant + "/seed-0/meta-train.json");
  };
  fs::create_directory(sweep / "project/w");
  WriteTextFile(sweep / "project/w/base.st", "1");
  WriteTextFile(sweep / "project/own.json", R"({"init_theta" : "w/base.st"})");
  // Of the caller's directory no file counts.
  fs::create_directory(sweep / "elsewhere");
  for (const char* name : {"eval", "smoke", "0"}) {
    WriteTextFile(sweep / fmt::format("elsewhere/{}", name), "1");
  }
  const std::string elsewhere = fmt::format("cd '{}';", sweep / "elsewhere");
  REQUIRE(sweep.Run("", elsewhere).exit_code == 0);
  CHECK(Has(ReadTextFile(sweep.Of("set/seed-0/meta-train.log")), "\n" + sweep / "project" + "\n"));
  for (const std::string& variant : variants) {
    CAPTURE(variant);
    const auto files = nlohmann::json::parse(ReadTextFile(record_of(variant))).at("files");
    CHECK(files.value("base.st", "") == "1");
    CHECK(files.size() == (variant == "config" ? 2 : 1));
  }
  WriteTextFile(sweep / "elsewhere/eval", "2");
  CHECK(sweep.Run("", elsewhere).exit_code == 0);
  // Once they have been read they may be removed.
  fs::remove(sweep / "project/w/base.st");
  for (const char* options : {"--table", ""}) {
    const FinishedProcess without = sweep.Run(options);
    CHECK(without.errors == "");
    CHECK(without.exit_code == 0);
  }
  WriteTextFile(sweep / "project/w/base.st", "2");
  CHECK(
      Has(sweep.Run("--table").errors,
          "lopt: set, seed 0: it was begun with other settings: other contents of base.st; give "));
  // A sweep of a version that noted fewer files stays good.
  for (const std::string& variant : variants) {
    auto json = nlohmann::ordered_json::parse(ReadTextFile(record_of(variant)));
    json["files"].erase("base.st");
    WriteTextFile(record_of(variant), json.dump());
  }
  CHECK(sweep.Run().exit_code == 0);
}

TEST_CASE("A sweep and its list may be moved, with a directory of data") {
  const StubSweep sweep(R"("a": [])", R"(, "data_dir": "data")");
  REQUIRE(sweep.Run().exit_code == 0);
  // As earlier versions noted it.
  const std::string record = sweep.Of("a/seed-0/meta-train.json");
  ReplaceInFile(record, R"("data")", fmt::format(R"("{}")", sweep / "project/data"));
  fs::rename(sweep / "project", sweep / "moved");
  for (const char* options : {"--table", ""}) {
    const FinishedProcess moved = sweep.Run(options, "", "", "moved");
    CHECK(moved.errors == "");
    CHECK(moved.exit_code == 0);
    CHECK(Has(moved.output, "1 of 1 runs are finished."));
  }
  ReplaceInFile(sweep / "moved/list.json", R"("data"})", R"("others"})");
  CHECK(Has(sweep.Run("", "", "", "moved").errors,
            "--data-dir data --seed 0 then, meta-train --preset smoke --data-dir others --seed 0 "
            "now; give"));
}

TEST_CASE("A sweep may be moved whose data are beside its list, or above it") {
  for (const std::string data_dir : {".", ".."}) {
    CAPTURE(data_dir);
    const StubSweep sweep(R"("a": [])", fmt::format(R"(, "data_dir": "{}")", data_dir));
    REQUIRE(sweep.Run().exit_code == 0);
    // As earlier versions noted it.
    const std::string record = sweep.Of("a/seed-0/meta-train.json");
    const std::string relative = fmt::format(R"("{}")", data_dir);
    const std::string absolute = fmt::format(R"("{}/{}")", sweep / "project", data_dir);
    ReplaceInFile(record, relative, absolute);
    CHECK(sweep.Run("--table").errors == "");
    ReplaceInFile(record, absolute, relative);
    fs::create_directory(sweep / "elsewhere");
    fs::rename(sweep / "project", sweep / "elsewhere/moved");
    const FinishedProcess moved = sweep.Run("", "", "", "elsewhere/moved");
    CHECK(moved.errors == "");
    CHECK(moved.exit_code == 0);
  }
}

TEST_CASE("An evaluation that is killed while it begins is begun anew") {
  const StubSweep sweep(R"("a": [])");
  sweep.Set("", R"(case "$*" in
    *--resume*) exit 1;;
    *--overwrite*) ;;
    *) echo '{}' > "$out/manifest.json"; kill -KILL $$;;
  esac)");
  const FinishedProcess killed = sweep.Run();
  CHECK(killed.exit_code == 1);
  CHECK(Has(killed.output, "a, seed 0: eval failed with exit code -9 ("));
  CHECK(sweep.Run().exit_code == 0);
}

TEST_CASE("Options about learned optimizers are not among those of the baselines' evaluation") {
  const StubSweep sweep(R"("a": [])");
  ReplaceInFile(sweep / "project/list.json", R"("baselines": "none")",
                R"("baselines": "Adam", "options": ["--learned-optimizer", "{\"type\": \"Celo\"}",
      "--seeds", "4", "--start", "--learned-optimizer={}", "--unknown-length", "--trials", "2",
      "--tune-learned", "--despite-failed-check"])");
  REQUIRE(sweep.Run().exit_code == 0);
  const auto arguments_in = [](const std::string& record) {
    return nlohmann::json::parse(ReadTextFile(record)).at("arguments").get<Words>();
  };
  CHECK(arguments_in(sweep.Out() + "/baselines/eval.json") ==
        Words{"eval", "--preset", "smoke", "--seeds", "4", "--trials", "2", "--baselines", "Adam"});
  CHECK(arguments_in(sweep.Of("a/seed-0/eval.json")) ==
        Words{"eval", "--preset", "smoke", "--learned-optimizer", R"({"type": "Celo"})", "--seeds",
              "4", "--start", "--learned-optimizer={}", "--unknown-length", "--trials", "2",
              "--tune-learned", "--despite-failed-check", "--baselines", "none"});
}

TEST_CASE("A sweep goes on where its output is lost") {
  const StubSweep sweep;
  const FinishedProcess lost = sweep.Run("", "", ">/dev/full");
  CHECK(lost.errors == "");
  CHECK(lost.exit_code == 0);
  CHECK(Has(ReadTextFile(sweep.Out() + "/table.md"), "2 of 2 runs are finished."));
}

TEST_CASE("Where nothing can be written, the error names the folder") {
  const StubSweep sweep;
  const FinishedProcess full = sweep.Run("", "ulimit -f 0;", "2>&1");
  CHECK(full.exit_code == 1);
  CHECK(Has(full.output, "lopt: " + sweep.Out() + ": File too large\n"));
  fs::remove_all(sweep.Out());
  WriteTextFile(sweep.Out(), "");
  const FinishedProcess file = sweep.Run();
  CHECK(file.exit_code == 1);
  CHECK(file.errors == "lopt: " + sweep.Out() + ": File exists\n");
}

TEST_CASE("A damaged file of a run is an error that says how to have it made anew") {
  const StubSweep sweep(R"("a": [])");
  REQUIRE(sweep.Run().exit_code == 0);
  const auto error_of = [&](const std::string& file, const std::string& text) {
    const std::string path = sweep.Of("a/seed-0/" + file);
    const std::string before = ReadTextFile(path);
    WriteTextFile(path, text);
    const FinishedProcess table = sweep.Run("--table");
    WriteTextFile(path, before);
    CHECK(table.exit_code == 1);
    return table.errors;
  };
  const std::string eval = sweep.Of("a/seed-0/eval");
  const std::string remedy =
      fmt::format("; remove {} and {}.json, and it is made anew\n", eval, eval);
  CHECK(error_of("eval/results.jsonl", "") ==
        "lopt: " + eval + "/results.jsonl is damaged (ValueError('no results'))" + remedy);
  CHECK(error_of("eval/results.jsonl", R"({"task": "t"})") ==
        "lopt: " + eval + "/results.jsonl is damaged (KeyError('steps'))" + remedy);
  for (const auto& [file, text] : {std::pair("eval/results.jsonl", "3"),
                                   {"eval/manifest.json", "[]"},
                                   {"meta-train/manifest.json", "{"},
                                   {"meta-train/metrics.jsonl", "[]"}}) {
    CAPTURE(file);
    CHECK(Has(error_of(file, text), " is damaged ("));
  }
  CHECK(error_of("meta-train/metrics.jsonl", "[]")
            .ends_with("; remove " + sweep.Of("a/seed-0") + ", and it is made anew\n"));
  fs::remove(eval + "/results.jsonl");
  CHECK(sweep.Run().errors ==
        "lopt: " + eval + "/results.jsonl: No such file or directory" + remedy);
  fs::remove_all(eval);
  fs::remove(eval + ".json");
  CHECK(sweep.Run().exit_code == 0);
}

TEST_CASE("A sweep's table writes names as tables of evaluations do") {
  const Words names = {"[a](b)",     "__a_b__",    "a\rb\nc", "a\x1b]0;b\x07", "a\xc2\x9b[2J\xff",
                       "horizon-30", "a|b*`<\\~&", "größe",   "é_a",           "a\u200bb",
                       "a\u00a0b",   "a\u202eb"};
  const std::string script =
      "import sys; sys.path.insert(0, sys.argv[1]); import sweep; "
      "sys.stdout.reconfigure(encoding='utf-8'); "
      "print(*map(sweep.markdown_name, sys.argv[2:]), sep='\\n')";
  Words words = {"/usr/bin/env", "python3", "-B", "-c", script, SourcePath("tools/sweep")};
  words.insert(words.end(), names.begin(), names.end());
  std::string wanted;
  for (const std::string& name : names) wanted += MarkdownName(name) + "\n";
  CHECK(RunProcess(words).output == wanted);
}

TEST_CASE("Under nohup a sweep goes on") {
  const TempDirectory scratch;
  const std::string list = WriteList(scratch / "list.json", "[0]");
  bool sent = false;
  const FinishedProcess finished =
      RunProcess({"/bin/sh", "-c",
                  "trap '' HUP; exec '" + BuildPath("lopt") + "' sweep " + ShellQuoted(list) +
                      " --out " + ShellQuoted(scratch / "out")},
                 [&](pid_t process, const std::string& output) {
                   if (sent || !Has(output, "meta-train\n")) return;
                   sent = true;
                   ::kill(process, SIGHUP);
                 });
  CHECK(sent);
  CHECK(finished.exit_code == 0);
}

TEST_CASE("A theta to begin with counts by what is in it") {
  const TempDirectory scratch;
  const std::string theta = scratch / "base.safetensors";
  const auto copy = [&](int seed) {
    fs::copy_file(
        fmt::format("{}/runs/base/seed-{}/meta-train/theta.safetensors", Undisturbed(), seed),
        theta, fs::copy_options::overwrite_existing);
  };
  copy(0);
  WriteTextFile(scratch / "list.json", fmt::format(R"({{
    "variants": {{"tuned": {{"preset": "smoke", "options": ["--init-theta", "{}"]}}}},
    "seeds": [0], "eval": {{"preset": "smoke", "baselines": "none"}}}})",
                                                   theta));
  const Words words = {"--out", scratch / "out"};
  CHECK(Sweep(scratch / "list.json", words).exit_code == 0);
  copy(1);
  CHECK(Has(Sweep(scratch / "list.json", words).errors, "other contents of base.safetensors"));
}

TEST_CASE("A held-out loss that is not of the judged weights is not shown") {
  const TempDirectory scratch;
  for (const int64_t updates : {100, 120}) {
    std::string text = ReadTextFile(WriteList(scratch / "list.json", "[0]"));
    text.replace(text.find("meta_steps=120"), 14, fmt::format("meta_steps={}", updates));
    WriteTextFile(scratch / "list.json", text);
    const FinishedProcess finished =
        Sweep(scratch / "list.json", {"--out", scratch / std::to_string(updates)});
    REQUIRE(finished.exit_code == 0);
    CHECK(Has(finished.output, "held-out") == (updates == 120));
  }
}

TEST_CASE("The held-out loss of the best weights is the lowest that is a number") {
  const StubSweep sweep(R"("a": [])", R"(, "theta": "best")");
  sweep.Set(R"(cat > "$out/metrics.jsonl" << END
{"step": 1, "eval_loss": "nan"}
{"step": 2, "eval_loss": 0.5}
{"step": 3, "eval_loss": 0.7}
END)",
            "");
  CHECK(Has(sweep.Run().output, "| a | 1 | 0.5 |"));
}

TEST_CASE("--table writes the table of what is finished, and runs nothing") {
  const TempDirectory scratch;
  const std::string out = scratch / "moved";
  fs::copy(Undisturbed(), out, fs::copy_options::recursive);
  fs::remove(out + "/table.md");
  const Words words = {"--out", out, "--table"};
  const FinishedProcess finished = Sweep(WriteList(scratch / "list.json", "[0, 1, 2]"), words);
  CHECK(finished.exit_code == 0);
  CHECK(finished.output.starts_with("4 of 6 runs are finished; left: base, seed 2; rate, seed 2."));
  CHECK(finished.output == ReadTextFile(out + "/table.md"));
  CHECK(ReadTextFile(out + "/table.csv") == ReadTextFile(Undisturbed() + "/table.csv"));
  CHECK_FALSE(fs::exists(out + "/runs/base/seed-2"));
}

// Replaces the results of all evaluations of a sweep by those that `change` leaves of them.
void ChangeResults(const std::string& out,
                   const std::function<void(std::vector<RunResult>*)>& change) {
  for (const auto& entry : fs::recursive_directory_iterator(out)) {
    if (entry.path().filename() != "results.jsonl") continue;
    std::vector<RunResult> runs = ReadResults(entry.path()).runs;
    change(&runs);
    std::string lines;
    for (const RunResult& run : runs) lines += ResultLine(run) + "\n";
    WriteTextFile(entry.path(), lines);
  }
}

TEST_CASE("A table has no fraction of a negative loss, and no name drives it") {
  const TempDirectory scratch;
  const std::string list = WriteList(scratch / "list.json");
  const std::string out = scratch / "out";
  fs::copy(Undisturbed(), out, fs::copy_options::recursive);
  ChangeResults(out, [](std::vector<RunResult>* runs) {
    for (RunResult& run : *runs) {
      if (run.task != "quadratic") continue;
      run.task = "a|b\n\x1b[2J";
      run.test_loss = {-1};
    }
  });
  const FinishedProcess finished = Sweep(list, {"--out", out, "--table"});
  CHECK_EQ(finished.errors, "");
  REQUIRE_EQ(finished.exit_code, 0);
  CHECK(HasPlainLines(finished.output));
  CHECK(Has(finished.output, "\n| a\\|b  \\[2J | -1 ("));
  CHECK(Has(ReadTextFile(out + "/table.csv"), ",-1.0,\n"));
  CHECK_FALSE(Has(ReadTextFile(out + "/table.csv"), ",-1.0,1.0\n"));
}

TEST_CASE("A table has a best baseline where two are tuned, as an evaluation has") {
  const TempDirectory scratch;
  const std::string list = WriteList(scratch / "list.json");
  const std::string out = scratch / "out";
  fs::copy(Undisturbed(), out, fs::copy_options::recursive);
  const Words words = {"--out", out, "--table"};
  CHECK(Has(Sweep(list, words).output, "| task | best baseline |"));
  ChangeResults(out, [](std::vector<RunResult>* runs) {
    std::erase_if(*runs, [](const RunResult& run) { return run.optimizer == "SGDM"; });
  });
  const std::string alone = Sweep(list, words).output;
  CHECK(Has(alone, "4 of 4 runs are finished"));
  CHECK(Has(alone, "| task | base |"));
}

TEST_CASE("A variant that fails is named, the others go on, and it may be put right") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const FinishedProcess failed =
      Sweep(WriteList(scratch / "list.json", "[0]", "-1"), {"--out", out});
  CHECK(failed.exit_code == 1);
  CHECK(Has(failed.output, "rate, seed 0: meta-train failed with exit code 1 ("));
  CHECK(Has(failed.output, "lopt: config: 'theta_opt.learning_rate'"));
  CHECK(Has(failed.output, "\nFailed: rate, seed 0\n"));
  CHECK(Has(failed.output, "1 of 2 runs are finished; left: rate, seed 0."));
  CHECK(Sweep(WriteList(scratch / "list.json", "[0]"), {"--out", out}).exit_code == 0);
  const FinishedProcess other =
      Sweep(WriteList(scratch / "list.json", "[0]", "1e-3"), {"--out", out});
  CHECK(other.exit_code == 1);
  CHECK(Has(other.errors, "lopt: rate, seed 0: it was begun with other settings: "));
  CHECK(Has(other.errors, "give the variant another name, or remove "));
}

TEST_CASE("Configs of one's own count by what is in them") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const std::string config = R"({"learned_optimizer": {"type": "MLPLOpt"}, "meta_steps": 2,
    "theta_opt": {"type": "Adam", "learning_rate": 1e-3},
    "estimators": [{"type": "TruncatedPES", "num_tasks": 2, "trunc_length": 5, "std": 0.01,
                    "task": {"type": "QuadraticTask", "dim": 3},
                    "lengths": {"type": "ConstantTruncationSchedule", "total_length": 5}}]})";
  WriteTextFile(scratch / "own.json", config);
  WriteTextFile(
      scratch / "tasks.json",
      R"({"steps": [5], "seeds": 2, "tasks": {"bowl": {"task": {"type": "QuadraticTask"}}}})");
  const auto run = [&](const std::string& theta) {
    WriteTextFile(scratch / "list.json",
                  R"({"variants": {"own": {"config": "own.json"}}, "seeds": [0], "theta": ")" +
                      theta + R"(", "eval": {"tasks": "tasks.json", "baselines": "none"}})");
    return Sweep(scratch / "list.json", {"--out", out});
  };
  const FinishedProcess finished = run("last");
  CAPTURE(finished.output);
  REQUIRE(finished.exit_code == 0);
  CHECK(Has(finished.output, "| own | 1 | - | - |"));
  CHECK(
      Has(run("best").errors,
          "begun with other settings: judging theta.safetensors then, theta_best.safetensors now"));
  WriteTextFile(scratch / "own.json", config + " ");
  CHECK(Has(run("last").errors, "begun with other settings: other contents of own.json; "));
}

TEST_CASE("Data that have changed between two runs of a sweep are an error, in the table too") {
  const TempDirectory scratch;
  const std::string data = scratch / "data";
  fs::create_directory(data);
  WriteTextFile(
      scratch / "tasks.json",
      R"({"steps": [2], "seeds": 2, "trials": 2, "tuning_seeds": 1, "tasks": {"a": {"task":
                  {"type": "ImageMLP", "data": "csv", "image_size": 0, "hidden": [2]}}}})");
  const auto sweep = [&](int kind, const std::string& seeds, const std::string& more = "--budget") {
    WriteCsvDigits(data, kind);
    WriteTextFile(scratch / "list.json",
                  R"({"meta_train": {"preset": "smoke", "set": ["meta_steps=1",
                    "estimators.1.task.data=csv", "estimators.1.task.image_size=0"]},
                    "variants": {"base": []}, "data_dir": "data", "seeds": )" +
                      seeds + R"(, "eval": {"tasks": "tasks.json", "baselines": "SGD"}})");
    Words options = {"--out", scratch / "out", more};
    if (more == "--budget") options.push_back("5m");
    return Sweep(scratch / "list.json", options);
  };
  CHECK(sweep(1, "[0]").exit_code == 0);
  const FinishedProcess other = sweep(2, "[0, 1]");
  CAPTURE(other.errors);
  CHECK(other.exit_code == 1);
  CHECK(Has(other.errors, "base, seed 1: meta-train read csv "));
  CHECK(Has(other.errors, ", that of base, seed 0 read csv "));
  CHECK(sweep(2, "[0, 1]", "--table").exit_code == 1);
  const std::string folder = scratch / "out/runs/base/seed-1";
  CHECK(Has(other.errors, "remove " + folder));
  fs::remove_all(folder);
  CHECK(sweep(1, "[0, 1]").exit_code == 0);
}

TEST_CASE("Tuned steps and baselines that two tuners have tuned are an error, in the table too") {
  const TempDirectory scratch;
  const std::string list = scratch / "list.json";
  const std::string out = scratch / "out";
  WriteTextFile(list, R"({"meta_train": {"preset": "smoke", "set": ["meta_steps=1"]},
    "variants": {"base": []}, "seeds": [0],
    "eval": {"preset": "smoke", "baselines": "SGD", "options": ["--seeds", "2", "--tune-learned"]}
  })");
  REQUIRE(Sweep(list, {"--out", out}).exit_code == 0);
  const std::string path = out + "/baselines/eval/manifest.json";
  const std::string now = "\"tuner\": 2,";
  std::string manifest = ReadTextFile(path);
  REQUIRE(Has(manifest, now));
  WriteTextFile(path, manifest.replace(manifest.find(now), now.size(), ""));
  for (const Words& options : {Words{"--out", out}, Words{"--out", out, "--table"}}) {
    const FinishedProcess other = Sweep(list, options);
    CHECK(other.exit_code == 1);
    CHECK(other.errors ==
          "lopt: base, seed 0: its evaluation was tuned by version 2 of the tuner ('tuner' in "
          "manifest.json), that of baselines by version 1, so they do not compare; remove those of "
          "one version under " +
              out + ", or begin a sweep in another folder (--out)\n");
  }
}

TEST_CASE("Two sweeps do not work in one folder") {
  const TempDirectory scratch;
  const std::string list = WriteList(scratch / "list.json", "[0]");
  FinishedProcess second;
  const FinishedProcess first =
      Sweep(list, {"--out", scratch / "out"}, [&](pid_t, const std::string&) {
        if (second.errors.empty()) second = Sweep(list, {"--out", scratch / "out"});
      });
  CHECK(second.exit_code == 1);
  CHECK(second.errors == "lopt: another sweep works in " + (scratch / "out") + "\n");
  CHECK(first.exit_code == 0);
}

TEST_CASE("What is wrong in a list is an error that names it") {
  const TempDirectory scratch;
  const std::string list = scratch / "list.json";
  const auto error_of = [&](const std::string& text) {
    WriteTextFile(list, text);
    const FinishedProcess finished = Sweep(list, {"--out", scratch / "never"});
    CHECK(finished.exit_code == 1);
    CHECK_FALSE(fs::exists(scratch / "never"));
    return finished.errors.substr(0, finished.errors.size() - 1);
  };
  const auto with = [](const std::string& variants,
                       const std::string& eval = R"({"preset": "smoke"})",
                       const std::string& more = R"("seeds": [0])") {
    return fmt::format(R"({{"meta_train": {{"preset": "smoke"}}, "variants": {}, "eval": {}, {}}})",
                       variants, eval, more);
  };
  const std::string start = "lopt: " + list + ": ";
  const std::string good = R"({"a": []})";
  CHECK(Has(error_of("{"), start + "not JSON: "));
  CHECK(error_of(R"({"seeds": [0], "seeds": [1]})") ==
        start + "not JSON: the key 'seeds' is there twice");
  CHECK(error_of(R"({"seeds": [0]})") == start + "'variants' is missing");
  CHECK(error_of(with(good, R"({"preset": "smoke"})", R"("seed": [0])")) ==
        start +
            "unknown key 'seed'; valid keys: meta_train, variants, seeds, eval, data_dir, theta");
  CHECK(error_of(with(good, R"({"preset": "smoke"})", R"("seeds": [0, 0])")) ==
        start + "seeds: wanted different whole numbers from 0, got [0, 0]");
  CHECK(error_of(with(good, R"({"preset": "smoke"})", R"("seeds": [])")) ==
        start + "'seeds' is empty");
  CHECK(error_of(with(good, R"({"preset": "smoke"})", R"("seeds": [0], "theta": "first")")) ==
        start + R"(theta: wanted "last" or "best", got "first")");
  CHECK(error_of(with("{}")) == start + "'variants' is empty");
  CHECK(Has(error_of(with(R"({"a b": []})")), start + "variants: 'a b' cannot be a name; wanted "));
  for (const char* name : {"a-tuned", "a-unknown", "a-start", "a-start-0.3"}) {
    CHECK(Has(error_of(with(fmt::format(R"({{"{}": []}})", name))),
              fmt::format("{}variants: '{}' cannot be a name", start, name)));
  }
  CHECK(error_of(with(R"({"a": [3]})")) ==
        start + "meta_train with variants.a.set: wanted a list of texts KEY=VALUE, got 3 in it");
  CHECK(error_of(with(R"({"a": ["x"]})")) ==
        start + "meta_train with variants.a.set: wanted texts KEY=VALUE, got 'x'");
  CHECK(error_of(with(R"({"a": [], "b": 3})")) ==
        start + "variants.b: wanted an object with preset, config, set, options, got 3");
  CHECK(error_of(with(R"({"a": [], "b": {"config": "none.json"}})")) ==
        start + "variants.b.config: there is no file " + scratch.path() + "/none.json");
  CHECK(error_of(with(R"({"a": [], "b": {"options": ["--seed=3"], "preset": "smoke"}})")) ==
        start +
            "variants.b.options: --seed=3 is the sweep's to say; not one of --preset, --set, "
            "--seed, --data-dir, --out, --resume, --overwrite, --from");
  CHECK(error_of(with(R"({"b": {"preset": "smoke"}})")) ==
        start + "meta_train: no variant is a list of settings to add to it");
  CHECK(error_of(with(good, "{}")) == start + "eval: wanted a 'preset' or a 'tasks', got none");
  CHECK(error_of(with(good, R"({"preset": "smoke", "tasks": "x"})")) ==
        start + "eval: wanted a 'preset' or a 'tasks', got both");
  CHECK(error_of(with(good, R"({"preset": 3})")) == start + "eval.preset: wanted a text, got 3");
  const FinishedProcess no_list = Sweep(scratch / "nowhere.json", {});
  CHECK(no_list.errors == "lopt: " + (scratch / "nowhere.json") + ": No such file or directory\n");
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  CHECK(Sweep(scratch / "pipe", {}).errors == "lopt: " + (scratch / "pipe") + ": it is no file\n");
  WriteTextFile(scratch / "bytes.json", "{\"\xff\": 1}");
  CHECK(Sweep(scratch / "bytes.json", {}).errors ==
        "lopt: " + (scratch / "bytes.json") + ": it is not UTF-8: invalid start byte at byte 2\n");
  for (const char* budget : {"soon", "-1", "nan", "1d", "90ms", "1e3"}) {
    CAPTURE(budget);
    const FinishedProcess usage = Sweep(list, {std::string("--budget=") + budget});
    CHECK(usage.exit_code == 2);
    CHECK(usage.errors ==
          fmt::format("lopt: --budget: wanted seconds, or a number with s, m or h such as 90m, got "
                      "'{}'\n",
                      budget));
  }
  CHECK(Sweep(list, {"--table", "--budget", "1"}).errors ==
        "lopt: --budget has no meaning with --table\n");
}

TEST_CASE("Without a list a sweep says what it would do, and without Python what it needs") {
  const FinishedProcess bare = RunProcess({BuildPath("lopt"), "sweep"});
  CHECK(bare.exit_code == 2);
  CHECK(bare.output.empty());
  CHECK(Has(bare.errors, "lopt: Nothing was run: a list is missing; usage: lopt sweep LIST.json"));
  CHECK(Has(bare.errors, "meta-train every variant\nwith every seed"));
  const FinishedProcess none = RunProcess(
      {"/usr/bin/env", "PATH=/nowhere", BuildPath("lopt"), "sweep", "list.json", "--table"});
  CHECK(none.exit_code == 1);
  CHECK(none.errors ==
        "lopt: lopt sweep needs Python 3: 'python3' cannot be run: No such file or directory; "
        "install it (package python3)\n");
}

TEST_CASE("A sweep takes no module of the folder that it is called in") {
  const TempDirectory scratch;
  WriteTextFile(scratch / "statistics.py", "raise SystemExit('not the library')\n");
  const FinishedProcess finished =
      RunProcess({"/usr/bin/env", "-C", scratch.path(), BuildPath("lopt"), "sweep", "none.json"});
  CHECK(finished.errors == "lopt: none.json: No such file or directory\n");
}

}  // namespace
}  // namespace lopt
