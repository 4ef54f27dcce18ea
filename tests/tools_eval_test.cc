// `lopt eval` as a user runs it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/safetensors.h"
#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/shell.h"
#include "tests/csv_digits.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/mnist_dir.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"
#include "tests/terminal.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

FinishedProcess Eval(const Words& arguments,
                     const std::function<void(pid_t, const std::string&)>& on_output = {}) {
  Words words = {BuildPath("lopt"), "eval"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words, on_output);
}

// A theta file with fresh weights.
std::string WriteTheta(const std::string& path, int64_t trained_horizon = 0) {
  ThetaFile file{.learned_optimizer = Config::Parse(R"({"type": "MLPLOpt"})", "test"),
                 .theta = {},
                 .trained_horizon = trained_horizon,
                 .version = "test"};
  file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(1));
  fs::create_directories(fs::path(path).parent_path());
  WriteThetaFile(path, file);
  return path;
}

TEST_CASE("Trainings beyond what an optimizer was trained for are named once, also on resume") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const FinishedProcess finished = Eval({"--theta", WriteTheta(scratch / "short.safetensors", 19),
                                         "--theta", WriteTheta(scratch / "enough.safetensors", 20),
                                         "--theta", WriteTheta(scratch / "unknown.safetensors"),
                                         "--preset", "smoke", "--baselines", "none", "--out", out});
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  const std::string warning =
      "short was meta-trained on trainings of at most 19 inner steps and may blow up in longer "
      "ones, which are: image-mlp (20), quadratic (20)";
  const auto count = [](const std::string& text, const std::string& part) {
    int64_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++found;
    }
    return found;
  };
  CHECK(count(finished.output, warning) == 1);
  CHECK(count(finished.output, "was meta-trained on trainings of") == 1);
  CHECK(count(Eval({"--resume", "--out", out}).output, warning) == 1);
}

TEST_CASE("An evaluation leaves its config, results and tables") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const FinishedProcess finished =
      Eval({"--theta", WriteTheta(scratch / "first/theta.safetensors"), "--theta",
            "other=" + WriteTheta(scratch / "second/theta.safetensors"), "--preset", "smoke",
            "--baselines", "Adam,SGD-cosine", "--out", out});
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  const Results results = ReadResults(out + "/results.jsonl");
  CHECK(results.damage.empty());
  CHECK(results.runs.size() == 2 * 4 * 3);
  std::vector<std::string> names;
  for (const RunResult& run : results.runs) {
    if (std::ranges::find(names, run.optimizer) == names.end()) names.push_back(run.optimizer);
  }
  CHECK(names == std::vector<std::string>{"Adam", "SGD-cosine", "first", "other"});
  CHECK(Has(ReadTextFile(out + "/manifest.json"), "\"status\": \"finished\""));
  CHECK(Has(ReadTextFile(out + "/config.json"), "\"tuning_seeds\": 1"));
  CHECK(Has(ReadTextFile(out + "/table.md"), "first"));
  CHECK(Has(ReadTextFile(out + "/table.csv"), "SGD-cosine"));
  CHECK(Has(finished.output, "Adam"));

  const FinishedProcess again = Eval({"--preset", "smoke", "--out", out});
  CHECK(again.exit_code == 1);
  CHECK(Has(again.errors, " holds an evaluation already: resume it (--resume), replace it"));
  const Words overwrite = {"--preset", "smoke", "--baselines", "SGD", "--out", out, "--overwrite"};
  Words refused = overwrite;
  refused.insert(refused.end(), {"--threads", "0"});
  CHECK(Eval(refused).errors == "lopt: --threads must be in [1, 1024], got 0\n");
  CHECK(ReadResults(out + "/results.jsonl").runs.size() == 2 * 4 * 3);
  CHECK(Eval(overwrite).exit_code == 0);
  CHECK(ReadResults(out + "/results.jsonl").runs.size() == 2 * 3);
}

TEST_CASE(
    "Without the torch module a preset goes without its tasks, and a user's task is an error") {
  const TempDirectory scratch;
  const std::string missing =
      " needs the torch module liblopt_torch_module.so, which is not "
      "installed (Debian: libtorch-dev)";
  const auto eval = [&](Words arguments) {
    const Words words = {"/usr/bin/env", "LOPT_MODULE_DIR=" + scratch.path(), BuildPath("lopt"),
                         "eval"};
    const Words small = {"--baselines", "SGD", "--seeds", "1", "--trials", "2", "--steps", "1"};
    arguments.insert(arguments.begin(), small.begin(), small.end());
    arguments.insert(arguments.begin(), words.begin(), words.end());
    return RunProcess(arguments);
  };
  const FinishedProcess preset = eval({"--preset", "tasks", "--out", scratch / "preset"});
  CAPTURE(preset.errors);
  REQUIRE(preset.exit_code == 0);
  CHECK(Has(preset.output, "skipped: torch-conv: TorchImageConv" + missing + "\n"));
  CHECK(Has(preset.output, "skipped: bytes-gru: ByteLM" + missing + "\n"));
  CHECK(Has(preset.output, "Evaluating 1 optimizer on 22 tasks"));
  CHECK(ReadResults(scratch / "preset/results.jsonl").runs.size() == 22);

  const std::string tasks = scratch / "tasks.json";
  WriteTextFile(tasks, R"({"tasks": {"first": {"task": {"type": "QuadraticTask"}},
    "mine": {"task": {"type": "ReparamWeights", "task": {"type": "TorchImageMLP"}}}}})");
  const FinishedProcess named = eval({"--tasks", tasks, "--out", scratch / "named"});
  CHECK(named.exit_code == 1);
  CHECK(named.errors ==
        "lopt: Task 'mine': TorchImageMLP" + missing + ". To leave the task out: --skip mine\n");
  CHECK(eval({"--tasks", tasks, "--skip", "mine", "--out", scratch / "named"}).exit_code == 0);
}

TEST_CASE("Steps, seeds, trials and the seed can be given on the command line") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  REQUIRE(Eval({"--preset", "smoke", "--baselines", "SGD", "--steps", "3,7", "--seeds", "2",
                "--trials", "3", "--seed", "5", "--threads", "1", "--out", out})
              .exit_code == 0);
  const Results results = ReadResults(out + "/results.jsonl");
  CHECK(results.runs.size() == 2 * 2);
  for (const RunResult& run : results.runs) {
    CHECK(run.steps == std::vector<int64_t>{3, 7});
    CHECK(run.trials == 3);
  }
  CHECK(Config::Load(out + "/config.json").json().at("seed") == 5);

  const auto losses = [&](const char* seed) {
    const std::string again = scratch / "again";
    REQUIRE(Eval({"--preset", "smoke", "--baselines", "SGD", "--steps", "3,7", "--seeds", "2",
                  "--trials", "3", "--seed", seed, "--out", again, "--overwrite"})
                .exit_code == 0);
    std::vector<double> all;
    for (const RunResult& run : ReadResults(again + "/results.jsonl").runs) {
      all.insert(all.end(), run.test_loss.begin(), run.test_loss.end());
    }
    return all;
  };
  const std::vector<double> of_5 = losses("5");
  const std::vector<double> of_6 = losses("6");
  REQUIRE(of_5.size() == of_6.size());
  for (size_t i = 0; i < of_5.size(); ++i) CHECK(of_5[i] != of_6[i]);
  CHECK(of_5.front() == results.runs.front().test_loss.front());
}

// The widest of the lines that a terminal was sent, in characters.
size_t WidestLine(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.starts_with('\r')) widest = std::max(widest, line.size());  // no progress
  }
  return widest;
}

TEST_CASE("The end is two tables as wide as the terminal, the verdict and where all figures are") {
  const TempDirectory scratch;
  const std::string name =
      "a-learned-optimizer-with-a-name-of-many-words-that-no-table-has-room-for";
  const std::string theta = WriteTheta(scratch / (name + ".safetensors"));
  const auto eval = [&](const std::string& variables, int columns) {
    const FinishedProcess finished = RunOnTerminal(
        {"/bin/sh", "-c",
         fmt::format("cd '{}' && {} '{}' eval --theta '{}' --preset smoke --skip quadratic "
                     "--steps 5 --baselines Adam,SGD --out out --overwrite",
                     scratch.path(), variables, BuildPath("lopt"), theta)},
        columns);
    CAPTURE(finished.output);
    CHECK(finished.exit_code == 0);
    return finished.output;
  };
  const std::string narrow = eval("NO_COLOR=1 TERM=xterm", 80);
  const size_t table =
      narrow.find("Test losses on image-mlp after 5 steps, interquartile means over 3 seeds:\r\n");
  REQUIRE(table != std::string::npos);
  CHECK(WidestLine(narrow.substr(table)) == 80);
  CHECK(Has(narrow, "\r\n\r\nNothing tuned:\r\n  optimizer "));
  CHECK(At(narrow, "\n> a-learned-op") < At(narrow, "\nEverything tuned with equal trials:\r\n"));
  CHECK(At(narrow, "\nEverything tuned with equal trials:\r\n") < At(narrow, "\n  Adam "));
  CHECK_FALSE(Has(narrow, "\n> " + name + "  "));
  CHECK_FALSE(Has(narrow, "\x1b[1m"));
  CHECK(Has(narrow, "\n" + name + " is"));
  CHECK(Has(narrow, "the best tuned baseline"));
  CHECK_FALSE(Has(narrow, "beyond chance"));  // of three seeds
  const std::regex end(R"(\nAll figures: out/table\.md \(\d+:\d\d\)\r\n)");
  CHECK(std::regex_match(narrow.substr(At(narrow, "\nAll figures: ")), end));
  CHECK_FALSE(Has(narrow, "bootstrap"));

  const std::string wide = eval("NO_COLOR=1 TERM=xterm", 200);
  CHECK(Has(wide, "\n> " + name + "  "));
  const std::string coloured = eval("NO_COLOR= TERM=xterm", 80);
  CHECK(Has(coloured, "\n\x1b[1m> a-learned-op"));
  CHECK_FALSE(Has(coloured, "\x1b[1m  Adam"));
  CHECK_FALSE(Has(coloured, "\x1b[1mlearned"));
}

TEST_CASE(
    "Off a terminal the tables have 80 columns, and --verbose adds the others with their notes") {
  const TempDirectory scratch;
  const auto eval = [&](Words more) {
    const Words words = {
        "--preset", "smoke",         "--baselines", "Adam,SGD",
        "--out",    scratch / "out", "--theta",     WriteTheta(scratch / "mine.safetensors")};
    more.insert(more.end(), words.begin(), words.end());
    const FinishedProcess finished = Eval(more);
    CAPTURE(finished.errors);
    CHECK(finished.exit_code == 0);
    return finished.output;
  };
  const std::string plain = eval({});
  const size_t table = plain.find(
      "Test losses as fractions of the best tuned baseline's, geometric means over 3\n"
      "tasks and lengths, 3 seeds:\n");
  REQUIRE(table != std::string::npos);
  CHECK(WidestLine(plain.substr(table, plain.find("All figures") - table)) <= 80);
  CHECK_FALSE(Has(plain, "## "));
  CHECK_FALSE(Has(plain, "bootstrap"));
  const std::string verbose = eval({"--resume", "--verbose"});
  CHECK(Has(verbose, "## Nothing tuned (3 tasks and lengths)"));
  CHECK(Has(verbose, "95 % bootstrap intervals"));
  CHECK(At(verbose, "bootstrap") < At(verbose, "Test losses as fractions"));
  // All from the table to the end is the same but for the time.
  const auto end = [](const std::string& text) {
    const size_t first = text.find("Test losses as fractions");
    return text.substr(first, text.find("table.md") - first);
  };
  CHECK(end(verbose) == end(plain));
}

TEST_CASE("Without anything to judge it says what it would do, and does nothing") {
  const TempDirectory scratch;
  const auto answer = [&](const Words& more) {
    Words words = {"/usr/bin/env", "-C", scratch.path(), BuildPath("lopt"), "eval"};
    words.insert(words.end(), more.begin(), more.end());
    const FinishedProcess finished = RunProcess(words);
    CHECK(finished.exit_code == 2);
    CHECK(finished.output == "");
    CHECK(fs::is_empty(scratch.path()));
    return finished.errors;
  };
  // 17 of 23 baselines are tuned: 300 * 21 * 4 * 17, and 300 * 16 * 24.
  CHECK(answer({}) ==
        R"(lopt: Nothing was run: give --theta, --baselines, --preset or --tasks.

With --theta recommended lopt eval would train the preset image-mlp, 1 task:
  Half a minute of processor time: the 8x8 image MLP with one hidden layer of 32.
  to tune 17 baselines: 300 steps x 21 trials x 4 seeds, 428,400 inner steps
  to judge 24 optimizers: 300 steps x 16 seeds, 115,200 inner steps
The time left is shown from the first trainings on. Without a learned optimizer:
  lopt eval --preset image-mlp
)");
  CHECK(Has(answer({"--steps", "10,20", "--seeds", "1", "--trials", "7", "--verbose"}),
            "  to tune 17 baselines: 30 steps x 7 trials x 4 seeds, 14,280 inner steps\n"
            "  to judge 24 optimizers: 30 steps x 1 seed, 720 inner steps\n"));
}

// Three tasks, the last of which takes a second or so.
std::string WriteTasks(const std::string& path) {
  WriteTextFile(path, R"({"steps": [10], "seeds": 2, "trials": 2, "tuning_seeds": 1, "tasks": {
    "first": {"task": {"type": "QuadraticTask", "dim": 2}},
    "second": {"task": {"type": "FixedDimQuadraticFamily", "dim": 3}},
    "third": {"task": {"type": "ImageMLP"}, "steps": [5000]}}})");
  return path;
}

// The results without what is measured by the clock.
std::string Lines(const std::string& directory) {
  Results results = ReadResults(directory + "/results.jsonl");
  CHECK(results.damage.empty());
  std::string text;
  for (RunResult& result : results.runs) {
    std::ranges::fill(result.seconds, 0.0);
    text += ResultLine(result) + "\n";
  }
  return text;
}

TEST_CASE("An evaluation that is killed and stopped goes on with --resume to the same results") {
  const TempDirectory scratch;
  const std::string tasks = WriteTasks(scratch / "tasks.json");
  const std::string theta = WriteTheta(scratch / "mine/theta.safetensors");
  const Words all = {"--tasks", tasks, "--theta", theta, "--baselines", "Adam", "--out"};
  Words words = all;
  words.push_back(scratch / "undisturbed");
  REQUIRE(Eval(words).exit_code == 0);

  const std::string out = scratch / "out";
  const auto send = [](int signal, const char* at) {
    return [=, sent = false](pid_t child, const std::string& output) mutable {
      if (sent || !Has(output, at)) return;
      sent = kill(child, signal) == 0;
    };
  };
  words.back() = out;
  CHECK(Eval(words, send(SIGKILL, "3/3 third: tuning")).exit_code == 128 + SIGKILL);
  CHECK(Has(ReadTextFile(out + "/manifest.json"), "\"status\": \"running\""));
  CHECK(Eval(words).exit_code == 1);  // without --resume
  fs::remove(theta);                  // the directory has a copy

  const FinishedProcess killed =
      Eval({"--resume", "--out", out}, send(SIGKILL, "3/3 third: tuning"));
  CHECK(killed.exit_code == 128 + SIGKILL);
  CHECK_FALSE(Has(killed.output, "2/3 second"));
  const FinishedProcess stopped = Eval({"--resume", "--out", out, "--isa", SupportedIsas().front()},
                                       send(SIGTERM, "3/3 third: tuning"));
  CHECK(stopped.exit_code == 75);
  CHECK(Has(stopped.errors, "Stopping after the running steps; once more to stop at once."));
  CHECK(Has(stopped.output, "Stopped after 2 of 3 tasks. To go on:\n  lopt eval --resume --out " +
                                ShellQuoted(out) + " --isa " + SupportedIsas().front() + "\n"));
  CHECK(Has(ReadTextFile(out + "/manifest.json"), "\"status\": \"interrupted\""));

  // A part of a line, as a write that was cut off leaves it.
  const std::string results = ReadTextFile(out + "/results.jsonl");
  WriteTextFile(out + "/results.jsonl", results + results.substr(0, 100));
  const FinishedProcess resumed = Eval({"--resume", "--out", out, "--threads", "1"});
  CAPTURE(resumed.errors);
  CHECK(resumed.exit_code == 0);
  CHECK(Has(resumed.output, "results.jsonl: line 9, the last, is cut off and left out"));
  CHECK(Has(resumed.output, "2 of 3 tasks were finished already"));
  CHECK(Lines(out) == Lines(scratch / "undisturbed"));
  CHECK(Has(ReadTextFile(out + "/manifest.json"), "\"command\": \"lopt eval --tasks " + tasks));

  const FinishedProcess again = Eval({"--resume", "--out", out});
  CHECK(again.exit_code == 0);
  CHECK(Has(again.output, "All tasks (3) were finished already"));
}

TEST_CASE("A resume says what differs, and does not go with other ways to begin") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const std::string theta = WriteTheta(scratch / "mine/theta.safetensors");
  REQUIRE(
      Eval({"--preset", "smoke", "--baselines", "SGD", "--theta", theta, "--out", out}).exit_code ==
      0);
  const auto error_of = [&](Words words) {
    words.insert(words.end(), {"--resume", "--out", out});
    const FinishedProcess finished = Eval(words);
    CHECK(finished.exit_code != 0);
    return finished.errors;
  };
  CHECK(
      Has(error_of({"--seeds", "4"}), "the config has changed: seeds: 3 in the directory, 4 now"));
  CHECK(Has(error_of({"--preset", "image-mlp"}), "the config has changed: "));
  CHECK(Has(error_of({"--baselines", "SGD,Adam"}),
            "the optimizers have changed: SGD, mine in the directory, SGD, Adam, mine now"));
  CHECK(Has(error_of({"--theta", "other=" + theta}), "SGD, mine in the directory, SGD, other now"));
  CHECK(Has(error_of({"--overwrite"}), "Give --resume or --overwrite, not both"));
  CHECK(Has(error_of({"--replay", theta}), "--resume has no meaning with --replay"));
  CHECK(
      Eval({"--preset", "smoke", "--baselines", "SGD", "--theta", theta, "--resume", "--out", out})
          .exit_code == 0);  // the same words again
  CHECK(Has(Eval({"--resume", "--out", scratch / "nowhere"}).errors, "holds no evaluation"));
  CHECK_FALSE(fs::exists(scratch / "nowhere"));
}

TEST_CASE("A task that is skipped is not judged, also on resume") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const Words words = {"--preset",    "smoke", "--skip", "image-mlp",
                       "--baselines", "SGD",   "--out",  out};
  const FinishedProcess finished = Eval(words);
  CHECK(finished.exit_code == 0);
  CHECK(Has(finished.output, "on 1 task,"));
  for (const RunResult& run : ReadResults(out + "/results.jsonl").runs) {
    CHECK(run.task == "quadratic");
  }
  Words again = words;
  again.push_back("--resume");
  CHECK(Has(Eval(again).output, "All tasks (1) were finished already"));
  CHECK(Has(Eval({"--resume", "--out", out}).output, "All tasks (1) were finished already"));
  CHECK(Has(Eval({"--resume", "--out", out, "--skip", "image-mlp"}).errors,
            "There is no task 'image-mlp' to skip; there are quadratic"));
}

TEST_CASE("--tune-learned judges a learned optimizer a second time, also on resume") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const std::string theta = WriteTheta(scratch / "mine/theta.safetensors");
  const FinishedProcess finished = Eval({"--preset", "smoke", "--baselines", "SGD", "--theta",
                                         theta, "--tune-learned", "--out", out});
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  CHECK(Has(finished.output, "\n> mine "));
  CHECK(Has(finished.output, "\n> mine-tuned "));
  CHECK(Has(ReadTextFile(out + "/table.md"), "| steps x "));
  CHECK(Has(ReadTextFile(out + "/results.jsonl"), R"("hyperparameters":{"step_multiplier":[)"));
  for (const Words& words : {Words{}, Words{"--tune-learned"},
                             Words{"--theta", theta, "--tune-learned", "--baselines", "SGD"}}) {
    Words all = words;
    all.insert(all.end(), {"--resume", "--out", out});
    CHECK(Has(Eval(all).output, "All tasks (2) were finished already"));
  }
  CHECK(Has(Eval({"--resume", "--theta", theta, "--out", out}).errors,
            "the optimizers have changed: SGD, mine, mine-tuned in the directory, SGD, mine now"));
  const std::string never = scratch / "never";
  const FinishedProcess refused =
      Eval({"--preset", "smoke", "--baselines", "SGD", "--tune-learned", "--out", never});
  CHECK(refused.exit_code == 1);
  CHECK(Has(refused.errors, "there is no learned optimizer to tune the steps of"));
  CHECK_FALSE(fs::exists(never));
}

TEST_CASE("--unknown-length judges a learned optimizer without the length, also on resume") {
  const TempDirectory scratch;
  const std::string out = scratch / "out";
  const std::string theta = WriteTheta(scratch / "mine/theta.safetensors");
  const Words words = {
      "--preset", "smoke",          "--baselines",     "SGD", "--theta", theta, "--out",
      out,        "--tune-learned", "--unknown-length"};
  const FinishedProcess finished = Eval(words);
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  std::vector<std::string> names;
  for (const OptimizerInfo& info : ReadStoredEvaluation(out).manifest.optimizers) {
    names.push_back(info.name);
  }
  CHECK(names == std::vector<std::string>{"SGD", "mine", "mine-tuned", "mine-unknown"});
  for (const Words& more : {Words{}, Words{"--unknown-length"}}) {
    Words all = {"--resume", "--out", out};
    all.insert(all.end(), more.begin(), more.end());
    CHECK(Has(Eval(all).output, "All tasks (2) were finished already"));
  }
  // Its copy is an optimizer of its own, which is told no length in any case.
  const std::string copy = out + "/thetas/2.safetensors";
  CHECK(ReadThetaFile(copy).theta == ReadThetaFile(theta).theta);
  const FinishedProcess twice =
      Eval({"--preset", "smoke", "--baselines", "SGD", "--theta", "other=" + copy,
            "--unknown-length", "--out", scratch / "no"});
  CHECK(twice.exit_code == 1);
  CHECK(Has(twice.errors, "there is no learned optimizer to judge without the length"));
  const FinishedProcess none = Eval(
      {"--preset", "smoke", "--baselines", "SGD", "--unknown-length", "--out", scratch / "no"});
  CHECK(Has(none.errors, "there is no learned optimizer to judge without the length"));
  CHECK_FALSE(fs::exists(scratch / "no"));
}

// The theta file of a meta-training of so many updates.
std::string MetaTrained(const TempDirectory& scratch, const std::string& name,
                        const std::string& steps) {
  const FinishedProcess trained =
      RunProcess({BuildPath("lopt"), "meta-train", "--preset", "smoke", "--set", "seed=5",
                  "--steps", steps, "--out", scratch / name});
  CAPTURE(trained.errors);
  REQUIRE(trained.exit_code == 0);
  return scratch / (name + "/theta.safetensors");
}

TEST_CASE("--start judges the weights before meta-training, also on resume") {
  const TempDirectory scratch;
  const ThetaFile start = ReadThetaFile(MetaTrained(scratch, "start", "0"));
  const std::string theta = MetaTrained(scratch, "trained", "2");
  CHECK(ReadThetaFile(theta).theta != start.theta);
  const std::string out = scratch / "out";
  const Words words = {"--preset", "smoke", "--baselines", "Adam,Adam-untuned", "--theta", theta,
                       "--out",    out,     "--start"};
  Words with_tuned = words;
  with_tuned.emplace_back("--tune-learned");
  with_tuned.emplace_back("--verbose");
  const FinishedProcess finished = Eval(with_tuned);
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  std::vector<std::string> names;
  for (const OptimizerInfo& info : ReadStoredEvaluation(out).manifest.optimizers) {
    names.push_back(info.name);
  }
  CHECK(names == std::vector<std::string>{"Adam", "Adam-untuned", "trained", "trained-tuned",
                                          "trained-start", "trained-start-tuned",
                                          "trained-start-0.3"});
  for (const char* file : {"2", "3", "4"}) {
    CHECK(ReadThetaFile(fmt::format("{}/thetas/{}.safetensors", out, file)).theta == start.theta);
  }
  std::string output = finished.output;
  std::ranges::replace(output, '\n', ' ');  // wherever the line is broken
  CHECK(Has(output, "trained-start has weights before meta-training, drawn with the seed of "));
  CHECK(Has(finished.output, "## Nothing tuned (3 tasks and lengths)"));
  CHECK(Has(finished.output, "## Everything tuned with equal trials (3 tasks and lengths)"));
  for (const Words& again : {Words{"--out", out}, with_tuned, Words{"--out", out, "--start"}}) {
    Words all = again;
    all.emplace_back("--resume");
    CHECK(Has(Eval(all).output, "All tasks (2) were finished already"));
  }
  Words without_tuned = words;
  without_tuned.emplace_back("--resume");
  CHECK(Has(Eval(without_tuned).errors, "the optimizers have changed: "));

  const std::string never = scratch / "never";
  const auto error_of = [&](const Words& more) {
    Words all = {"--preset", "smoke", "--out", never, "--start"};
    all.insert(all.end(), more.begin(), more.end());
    const FinishedProcess refused = Eval(all);
    CHECK(refused.exit_code == 1);
    CHECK_FALSE(fs::exists(never));
    return refused.errors;
  };
  CHECK(Has(error_of({}), "start: there is no learned optimizer to judge the start of"));
  CHECK(Has(error_of({"--theta", WriteTheta(scratch / "drawn.safetensors")}), "start: 'drawn' ("));
  ThetaFile of_phase_2 = ReadThetaFile(theta);
  of_phase_2.config = of_phase_2.config.With("init_theta", "phase1.safetensors");
  WriteThetaFile(scratch / "phase2.safetensors", of_phase_2);
  const std::string second = scratch / "second";
  REQUIRE(Eval({"--preset", "smoke", "--out", second, "--start", "--theta",
                scratch / "phase2.safetensors"})
              .exit_code == 0);
  CHECK(ReadThetaFile(second + "/thetas/2.safetensors").theta == start.theta);
}

TEST_CASE("A replay of the golden inner training gives the golden losses and params") {
  if (SkipsWithoutMnist()) return;
  const TempDirectory scratch;
  const std::string golden = GoldenPath("image_mlp_inner_training.safetensors");
  const std::string out = scratch / "out";
  const FinishedProcess finished =
      Eval({"--replay", golden, "--learned-optimizer", R"({"type": "MLPLOpt"})", "--data-dir",
            MnistDir(), "--out", out});
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  const NamedArrays got = ReadArrayFile(out + "/replay.safetensors").arrays;
  const NamedArrays wanted = ReadArrayFile(golden).arrays;
  const auto compare = [&](const std::string& name) {
    const auto a = got.At(name).As<float>();
    const auto b = wanted.At(name).As<float>();
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i)
      CHECK(std::abs(a[i] - b[i]) <= 1e-5F * (1 + std::abs(b[i])));
  };
  compare("loss");
  for (const char* tensor : {"linear_0/w", "linear_0/b", "linear_1/w", "linear_1/b"}) {
    compare(fmt::format("param_end/mlp/{}", tensor));
  }
}

// The largest differences of a replay from its trace, relative: of the first losses, of all, and of
// the mean of the last ten.
struct LossesApart {
  double first_20 = 0;
  double all = 0;
  double end = 0;
};

LossesApart ReplayedLosses(const std::string& type, const std::string& name,
                           const std::string& directory, NamedArrays* got) {
  const std::string theta = directory + "/" + name + ".safetensors";
  const std::string out = directory + "/" + name;
  const std::string optimizer = fmt::format(R"({{"type": "{}"}})", type);
  const FinishedProcess imported =
      RunProcess({BuildPath("lopt"), "import", GoldenPath(name + "_steps.safetensors"), "--key",
                  "theta", "--out", theta, "--learned-optimizer", optimizer});
  CAPTURE(imported.errors);
  REQUIRE(imported.exit_code == 0);
  const std::string golden = GoldenPath(name + "_image_mlp.safetensors");
  const FinishedProcess finished =
      Eval({"--replay", golden, "--theta", theta, "--data-dir", MnistDir(), "--out", out});
  CAPTURE(finished.errors);
  REQUIRE(finished.exit_code == 0);
  *got = ReadArrayFile(out + "/replay.safetensors").arrays;
  const NamedArrays trace = ReadArrayFile(golden).arrays;
  const auto a = std::as_const(*got).At("loss").As<float>();
  const auto b = trace.At("loss").As<float>();
  REQUIRE(a.size() == 100);
  LossesApart apart;
  double got_end = 0;
  double wanted_end = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double relative = std::abs(double{a[i]} - double{b[i]}) / std::abs(double{b[i]});
    apart.all = Farther(apart.all, relative);
    if (i < 20) apart.first_20 = apart.all;
    if (i >= 90) got_end += double{a[i]};
    if (i >= 90) wanted_end += double{b[i]};
  }
  apart.end = std::abs(got_end / wanted_end - 1);
  return apart;
}

TEST_CASE("Replays of trainings by the published weights of Celo, CeloAdam and Sinv6") {
  if (SkipsWithoutMnist()) return;
  if (!fs::exists(GoldenPath("celo_image_mlp.safetensors"))) {
    SkipTest("LOPT_GOLDEN_DIR does not name a directory with the traces of published weights");
    return;
  }
  const TempDirectory scratch;
  NamedArrays got;
  for (const auto& [type, name] : {std::pair("Celo", "celo"), std::pair("Sinv6", "sinv6")}) {
    CAPTURE(name);
    CHECK(ReplayedLosses(type, name, scratch.path(), &got).all <= 5e-6);
    const NamedArrays wanted =
        ReadArrayFile(GoldenPath(std::string(name) + "_image_mlp.safetensors")).arrays;
    for (const auto& [tensor, array] : wanted.Extract("param_end/")) {
      const auto a = std::as_const(got).At("param_end/" + std::string(tensor)).As<float>();
      const auto b = array.As<float>();
      REQUIRE(a.size() == b.size());
      for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) <= 5e-6F);
    }
  }
  // Its rate grows, and it divides by small roots: rounding grows with them.
  const LossesApart adam = ReplayedLosses("CeloAdam", "celo_adam", scratch.path(), &got);
  CHECK(adam.first_20 <= 1e-5);
  CHECK(adam.all <= 3e-2);
  CHECK(adam.end <= 5e-3);
}

TEST_CASE("A replay that does not fit says why") {
  const TempDirectory scratch;
  const std::string theta = WriteTheta(scratch / "theta.safetensors");
  const FinishedProcess missing = Eval({"--replay", theta, "--out", scratch / "a"});
  CHECK(missing.exit_code == 1);
  CHECK(Has(missing.errors, "cannot be replayed on this task"));
  CHECK(Has(missing.errors, "param0/mlp/linear_0/w"));
  const FinishedProcess option = Eval({"--replay", theta, "--seeds", "3", "--out", scratch / "a"});
  CHECK(option.exit_code == 2);
  CHECK(Has(option.errors, "--seeds has no meaning with --replay"));
  CHECK(Has(Eval({"--replay", theta, "--verbose", "--out", scratch / "a"}).errors,
            "--verbose has no meaning with --replay"));
  CHECK(Has(Eval({"--replay", theta, "--threads", "2", "--out", scratch / "a"}).errors,
            "--threads has no meaning with --replay"));
}

TEST_CASE("A replay that fails names its file and leaves the evaluation that it is to replace") {
  const TempDirectory scratch;
  const std::string theta = WriteTheta(scratch / "theta.safetensors");
  WriteTextFile(scratch / "task.json",
                R"({"tasks": {"one": {"task": {"type": "ImageMLP", "image_size": 8, "hidden": [4],
                    "batch_size": 2, "data": "glyphs"}}}})");
  const auto write = [&](const std::string& path, int32_t row) {
    ArrayFile file;
    for (const auto& [name, shape] : {std::pair("linear_0/w", Shape{64, 4}),
                                      {"linear_0/b", {4}},
                                      {"linear_1/w", {4, 10}},
                                      {"linear_1/b", {10}}}) {
      std::vector<float> zeros(static_cast<size_t>(NumElements(shape)));
      file.arrays.Set(fmt::format("param0/mlp/{}", name), Array::Of<float>(shape, zeros));
    }
    file.arrays.Set("index", Array::Of<int32_t>({3, 2}, std::vector<int32_t>(6, row)));
    WriteArrayFile(path, file);
    return path;
  };
  const std::string bad = write(scratch / "bad.safetensors", -5);
  const std::string good = write(scratch / "good.safetensors", 5);
  const std::string out = scratch / "out";
  fs::create_directory(out);
  WriteTextFile(out + "/manifest.json", R"({"format": "lopt evaluation 1"})");
  WriteTextFile(out + "/table.md", "an evaluation");
  const auto replay = [&](const std::string& path, const char* more) {
    Words words = {"--replay", path, "--theta", theta, "--tasks", scratch / "task.json",
                   "--out",    out};
    if (more != nullptr) words.emplace_back(more);
    return Eval(words);
  };
  const FinishedProcess failed = replay(bad, "--overwrite");
  CHECK_EQ(failed.exit_code, 1);
  CHECK(failed.errors.starts_with(fmt::format("lopt: {}: cannot be replayed: ", bad)));
  CHECK(Has(failed.errors, "-5"));
  CHECK_EQ(ReadTextFile(out + "/table.md"), "an evaluation");
  CHECK(Has(replay(good, nullptr).errors, "holds an evaluation already"));
  CHECK_EQ(ReadTextFile(out + "/table.md"), "an evaluation");
  const FinishedProcess replaced = replay(good, "--overwrite");
  CHECK_EQ(replaced.errors, "");
  CHECK_EQ(replaced.exit_code, 0);
  CHECK_FALSE(fs::exists(out + "/table.md"));
  CHECK(fs::exists(out + "/replay.safetensors"));
}

TEST_CASE("A replay of a replay differs by nothing, and says how far other numbers are off") {
  const TempDirectory scratch;
  WriteCsvDigits(scratch.path(), 1);
  WriteTextFile(scratch / "task.json", R"({"tasks": {"one": {"task": {"type": "ImageMLP",
      "data": "csv", "image_size": 0, "hidden": [2], "batch_size": 4}}}})");
  const std::string theta = WriteTheta(scratch / "drawn.safetensors");
  const std::string out = scratch / "out";
  // The replay of these arrays: its losses and params, and what it says of theirs.
  const auto replay = [&](const ArrayFile& trace) {
    WriteArrayFile(scratch / "trace.safetensors", trace);
    const FinishedProcess finished =
        Eval({"--replay", scratch / "trace.safetensors", "--theta", theta, "--tasks",
              scratch / "task.json", "--data-dir", scratch.path(), "--out", out, "--overwrite"});
    CHECK_EQ(finished.errors, "");
    REQUIRE(finished.exit_code == 0);
    return finished.output;
  };
  ArrayFile trace;
  for (const auto& [name, shape] : {std::pair("linear_0/w", Shape{4, 2}),
                                    {"linear_0/b", {2}},
                                    {"linear_1/w", {2, 5}},
                                    {"linear_1/b", {5}}}) {
    std::vector<float> drawn(static_cast<size_t>(NumElements(shape)));
    Normal(KeyFromSeed(drawn.size()), drawn);
    trace.arrays.Set(fmt::format("param0/mlp/{}", name), Array::Of<float>(shape, drawn));
  }
  trace.arrays.Set("index",
                   Array::Of<int32_t>({2, 4}, std::vector<int32_t>{0, 3, 1, 2, 5, 4, 7, 6}));
  const std::string first = replay(trace);
  CHECK(Has(first, "Trained 2 steps with drawn as "));
  CHECK_FALSE(Has(first, "differ"));

  const NamedArrays got = ReadArrayFile(out + "/replay.safetensors").arrays;
  const auto losses = got.At("loss", DType::kFloat32, {2}).As<float>();
  CHECK(losses[0] != losses[1]);
  trace.arrays.Merge("", got);
  const std::string same = replay(trace);
  CHECK(Has(same, "  losses differ from its own by at most 0 (1 + |loss|)\n"));
  CHECK(Has(same, "  params at the end differ by at most 0 (1 + |param|)\n"));
  CHECK(ReadArrayFile(out + "/replay.safetensors").arrays == got);

  const auto with_last_loss = [&](float loss) {
    ArrayFile changed = trace;
    changed.arrays.Set("loss", Array::Of<float>({2}, std::vector<float>{losses[0], loss}));
    return replay(changed);
  };
  CHECK(Has(with_last_loss(-1), fmt::format("losses differ from its own by at most {:.3g} (",
                                            (double{losses[1]} + 1) / 2)));
  CHECK(Has(with_last_loss(std::numeric_limits<float>::quiet_NaN()),
            "losses differ from its own by at most inf ("));
}

TEST_CASE("A theta file that is not what it says is refused with the reason") {
  const TempDirectory scratch;
  const std::string path = WriteTheta(scratch / "theta.safetensors");
  const auto error_of = [&](const std::function<void(ArrayFile*)>& change) {
    ArrayFile file = ReadArrayFile(path);
    change(&file);
    const std::string changed = scratch / "changed.safetensors";
    WriteArrayFile(changed, file);
    const FinishedProcess finished =
        Eval({"--theta", changed, "--preset", "smoke", "--out", scratch / "never"});
    CHECK(finished.exit_code == 1);
    CHECK_FALSE(fs::exists(scratch / "never"));
    return finished.errors;
  };
  CHECK(Has(error_of([](ArrayFile* file) {
              file->arrays.At("golden/result/plain/w").As<float>()[0] += 0.1F;
            }),
            "what it did when the file was written: golden/result/plain/w at 0: "));
  CHECK(Has(error_of([](ArrayFile* file) {
              file->arrays.Set("theta/mlp/linear_0/w", Array(DType::kFloat32, {39, 32}));
            }),
            "mlp/linear_0/w"));
  CHECK(Has(error_of([](ArrayFile* file) { file->metadata["format"] = "lopt theta 3"; }),
            "the format is 'lopt theta 3'; this program reads 'lopt theta 1' and 'lopt theta 2'"));
  CHECK(Has(error_of([](ArrayFile* file) { file->metadata.clear(); }),
            "does not name its learned optimizer"));
}

TEST_CASE("Wrong words are answered with the right ones") {
  const TempDirectory scratch;
  const auto error_of = [&](Words words) {
    words.insert(words.end(), {"--out", scratch / "never"});
    const FinishedProcess finished = Eval(words);
    CHECK(finished.exit_code != 0);
    CHECK_FALSE(fs::exists(scratch / "never"));
    return finished.errors;
  };
  CHECK(Has(error_of({"--preset", "smok"}),
            "There is no evaluation preset 'smok'; the presets are generalization"));
  CHECK(Has(error_of({"--baselines", "adam", "--preset", "smoke"}),
            "There is no baseline 'adam'; wanted all, classic, strong, untuned, none, or names "
            "of SGD, SGDM, Adam, AdamW"));
  CHECK(Has(error_of({"--baselines", "Adma", "--preset", "smoke"}),
            " with commas between them; did you mean 'Adam'?\n"));
  CHECK(Has(error_of({"--baselines", "none", "--preset", "smoke"}), "there is nothing to judge"));
  CHECK(Has(error_of({"--steps", "300,3", "--preset", "image-mlp"}), "must ascend"));
  CHECK(Has(error_of({"--preset", "smoke", "--tasks", "x.json"}),
            "Give --tasks or --preset, not both"));
  CHECK(Has(error_of({"--preset", "smoke", "--skip", "quadratics"}),
            "There is no task 'quadratics' to skip; there are image-mlp, quadratic; did you mean "
            "'quadratic'?"));
  CHECK(Has(error_of({"--preset", "smoke", "--skip", "quadratic", "--skip", "image-mlp"}),
            "Without 'image-mlp' no task is left"));
  CHECK(error_of({"--preset", "smoke", "--learned-optimizer", R"({"type": "MLPLOpt"})"}) ==
        "lopt: --learned-optimizer is about theta files; it wants --theta\n");
  CHECK(error_of({"--preset", "smoke", "--despite-failed-check"}) ==
        "lopt: --despite-failed-check is about theta files; it wants --theta\n");
  CHECK(Has(error_of({"--preset", "image-mlp", "--data-dir", scratch / "nowhere"}),
            "There are no images in"));
}

}  // namespace
}  // namespace lopt
