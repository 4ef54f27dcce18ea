#include <doctest/doctest.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/device.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/npz.h"
#include "lopt/base/platform.h"
#include "lopt/base/safetensors.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/shell.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {

namespace {

using Words = std::vector<std::string>;

FinishedProcess Lopt(const Words& arguments,
                     const std::function<void(pid_t, const std::string&)>& on_output = {}) {
  Words words = {BuildPath("lopt")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words, on_output);
}

// A small valid experiment on quadratics, with `from` replaced by `to`.
std::string ConfigText(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({
  "learned_optimizer": {"type": "LearnableSGD"},
  "theta_opt": {"type": "SGD", "learning_rate": 0.1},
  "estimators": [
    {"type": "TruncatedPES", "task": {"type": "QuadraticTask", "dim": 2}, "num_tasks": 2,
     "trunc_length": 5, "std": 0.01, "lengths": {"type": "ConstantTruncationSchedule", "total_length": 10}}
  ],
  "meta_steps": 3
})";
  if (!from.empty()) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string WriteConfig(const TempDirectory& scratch, const std::string& text) {
  std::string path = scratch / "config.json";
  std::ofstream(path) << text;
  return path;
}

// A small valid training of a model: its file.
std::string WriteTraining(const TempDirectory& scratch) {
  std::string path = scratch / "training.json";
  WriteTextFile(path, R"({"task": {"type": "QuadraticTask", "dim": 2},
    "optimizer": {"type": "SGD", "learning_rate": 0.1}, "steps": 3})");
  return path;
}

// Runs the config in a fresh directory and returns what it says on standard error; it must end with
// exit code 1 and leave no run behind.
std::string ErrorOf(const std::string& config, const Words& more = {}) {
  const TempDirectory scratch;
  Words arguments = {"meta-train", WriteConfig(scratch, config), "--out", scratch / "run"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const FinishedProcess finished = Lopt(arguments);
  CHECK_EQ(finished.exit_code, 1);
  CHECK_FALSE(std::filesystem::exists(scratch / "run/theta.safetensors"));
  return finished.errors;
}

// What bash completes the last of the words to, with the script that lopt prints.
std::string BashCompletes(const std::string& words) {
  const std::string program = BuildPath("lopt");
  const FinishedProcess bash =
      RunProcess({"/bin/bash", "-c",
                  fmt::format("source <('{}' completion bash); COMP_WORDS=({}); "
                              "COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); compopt() {{ :; }}; _lopt; "
                              "echo \"${{COMPREPLY[*]}}\"",
                              program, words)});
  CHECK_EQ(bash.errors, "");
  return bash.output;
}

}  // namespace

TEST_CASE("bash completes commands, options and what they take") {
  CHECK_EQ(BashCompletes("lopt ev"), "eval\n");
  CHECK_EQ(BashCompletes("lopt help ev"), "eval\n");
  CHECK_EQ(BashCompletes("lopt meta-train --pres"), "--preset\n");
  CHECK_EQ(BashCompletes("lopt meta-train --preset fa"), "fast\n");
  CHECK_EQ(BashCompletes("lopt preset show generali"), "generalization\n");
  CHECK_EQ(BashCompletes("lopt distill --preset generali"), "generalization\n");
  CHECK_EQ(BashCompletes("lopt eval --baselines Prod"), "Prodigy\n");
  CHECK_EQ(BashCompletes("lopt eval --theta recomm"), "recommended\n");
  CHECK_EQ(BashCompletes("lopt export --format torchs"), "torchscript\n");
  CHECK_EQ(BashCompletes("lopt export recomm"), "recommended\n");
  CHECK_EQ(BashCompletes("lopt inspect recomm"), "recommended\n");
  CHECK_EQ(BashCompletes("lopt describe TruncatedP"), "TruncatedPES\n");
  CHECK_EQ(BashCompletes("lopt meta-train --isa avx"), "\n");
}

TEST_CASE(
    "Without a command, or with one like none, the commands are listed; else the nearest is said") {
  const FinishedProcess none = Lopt({});
  CHECK_EQ(none.exit_code, 2);
  CHECK(none.errors.starts_with("lopt: A command is missing.\n\nUsage: lopt COMMAND [OPTIONS]\n"));
  const FinishedProcess wrong = Lopt({"meta-trian"});
  CHECK_EQ(wrong.exit_code, 2);
  CHECK_EQ(wrong.errors,
           "lopt: There is no command 'meta-trian'; did you mean 'meta-train'?\n`lopt help` lists "
           "them.\n");
  CHECK(Lopt({"qqqqqq"})
            .errors.starts_with(
                "lopt: There is no command 'qqqqqq'\n\nUsage: lopt COMMAND [OPTIONS]\n"));
  CHECK(Lopt({"--set", "steps=3"})
            .errors.starts_with(
                "lopt: The command comes first, not --set\n\nUsage: lopt COMMAND [OPTIONS]\n"));
}

TEST_CASE("Help goes to standard output, shows an example and is no error") {
  for (const char* command : {"meta-train", "describe", "inspect"}) {
    const FinishedProcess help = Lopt({command, "--help"});
    CHECK_EQ(help.exit_code, 0);
    CHECK(help.output.starts_with(fmt::format("Usage: lopt {}", command)));
    CHECK(help.output.find("\nExample") != std::string::npos);
  }
}

TEST_CASE("Every way to ask for help or the version gives the same") {
  const std::string usage = Lopt({"--help"}).output;
  CHECK(usage.starts_with("Usage: lopt COMMAND [OPTIONS]\n"));
  for (const Words& words : {Words{"help"}, {"-h"}, {"help", "help"}, {"help", "-h"}}) {
    CHECK_EQ(Lopt(words).output, usage);
  }
  for (const char* command : {"meta-train", "launch", "version"}) {
    const std::string help = Lopt({command, "--help"}).output;
    CHECK(help.starts_with(fmt::format("Usage: lopt {}", command)));
    for (const Words& words : {Words{command, "-h"}, {"help", command}, {"--help", command}}) {
      const FinishedProcess finished = Lopt(words);
      CHECK_EQ(finished.exit_code, 0);
      CHECK_EQ(finished.output, help);
    }
  }
  const std::string version = Lopt({"--version"}).output;
  CHECK(Lopt({"version"}).output.starts_with(version.substr(0, version.find(' ', 5))));
  CHECK_EQ(version.find('\n'), version.size() - 1);
  CHECK_EQ(Lopt({"-V"}).output, version);

  CHECK_EQ(Lopt({"help", "evla"}).exit_code, 2);
  CHECK(Lopt({"help", "evla"})
            .errors.starts_with("lopt: There is no command 'evla'; did you mean 'eval'?\n"));
  CHECK(Lopt({"--hlep"})
            .errors.starts_with("lopt: There is no command '--hlep'; did you mean '--help'?\n"));
  const FinishedProcess two = Lopt({"help", "eval", "train"});
  CHECK_EQ(two.exit_code, 2);
  CHECK_EQ(two.errors, "lopt: help explains one command, not 2; usage: lopt help COMMAND\n");
}

TEST_CASE("An unknown option is an error that lists the options and says the nearest") {
  const FinishedProcess finished = Lopt({"meta-train", "--preset", "smoke", "--step", "3"});
  CHECK_EQ(finished.exit_code, 2);
  CHECK_EQ(finished.errors,
           "lopt: --step is not an option here; did you mean '--steps'? The options are --preset, "
           "--set, --steps, --seed, "
           "--init-theta, --data-dir, --out, --resume, --from, --overwrite, --threads, --isa, "
           "--device, --devices, --allow-isa-change, --learner-only, --listen, --init-method, "
           "--wait-for, --token-file, --tls-cert, --tls-key, --tls-ca, --insecure, --plugin, "
           "--help\n");
  const std::vector<std::pair<Words, std::string>> nearest = {
      {{"meta-train", "--stpes=3"}, "'--steps'"},
      {{"meta-train", "config.json", "-steps", "3"}, "'--steps'"},
      {{"describe", "--lr", "3"}, "'--learning-rate'"},
      {{"eval", "-out", "runs/a"}, "'--out'"},
      {{"meta-train", "-resume"}, "'--resume'"},
      {{"version", "--hlep"}, "'--help'"}};
  for (const auto& [words, option] : nearest) {
    const FinishedProcess wrong = Lopt(words);
    CHECK_EQ(wrong.exit_code, 2);
    CHECK_MESSAGE(wrong.errors.find(fmt::format("; did you mean {}? The options are --", option)) !=
                      std::string::npos,
                  wrong.errors);
  }
  CHECK(Lopt({"version", "--nothing-like-it"}).errors.ends_with(" --plugin, --help\n"));
  // What stands between commands and the manual is no option.
  const FinishedProcess as_data = Lopt({"eval", "--help-as-data"});
  CHECK_EQ(as_data.exit_code, 2);
  CHECK(as_data.errors.starts_with("lopt: --help-as-data is not an option here"));
}

TEST_CASE("Command lines that say too little or too much are usage errors") {
  const std::string usage = "usage: lopt meta-train [CONFIG.json] [OPTIONS]\n";
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"meta-train"},
       "lopt: What to train is missing: a config file, --preset NAME, or --resume with --out "
       "DIR; " +
           usage},
      {{"meta-train", "a.json", "--preset", "smoke"},
       "lopt: Give a config file or --preset, not both\n"},
      {{"meta-train", "a.json", "b.json"}, "lopt: 'b.json' is a word too many; " + usage},
      {{"version", "again"}, "lopt: 'again' is a word too many; usage: lopt version\n"},
      {{"meta-train", "a.json", "--steps", "many"},
       "lopt: the argument ('many') for option '--steps' is invalid; wanted is an integer; " +
           usage},
      {{"bench", "--repeats", "7.5"},
       "lopt: the argument ('7.5') for option '--repeats' is invalid; wanted is an integer; "
       "usage: lopt bench [OPTIONS]\n"},
      {{"describe", "--task", "ImageMLP", "--learning-rate", "small"},
       "lopt: the argument ('small') for option '--learning-rate' is invalid; wanted is a number; "
       "usage: lopt describe [TYPE] [OPTIONS]\n"},
      {{"preset", "fast"}, "lopt: 'fast' is not understood; wanted is `lopt preset show fast`\n"},
      {{"preset", "shwo", "fast"},
       "lopt: 'shwo fast' is not understood; wanted is `lopt preset show NAME`\n"},
      {{"export", "recommended", "--c", "--out", "a.c"},
       "lopt: --c is not an option here; wanted is --format c --out FILE\n"},
      {{"export", "recommended", "--hub=model"},
       "lopt: --hub is not an option here; wanted is --format hub --out DIR\n"},
      {{"meta-train", "--preset", "smoke", "--set", "seed"},
       "lopt: --set wants KEY=VALUE, not 'seed'\n"},
      {{"meta-train", "--preset", "smoke", "--resume", "--overwrite"},
       "lopt: Give --resume or --overwrite, not both\n"},
      {{"meta-train", "--preset", "smoke", "--device", "cuda", "--devices", "0,"},
       "lopt: --devices wants numbers of GPUs, such as 0,2, not '0,'\n"},
      {{"describe", "TruncatedPES", "FullES"},
       "lopt: 'FullES' is a word too many; usage: lopt describe [TYPE] [OPTIONS]\n"},
      {{"meta-train", "--preset", "smoke", "--threads", "0"},
       "lopt: --threads must be in [1, 1024], got 0\n"},
      {{"bench", "--threads", "0"}, "lopt: --threads must be in [1, 1024], got 0\n"},
      {{"worker", "--join", "127.0.0.1:1", "--threads", "-1"},
       "lopt: --threads must be in [1, 1024], got -1\n"},
      {{"worker", "--join", "127.0.0.1:1", "--patience", "nan"},
       "lopt: --patience must be at least 0 seconds, got nan\n"},
      {{"meta-train", "--preset", "smoke", "--listen", "127.0.0.1:0", "--wait-for", "-3"},
       "lopt: --wait-for must be at least 0 workers, got -3\n"},
      {{"describe", "--task", "QuadraticTask", "--seed", "-1"},
       "lopt: --seed must be at least 0, got -1\n"},
      {{"inspect"},
       "lopt: The file to inspect is missing; usage: lopt inspect PATH... [--json | --config]\n"},
  };
  for (const auto& [arguments, message] : cases) {
    const FinishedProcess finished = Lopt(arguments);
    CHECK_EQ(finished.exit_code, 2);
    CHECK_EQ(finished.errors, message);
  }
}

TEST_CASE("An unknown preset is an error that lists the presets") {
  const FinishedProcess finished = Lopt({"meta-train", "--preset", "tutorials"});
  CHECK_EQ(finished.exit_code, 1);
  Words presets;
  for (const Preset& preset : MetaTrainPresets().all()) presets.push_back(preset.name);
  CHECK_EQ(finished.errors,
           fmt::format("lopt: There is no preset 'tutorials'; the presets are {}; did you mean "
                       "'tutorial'?\n",
                       fmt::join(presets, ", ")));
}

TEST_CASE("Presets are listed, and one is printed as its file has it") {
  const FinishedProcess list = Lopt({"preset"});
  CHECK_EQ(list.exit_code, 0);
  CHECK(list.output.starts_with("Presets of lopt meta-train:\n  broad "));
  CHECK(list.output.find("\nPresets of lopt eval:\n  generalization  ") != std::string::npos);
  CHECK_EQ(Lopt({"preset", "show", "recommended"}).output,
           ReadTextFile(SourcePath("learner/presets/recommended.json")));
  CHECK_EQ(Lopt({"preset", "show", "smoke", "--for", "eval"}).output,
           ReadTextFile(SourcePath("evaluation/presets/smoke.json")));
  const FinishedProcess two = Lopt({"preset", "show", "smoke"});
  CHECK_EQ(two.exit_code, 2);
  CHECK_EQ(
      two.errors,
      "lopt: 'smoke' is a preset of meta-train and one of eval; say which: --for meta-train or "
      "--for eval\n");
  const FinishedProcess none = Lopt({"preset", "show", "recomended"});
  CHECK_EQ(none.exit_code, 1);
  CHECK(none.errors.starts_with("lopt: There is no preset 'recomended'; the presets are broad, "));
  CHECK(none.errors.ends_with("; did you mean 'recommended'?\n"));
  for (const Words& words :
       {Words{"preset", "fast"}, {"preset", "show"}, {"preset", "--for", "x"}}) {
    CHECK_EQ(Lopt(words).exit_code, 2);
  }
}

TEST_CASE("A config is printed as a run resolves it, with what its keys mean, and nothing is run") {
  const TempDirectory scratch;
  const std::string path = WriteConfig(scratch, ConfigText());
  const auto config = [&](Words words) {
    words.insert(words.begin(), {"config", path, "--set", "estimators.0.std=0.25"});
    return Lopt(words);
  };
  const FinishedProcess plain = config({});
  CHECK_EQ(plain.exit_code, 0);
  CHECK_EQ(Lopt({"meta-train", path, "--set", "estimators.0.std=0.25", "--out", scratch / "run"})
               .exit_code,
           0);
  const std::string resolved = Config::Load(scratch / "run/config.json").Dump(-1);
  CHECK_EQ(Config::Parse(plain.output, "plain").Dump(-1), resolved);
  CHECK_NE(resolved.find("\"std\":0.25"), std::string::npos);

  const FinishedProcess explained = config({"--explain"});
  CHECK_EQ(explained.exit_code, 0);
  CHECK_EQ(Config::Parse(explained.output, "explained").Dump(-1), resolved);
  std::istringstream lines(explained.output);
  std::string before;
  for (std::string line; std::getline(lines, line); before = line) {
    CHECK_MESSAGE(line.size() <= 100, line);
    if (line.starts_with("      \"std\"")) {
      CHECK_EQ(line, "      \"std\": 0.25,");
      CHECK_NE(before.find("default 0.01)"), std::string::npos);
    }
    const size_t first = line.find_first_not_of(' ');
    const bool key = line[first] == '"' && !line.starts_with("      \"type\"") &&
                     line.find("\"type\": ") == std::string::npos;
    if (key) CHECK_MESSAGE(before.find("// ") != std::string::npos, line);
  }

  const FinishedProcess eval = Lopt({"config", "--for", "eval", "--preset", "smoke", "--explain"});
  CHECK_EQ(eval.exit_code, 0);
  CHECK_NE(eval.output.find("\n    \"quadratic\": {\n      // What is trained."),
           std::string::npos);
  CHECK_EQ(Config::Parse(eval.output, "eval").Dump(-1),
           Config::Parse(Lopt({"config", "--for", "eval", "--preset", "smoke"}).output, "plain")
               .Dump(-1));
  WriteTextFile(
      scratch / "train.json",
      R"({"task": {"type": "QuadraticTask"}, "optimizer": {"type": "Adam", "learning_rate": 0.1}})");
  CHECK_NE(Lopt({"config", "--for", "train", scratch / "train.json"}).output.find("\"Split\""),
           std::string::npos);

  const FinishedProcess bad = config({"--set", "stpes=3"});
  CHECK_EQ(bad.exit_code, 1);
  CHECK(bad.errors.starts_with("lopt: config: unknown key 'stpes'"));
  for (const Words& words : {Words{"config"},
                             {"config", path, "--preset", "fast"},
                             {"config", path, "--for", "bench"},
                             {"config", "--for", "train", "--preset", "fast"}}) {
    CHECK_EQ(Lopt(words).exit_code, 2);
  }
}

TEST_CASE("lopt config refuses what the command refuses, with its words") {
  const TempDirectory scratch;
  const std::string meta = scratch / "meta.json";
  WriteTextFile(meta, ConfigText());
  const std::string quadratic = WriteTraining(scratch);
  const std::string images = scratch / "images.json";
  WriteTextFile(images, R"({"task": {"type": "ImageMLP", "batch_size": 4},
    "optimizer": {"type": "SGD", "learning_rate": 0.1}, "steps": 3})");
  const std::string average =
      R"({"type": "LearnedScheduler", "optimizer":
          {"type": "UnknownLength", "optimizer": {"type": "LearnableSGDM"}}})";
  struct Bad {
    std::string command;
    std::string config;
    std::string setting;
    std::string error;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"train", images, "workers=16", "16 workers cannot share batches of 4 examples evenly"},
           {"train", quadratic,
            R"(optimizer={"type": "Initial", "learned_optimizer": )" + average + "}",
            "LearnedScheduler: wanted an optimizer whose steps make the params"},
           {"meta-train", meta, "learned_optimizer=" + average,
            "LearnedScheduler: wanted an optimizer whose steps make the params"}}) {
    CAPTURE(bad.command);
    CAPTURE(bad.setting);
    const FinishedProcess shown =
        Lopt({"config", "--for", bad.command, bad.config, "--set", bad.setting});
    CHECK_EQ(shown.exit_code, 1);
    CHECK_EQ(shown.output, "");
    CHECK_NE(shown.errors.find(bad.error), std::string::npos);
    const FinishedProcess run =
        Lopt({bad.command, bad.config, "--set", bad.setting, "--out", scratch / "run"});
    CHECK_EQ(run.exit_code, 1);
    CHECK_NE(run.errors.find(bad.error), std::string::npos);
  }
  CHECK_EQ(Lopt({"config", "--for", "train", images, "--set", "workers=2"}).errors, "");
}

TEST_CASE("A trained optimizer that comes with lopt is named wherever a theta file is") {
  const TempDirectory scratch;
  const std::string file = SourcePath("trained/recommended.safetensors");
  const std::string npz = scratch / "theta.npz";
  const std::string of_file = scratch / "file.npz";
  CHECK_EQ(Lopt({"export", "recommended", "--format", "npz", "--out", npz}).errors, "");
  CHECK_EQ(Lopt({"export", file, "--format", "npz", "--out", of_file}).errors, "");
  CHECK(ReadNpz(npz) == ReadNpz(of_file));
  const std::string inspected = Lopt({"inspect", "recommended"}).output;
  CHECK_EQ(inspected.substr(inspected.find(": ")),
           Lopt({"inspect", file}).output.substr(file.size()));
  CHECK_NE(inspected.find(" arrays of F32\n"), std::string::npos);
  for (size_t begin = inspected.find('\n') + 1; begin < inspected.size();) {  // behind the path
    const size_t end = inspected.find('\n', begin);
    REQUIRE_NE(end, std::string::npos);
    CHECK_LE(end - begin, 80);
    begin = end + 1;
  }
  // Also before a file of that name.
  WriteTextFile(scratch / "recommended", "no theta");
  CHECK_EQ(RunProcess(
               {"/usr/bin/env", "-C", scratch.path(), BuildPath("lopt"), "inspect", "recommended"})
               .output,
           inspected);
  WriteTextFile(scratch / "train.json",
                R"({"task": {"type": "QuadraticTask", "dim": 2}, "steps": 30})");
  CHECK_EQ(
      Lopt({"train", scratch / "train.json", "--theta", "recommended", "--out", scratch / "train"})
          .errors,
      "");
  const FinishedProcess eval =
      Lopt({"eval", "--theta", "mine=fast", "--theta", "recommended", "--preset", "smoke",
            "--baselines", "none", "--skip", "image-mlp", "--out", scratch / "eval"});
  CHECK_EQ(eval.exit_code, 0);
  const std::string table = ReadTextFile(scratch / "eval/table.md");
  CHECK_NE(table.find("mine"), std::string::npos);
  CHECK_NE(table.find("recommended"), std::string::npos);
  const FinishedProcess meta_train =
      Lopt({"meta-train", WriteConfig(scratch, ConfigText()), "--init-theta", "recommended",
            "--out", scratch / "run"});
  CHECK_EQ(meta_train.exit_code, 1);
  CHECK_NE(meta_train.errors.find("trained/recommended.safetensors"), std::string::npos);

  const FinishedProcess wrong =
      Lopt({"export", "recomended", "--format", "npz", "--out", scratch / "none.npz"});
  CHECK_EQ(wrong.exit_code, 1);
  CHECK_EQ(wrong.errors,
           "lopt: recomended is neither a file nor a trained optimizer of lopt; these are celo2, "
           "fast, mlp, mlp-fast, recommended, tutorial; did you mean 'recommended'?\n");
}

TEST_CASE("A bad config is an error that names the key, the value and the valid choices") {
  CHECK_EQ(ErrorOf(ConfigText("\"num_tasks\"", "\"num_task\"")),
           "lopt: config: unknown key 'estimators[0].num_task'; valid keys: task, lengths, "
           "meta_loss, meta_loss_aux, meta_loss_log, non_finite, "
           "random_initial_iteration_offset, random_initial_iteration_multiple, with_metrics, "
           "weight, num_tasks, trunc_length, std, "
           "sign_delta_loss_scalar, burn_in, directions; did you mean 'num_tasks'?\n");
  CHECK_EQ(
      ErrorOf(ConfigText("\"num_tasks\": 2", "\"num_tasks\": \"2\"")),
      "lopt: config: 'estimators[0].num_tasks' must be an integer in [1, 100000], got \"2\"\n");
  CHECK_EQ(ErrorOf(ConfigText("\"std\": 0.01", "\"std\": -0.01")),
           "lopt: config: 'estimators[0].std' must be a number above 0, got -0.01\n");
  Words tasks;
  for (const TypeEntry& entry : TaskRegistry().table().entries()) tasks.push_back(entry.type);
  CHECK_EQ(ErrorOf(ConfigText("QuadraticTask", "CubicTask")),
           fmt::format("lopt: config: 'estimators[0].task.type' is 'CubicTask'; valid types of "
                       "task: {}; others come with plug-ins (--plugin FILE)\n",
                       fmt::join(tasks, ", ")));
  CHECK(ErrorOf(ConfigText("\"meta_steps\": 3", "\"meta_steps\": 3,"))
            .ends_with("/config.json: line 9, column 1: syntax error while parsing object key - "
                       "unexpected '}'; expected string literal\n"));
  CHECK_EQ(ErrorOf(ConfigText(), {"--set", "estimators.1.std=1"}),
           "lopt: config: 'estimators' has 1 elements, so there is no element '1'\n");
}

TEST_CASE("A config that names an instruction set the machine lacks is an error") {
  std::string isas;
  for (const std::string& isa : SupportedIsas()) isas += (isas.empty() ? "" : ", ") + isa;
  const std::string message =
      "lopt: this machine has no instruction set 'avx9' that the program was built for; there "
      "are: " +
      isas + "\n";
  CHECK_EQ(ErrorOf(ConfigText("\"meta_steps\"", "\"isa\": \"avx9\", \"meta_steps\"")), message);
  CHECK_EQ(ErrorOf(ConfigText(), {"--isa", "avx9"}), message);
  // Before anything is said of what runs.
  const TempDirectory scratch;
  const Words run = {"--isa", "avx9", "--out", scratch / "run"};
  for (Words words : {Words{"meta-train", WriteConfig(scratch, ConfigText())},
                      Words{"train", WriteTraining(scratch)}}) {
    words.insert(words.end(), run.begin(), run.end());
    CHECK_EQ(Lopt(words).output, "");
  }
}

TEST_CASE("A device that is not there is an error that says what is") {
  CHECK_EQ(ErrorOf(ConfigText(), {"--device", "tpu"}),
           "lopt: device: 'tpu' is none; choose cpu, cuda, cuda:<number of a GPU> or emulated\n");
  CHECK_EQ(ErrorOf(ConfigText(), {"--devices", "0"}),
           "lopt: GPUs are named (--devices), but the device is 'cpu'; choose 'cuda'\n");
  const CudaDevices found = FindCudaDevices();
  CHECK_EQ(
      ErrorOf(ConfigText(), {"--device", "cuda:4711"}),
      found.count == 0
          ? fmt::format("lopt: device: there is no 'cuda:4711': {}; choose cpu\n", found.reason)
          : fmt::format("lopt: device: there is no 'cuda:4711', the GPUs are cuda:0 to "
                        "cuda:{}\n",
                        found.count - 1));
  if (found.count == 0) {
    const std::string message =
        fmt::format("lopt: device: there is no 'cuda': {}; choose cpu\n", found.reason);
    CHECK_EQ(ErrorOf(ConfigText(), {"--device", "cuda"}), message);
    CHECK_EQ(ErrorOf(ConfigText("\"meta_steps\"", "\"device\": \"cuda\", \"meta_steps\"")),
             message);
    CHECK(found.reason.starts_with(found.version.empty() ? "lopt was built without CUDA"
                                                         : "CUDA finds no GPU"));
  }
}

TEST_CASE("An output directory that cannot be written is an error") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, ConfigText());
  const FinishedProcess finished = Lopt({"meta-train", config, "--out", config + "/run"});
  CHECK_EQ(finished.exit_code, 1);
  CHECK_EQ(finished.errors,
           fmt::format("lopt: cannot create the directory {}/run: Not a directory\n", config));
}

TEST_CASE("A data directory that no task reads is an error") {
  CHECK_EQ(ErrorOf(ConfigText(), {"--data-dir", "/srv/digits"}),
           "lopt: data_dir is /srv/digits, but no task of the config reads from it\n");
}

TEST_CASE("A run is not overwritten unless asked for") {
  const TempDirectory scratch;
  const Words train = {"meta-train", WriteConfig(scratch, ConfigText()), "--out", scratch / "run"};
  CHECK_EQ(Lopt(train).exit_code, 0);

  const FinishedProcess again = Lopt(train);
  CHECK_EQ(again.exit_code, 1);
  CHECK_EQ(again.errors,
           fmt::format("lopt: {}/run holds a run already: resume it (--resume), replace it "
                       "(--overwrite), or choose another directory\n",
                       scratch.path()));

  Words overwrite = train;
  overwrite.push_back("--overwrite");
  CHECK_EQ(Lopt(overwrite).exit_code, 0);
}

TEST_CASE("A command neither replaces nor resumes what another command has made") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, ConfigText());
  const std::string training = WriteTraining(scratch);
  const auto in = [](Words words, const std::string& out, const Words& more = {}) {
    words.insert(words.end(), {"--out", out});
    words.insert(words.end(), more.begin(), more.end());
    return Lopt(words);
  };
  struct Made {
    Words command;
    std::string out;
    std::string what;
    std::string file;  // that is not to be lost
  };
  const Made all[] = {
      {{"meta-train", config}, scratch / "meta", "a meta-training run", "theta.safetensors"},
      {{"train", training}, scratch / "model", "a training run", "model.safetensors"},
      {{"eval", "--preset", "smoke", "--baselines", "SGD"},
       scratch / "evaluation",
       "an evaluation",
       "results.jsonl"}};
  for (const Made& made : all) REQUIRE(in(made.command, made.out).exit_code == 0);
  for (const Made& made : all) {
    for (const Made& other : all) {
      if (made.out == other.out) continue;
      CAPTURE(made.out);
      CAPTURE(other.out);
      const std::string file = ReadTextFile(other.out + "/" + other.file);
      const std::string manifest = ReadTextFile(other.out + "/manifest.json");
      for (const FinishedProcess& refused :
           {in(made.command, other.out), in(made.command, other.out, {"--overwrite"}),
            in(made.command, other.out, {"--resume"}),
            in({made.command[0]}, other.out, {"--resume"})}) {
        CHECK_EQ(refused.exit_code, 1);
        CHECK(refused.errors.starts_with("lopt: " + other.out + " holds " + other.what +
                                         "; choose another directory"));
      }
      CHECK_EQ(ReadTextFile(other.out + "/" + other.file), file);
      CHECK_EQ(ReadTextFile(other.out + "/manifest.json"), manifest);
    }
  }
  for (const Made& made : all) CHECK_EQ(in(made.command, made.out, {"--overwrite"}).exit_code, 0);
}

// The files below a directory, with their bytes.
std::map<std::string, std::string> BytesIn(const std::string& directory) {
  std::map<std::string, std::string> bytes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) bytes[entry.path()] = ReadTextFile(entry.path());
  }
  return bytes;
}

TEST_CASE("No command changes a byte of what another command or another program has made") {
  const TempDirectory scratch;
  const Words commands[] = {
      {"meta-train", WriteConfig(scratch, ConfigText())},
      {"train", WriteTraining(scratch)},
      {"eval", "--preset", "smoke", "--baselines", "SGD"},
      {"fit", R"({"type": "FixedDimQuadraticFamily", "dim": 3})", "--steps", "24", "--updates", "0",
       "--trials", "2", "--start", SourcePath("trained/recommended.safetensors")}};
  struct Made {
    std::string name;
    Words files;
    Words refused;  // commands
  };
  const Words all = {"meta-train", "train", "eval", "fit"};
  const Made foreign[] = {
      {"a fit", {"fit.json", "theta.safetensors"}, {"meta-train", "train", "eval"}},
      {"a search", {"search.pickle"}, {"meta-train", "train", "eval"}},
      {"a searched theta", {"search.pickle", "theta.safetensors"}, all},
      {"a theta", {"theta.safetensors"}, {"meta-train", "train", "fit"}},
      {"a config", {"config.json"}, {"meta-train", "train", "eval"}},
      {"a choice", {"best.json"}, {"meta-train"}},
      {"a manifest", {"manifest.json"}, {"meta-train", "train", "eval"}},
      {"checkpoints", {"checkpoints/last.ckpt"}, {"meta-train", "train", "eval"}},
      {"results", {"results.jsonl"}, {"eval"}},
      {"thetas", {"thetas/first.safetensors"}, {"eval"}},
      {"a table", {"table.md"}, {"eval"}},
      {"a replay", {"replay.safetensors"}, {"eval"}}};
  for (const Made& made : foreign) {
    const std::string out = scratch / made.name;
    for (const std::string& file : made.files) {
      MakeDirectories(std::filesystem::path(out + "/" + file).parent_path());
      WriteTextFile(out + "/" + file, made.name == "a fit" ? R"({"format": "lopt fit 4"})" : "{}");
    }
    const auto before = BytesIn(out);
    for (const Words& command : commands) {
      if (std::ranges::find(made.refused, command[0]) == made.refused.end()) continue;
      for (const Words& more : {Words{}, Words{"--overwrite"}}) {
        CAPTURE(made.name);
        CAPTURE(command[0]);
        CAPTURE(more.size());
        Words words = command;
        words.insert(words.end(), {"--out", out});
        words.insert(words.end(), more.begin(), more.end());
        const FinishedProcess refused = Lopt(words);
        CHECK_EQ(refused.exit_code, 1);
        CHECK(refused.errors.find(out + " holds ") != std::string::npos);
        CHECK(refused.errors.find("choose another directory") != std::string::npos);
        CHECK(BytesIn(out) == before);
      }
    }
  }
  // What nobody would replace is no hindrance, and stays.
  const std::string out = scratch / "beside";
  MakeDirectories(out + "/status");
  for (const char* file : {"results.jsonl", "notes.txt", "status/mine"}) {
    WriteTextFile(out + "/" + file, "mine");
  }
  for (const Words& more : {Words{}, Words{"--overwrite"}}) {
    Words words = commands[0];
    words.insert(words.end(), {"--out", out});
    words.insert(words.end(), more.begin(), more.end());
    CHECK_EQ(Lopt(words).errors, "");
    for (const char* file : {"results.jsonl", "notes.txt"}) {
      CHECK_EQ(ReadTextFile(out + "/" + file), "mine");
    }
  }
  // Nor does fitting change a run.
  REQUIRE_EQ(Lopt({"train", commands[1][1], "--out", scratch / "model"}).exit_code, 0);
  const auto model = BytesIn(scratch / "model");
  Words fit = commands[3];
  fit.insert(fit.end(), {"--out", scratch / "model", "--overwrite"});
  CHECK(Lopt(fit).errors.find(" holds a run of another command; choose another directory") !=
        std::string::npos);
  CHECK(BytesIn(scratch / "model") == model);
}

TEST_CASE("A config file that lies where a run writes its own is not replaced") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, ConfigText());
  const std::string again = scratch / "./config.json";
  for (const Words& command :
       {Words{"meta-train", again}, Words{"train", again}, Words{"eval", "--tasks", again}}) {
    for (const Words& more : {Words{}, Words{"--overwrite"}}) {
      Words words = command;
      words.insert(words.end(), {"--out", scratch.path()});
      words.insert(words.end(), more.begin(), more.end());
      const FinishedProcess refused = Lopt(words);
      CHECK_EQ(refused.exit_code, 2);
      CHECK_EQ(refused.errors,
               fmt::format("lopt: --out: {} holds the config file itself, which the {}'s "
                           "config.json would replace; choose another directory\n",
                           scratch.path(), command[0] == "eval" ? "evaluation" : "run"));
      CHECK_EQ(ReadTextFile(config), ConfigText());
    }
  }
  // That of a run is its own.
  const std::string out = scratch / "run";
  CHECK_EQ(Lopt({"meta-train", config, "--out", out}).exit_code, 0);
  CHECK_EQ(Lopt({"meta-train", out + "/config.json", "--out", out, "--overwrite"}).exit_code, 0);
}

TEST_CASE("A training says how far it came, and its optimizer's file is named by any text") {
  const TempDirectory scratch;
  const FinishedProcess trained =
      Lopt({"train", WriteTraining(scratch), "--out", scratch / "model"});
  CHECK_EQ(trained.exit_code, 0);
  CHECK(trained.output.find("\n3/3  loss ") != std::string::npos);
  REQUIRE(Lopt({"meta-train", WriteConfig(scratch, ConfigText()), "--out", scratch / "run"})
              .exit_code == 0);
  std::filesystem::copy_file(scratch / "run/theta.safetensors", scratch / "5");
  const FinishedProcess finished =
      RunProcess({"/bin/sh", "-c",
                  fmt::format("cd '{}' && exec '{}' train training.json --theta 5 --out learned",
                              scratch.path(), BuildPath("lopt"))});
  CHECK_EQ(finished.errors, "");
  CHECK_EQ(finished.exit_code, 0);
}

TEST_CASE("Resuming where there is no run is an error") {
  const std::string message = ErrorOf(ConfigText(), {"--resume"});
  CHECK(message.starts_with("lopt: cannot resume: "));
  CHECK(message.ends_with("/run holds no run\n"));
}

TEST_CASE("An empty text, as a variable that is not set gives it, is an error") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, ConfigText());
  for (const char* option : {"--out", "--data-dir", "--init-theta"}) {
    const FinishedProcess finished = Lopt({"meta-train", config, option, ""});
    CHECK_EQ(finished.exit_code, 2);
    CHECK(finished.errors.find(" is an empty text; is a variable not set?") != std::string::npos);
  }
  CHECK_EQ(Lopt({"meta-train", ""}).errors,
           "lopt: An argument is an empty text; is a variable not set?\n");
  CHECK_EQ(Lopt({"eval", "--preset", "quick", "--out", ""}).errors,
           "lopt: --out is an empty text; is a variable not set?\n");
  CHECK_EQ(Lopt({"launch", "-n", "2", "--", "meta-train", config, "--out", ""}).exit_code, 2);
}

TEST_CASE("A path that is not UTF-8 is an error in words where a file of JSON has to name it") {
  const TempDirectory scratch;
  const FinishedProcess finished = Lopt({"meta-train", WriteConfig(scratch, ConfigText()), "--out",
                                         scratch / "run", "--data-dir", "caf\xe9"});
  CHECK_EQ(finished.exit_code, 1);
  CHECK_EQ(finished.errors,
           "lopt: data_dir cannot be written as JSON: it is not UTF-8: \"caf\xef\xbf\xbd\"\n");
}

TEST_CASE("Sizes that no machine has are errors that say the largest") {
  const auto error_of = [](const char* assignment) {
    return Lopt({"meta-train", "--preset", "smoke", "--out", "/nowhere", "--set", assignment})
        .errors;
  };
  CHECK_EQ(error_of("workers=100000000"),
           "lopt: config: 'workers' must be an integer in [1, 100000], got 100000000\n");
  CHECK_EQ(error_of("learned_optimizer.hidden_layers=1000000000"),
           "lopt: config: 'learned_optimizer.hidden_layers' must be an integer in [1, 64], got "
           "1000000000\n");
  CHECK_EQ(error_of(R"(estimators.0.task={"type":"ImageMLP","hidden":[100000,100000]})"),
           "lopt: Layout: with tensor 'mlp/linear_1/w' it has more than 4294967296 numbers\n");
  CHECK_EQ(
      Lopt({"meta-train", "--preset", "smoke", "--out", "/nowhere", "--threads", "100000"}).errors,
      "lopt: --threads must be in [1, 1024], got 100000\n");
}

TEST_CASE("A damaged config.json stops a resume that reads it and says how to do without") {
  const TempDirectory scratch;
  const std::string out = scratch / "run";
  const std::string config = WriteConfig(scratch, ConfigText());
  CHECK_EQ(Lopt({"meta-train", config, "--out", out}).exit_code, 0);
  WriteTextFile(out + "/config.json", "{");
  const FinishedProcess finished = Lopt({"meta-train", "--resume", "--out", out});
  CHECK_EQ(finished.exit_code, 1);
  CHECK(finished.errors.starts_with("lopt: " + out + "/config.json: line 1"));
  CHECK(
      finished.errors.ends_with("; to resume all the same, give the config: lopt meta-train "
                                "CONFIG.json --resume --out " +
                                ShellQuoted(out) + "\n"));
  CHECK_EQ(Lopt({"meta-train", config, "--resume", "--out", out}).exit_code, 0);
  CHECK_EQ(Lopt({"meta-train", "--resume", "--out", out}).exit_code, 0);
}

TEST_CASE("The end of a run that was resumed says which numbers are of all its updates") {
  const TempDirectory scratch;
  const std::string out = scratch / "run";
  const std::string begun =
      Lopt({"meta-train", "--preset", "smoke", "--steps", "2", "--out", out}).output;
  CHECK(begun.find("\n2 updates in ") != std::string::npos);
  CHECK(begun.find("in all") == std::string::npos);
  const std::string resumed = Lopt({"meta-train", "--resume", "--steps", "5", "--out", out}).output;
  CHECK(resumed.find("\n3 updates in ") != std::string::npos);
  const std::string whole =
      Lopt({"meta-train", "--preset", "smoke", "--steps", "5", "--out", scratch / "other"}).output;
  const auto counts = [](const std::string& text, const std::string& before) {
    const size_t line = text.find("\n  0_");
    REQUIRE(line != std::string::npos);
    const size_t first = text.find(before, line) + before.size();
    return text.substr(first, text.find('\n', first) - first);
  };
  CHECK_EQ(counts(resumed, ": in all "), counts(whole, ": "));
}

TEST_CASE("A run goes back to a checkpoint that is named") {
  const TempDirectory scratch;
  const std::string out = scratch / "run";
  CHECK_EQ(Lopt({"meta-train", WriteConfig(scratch, ConfigText()), "--out", out, "--set",
                 "checkpoint_steps=1"})
               .exit_code,
           0);
  const std::string theta = ReadTextFile(out + "/theta.safetensors");
  const FinishedProcess none = Lopt({"meta-train", "--resume", "--out", out, "--from", "7"});
  CHECK_EQ(none.exit_code, 1);
  CHECK_EQ(none.errors, fmt::format("lopt: {}/checkpoints holds no checkpoint of step 7; there "
                                    "are: 1, 2, 3\n",
                                    out));
  CHECK_EQ(Lopt({"meta-train", "--resume", "--out", out, "--from=1"}).exit_code, 0);
  CHECK_EQ(ReadTextFile(out + "/theta.safetensors"), theta);
  CHECK_EQ(Lopt({"meta-train", "--out", out, "--from", "1"}).exit_code, 2);
  for (const char* step : {"x", "1x", ""}) {
    CHECK_EQ(
        Lopt({"launch", "-n", "2", "--", "meta-train", "--resume", "--out", out, "--from", step})
            .exit_code,
        2);
  }
}

TEST_CASE("Resuming with another config is an error that says which key differs") {
  const TempDirectory scratch;
  const Words train = {"meta-train", WriteConfig(scratch, ConfigText()), "--out", scratch / "run"};
  CHECK_EQ(Lopt(train).exit_code, 0);
  Words changed = train;
  changed.insert(changed.end(), {"--resume", "--set", "estimators[0].std=0.02"});
  const FinishedProcess finished = Lopt(changed);
  CHECK_EQ(finished.exit_code, 1);
  CHECK_EQ(finished.errors,
           fmt::format("lopt: cannot resume from {}/run/checkpoints/step-00000003: the config has "
                       "changed: estimators[0].std: 0.01 in the checkpoint, 0.02 now. On resume "
                       "only these keys may change: {}\n",
                       scratch.path(), fmt::join(KeysFreeOnResume(), ", ")));
}

TEST_CASE("SIGTERM saves the run, and resuming it gives the same file as never stopping") {
  const TempDirectory scratch;
  const std::string config = WriteConfig(scratch, ConfigText());
  bool sent = false;
  const FinishedProcess stopped =
      Lopt({"meta-train", config, "--out", scratch / "stopped", "--steps", "1000000000",
            "--threads", "1"},
           [&](pid_t process, const std::string& output) {
             if (!sent && output.find("updates/s") != std::string::npos) {
               sent = true;
               kill(process, SIGTERM);
             }
           });
  CHECK_EQ(stopped.exit_code, 75);
  const std::string before = "Stopped after update ";
  const size_t at = stopped.output.find(before);
  REQUIRE(at != std::string::npos);
  const std::string updates =
      std::to_string(std::stoll(stopped.output.substr(at + before.size())) + 5);
  CHECK(
      stopped.output.ends_with(fmt::format(" of 1000000000; the state is saved. To go on:\n"
                                           "  lopt meta-train --resume --out {} --threads 1\n",
                                           scratch / "stopped")));
  CHECK(ReadTextFile(scratch / "stopped/manifest.json").find("interrupted") != std::string::npos);

  const FinishedProcess resumed =
      Lopt({"meta-train", "--resume", "--out", scratch / "stopped", "--steps", updates});
  CHECK_EQ(resumed.exit_code, 0);
  const FinishedProcess whole =
      Lopt({"meta-train", config, "--out", scratch / "whole", "--steps", updates});
  CHECK_EQ(whole.exit_code, 0);
  CHECK_EQ(ReadFile(scratch / "stopped/theta.safetensors"),
           ReadFile(scratch / "whole/theta.safetensors"));
}

TEST_CASE("A finished run can be inspected") {
  const TempDirectory scratch;
  CHECK_EQ(
      Lopt({"meta-train", WriteConfig(scratch, ConfigText()), "--out", scratch / "run"}).exit_code,
      0);
  const FinishedProcess theta = Lopt({"inspect", scratch / "run/theta.safetensors"});
  CHECK_EQ(theta.exit_code, 0);
  CHECK(theta.output.find("theta/log_lr") != std::string::npos);
  CHECK(theta.output.find("LearnableSGD") != std::string::npos);
  // For people: a few lines of the config, none longer than a terminal is wide, and readers in a
  // table.
  CHECK(theta.output.find("  config:\n    ") != std::string::npos);
  CHECK(theta.output.find("    (lopt inspect --config FILE shows all of it)\n") !=
        std::string::npos);
  CHECK(std::ranges::count(theta.output, '\n') < 60);
  for (size_t begin = theta.output.find("  config:"); begin < theta.output.find("  format = ");) {
    const size_t end = theta.output.find('\n', begin);
    CHECK(end - begin <= 80);
    begin = end + 1;
  }
  CHECK(theta.output.find("golden/...: 30 arrays") != std::string::npos);
  CHECK(theta.output.find("golden/result/plain/w") == std::string::npos);
  CHECK(theta.output.find("\n  " + CurrentIsa() + " ") != std::string::npos);
  CHECK(theta.output.find("FAILED") == std::string::npos);

  // For programs.
  const auto json =
      nlohmann::json::parse(Lopt({"inspect", "--json", scratch / "run/theta.safetensors"}).output);
  CHECK_EQ(json[0]["path"], scratch / "run/theta.safetensors");
  CHECK_EQ(json[0]["arrays"]["theta/log_lr"]["shape"], std::vector<int64_t>{1});
  CHECK_EQ(json[0]["metadata"]["learned_optimizer"]["type"], "LearnableSGD");
  CHECK_EQ(json[0]["check"].size(), SupportedIsas().size());
  CHECK_EQ(json[0]["check"][0]["reader"], SupportedIsas().front());
  CHECK_EQ(json[0]["check"][0]["within"], true);

  // The config, as meta-train takes it: another run of it is the same.
  const FinishedProcess config = Lopt({"inspect", "--config", scratch / "run/theta.safetensors"});
  CHECK_EQ(config.exit_code, 0);
  std::ofstream(scratch / "again.json") << config.output;
  CHECK_EQ(Lopt({"meta-train", scratch / "again.json", "--out", scratch / "again"}).exit_code, 0);
  CHECK_EQ(ReadFile(scratch / "again/theta.safetensors"),
           ReadFile(scratch / "run/theta.safetensors"));
  // Also of a file of an earlier version, with the keys that they have now.
  const FinishedProcess of_old =
      Lopt({"inspect", "--config", SourcePath("trained/tutorial.safetensors")});
  std::ofstream(scratch / "of_old.json") << of_old.output;
  CHECK_EQ(Lopt({"config", scratch / "of_old.json"}).errors, "");
  CHECK_EQ(Lopt({"inspect", "--config", "--json", scratch / "again.json"}).exit_code, 2);
  CHECK_EQ(Lopt({"inspect", "--config", scratch / "run"}).exit_code, 1);

  const FinishedProcess checkpoint = Lopt({"inspect", scratch / "run/checkpoints/step-00000003"});
  CHECK_EQ(checkpoint.exit_code, 0);
  CHECK(checkpoint.output.find("workers-00000-00000.safetensors") != std::string::npos);
}

TEST_CASE("Metadata that are nested too deep are shown as text") {
  const TempDirectory scratch;
  constexpr size_t kLevels = 1'000'000;
  ArrayFile file;
  file.metadata["deep"] = std::string(kLevels, '[') + std::string(kLevels, ']');
  WriteArrayFile(scratch / "deep.safetensors", file);
  CHECK_EQ(Lopt({"inspect", scratch / "deep.safetensors"}).exit_code, 0);
  CHECK_EQ(Lopt({"inspect", "--json", scratch / "deep.safetensors"}).exit_code, 0);
}

TEST_CASE("What is no array file cannot be inspected") {
  const TempDirectory scratch;
  std::ofstream(scratch / "note.txt") << "hello";
  const FinishedProcess text = Lopt({"inspect", scratch / "note.txt"});
  CHECK_EQ(text.exit_code, 1);
  CHECK_EQ(text.errors, fmt::format("lopt: {}: 5 bytes are too few for a safetensors file\n",
                                    scratch / "note.txt"));
  const FinishedProcess missing = Lopt({"inspect", scratch / "none.safetensors"});
  CHECK_EQ(missing.exit_code, 1);
  CHECK_EQ(missing.errors, fmt::format("lopt: cannot read {}: No such file or directory\n",
                                       scratch / "none.safetensors"));
}

TEST_CASE("One type can be described by its name") {
  const FinishedProcess finished = Lopt({"describe", "QuadraticTask"});
  CHECK_EQ(finished.exit_code, 0);
  CHECK(finished.output.starts_with("## Tasks\n\n### QuadraticTask\n\n"));
  const FinishedProcess unknown = Lopt({"describe", "CubicTask"});
  CHECK_EQ(unknown.exit_code, 1);
  CHECK(unknown.errors.starts_with("lopt: There is no type 'CubicTask'; the types are MLPLOpt, "));
  CHECK(Lopt({"describe", "QuadraticTsk"}).errors.ends_with("; did you mean 'QuadraticTask'?\n"));
}

TEST_CASE("A task is described by a file or a type, and drawn") {
  const TempDirectory scratch;
  const std::string preview = scratch / "batch.png";
  const FinishedProcess finished =
      Lopt({"describe", "--task", "ImageMLP", "--preview", preview, "--steps", "30"});
  CHECK_EQ(finished.errors, "");
  CHECK_EQ(finished.exit_code, 0);
  for (const char* line :
       {"params       2,410: mlp/linear_0/w [64, 32], ", "data         7,000 train",
        "FLOP         1.294 million", "after step 30 of Adam",
        "batch.png shows, from top to bottom: batch\n"}) {
    CHECK_MESSAGE(finished.output.find(line) != std::string::npos, line);
  }
  CHECK(ReadTextFile(preview).starts_with("\x89PNG"));
  const auto with_seed = [&](const char* seed) {
    return Lopt({"describe", "--task", "ImageMLP", "--preview", preview, "--steps", "30", "--seed",
                 seed})
        .output;
  };
  CHECK_EQ(with_seed("0"), finished.output);
  CHECK(with_seed("1") != finished.output);

  const std::string config = scratch / "task.json";
  WriteTextFile(config, R"({"type": "QuadraticTask", "dim": 3})");
  CHECK(Lopt({"describe", "--task", config}).output.find("params       3: x [3]") !=
        std::string::npos);
  const auto errors = [](const Words& words) { return Lopt(words).errors; };
  CHECK_EQ(errors({"describe", "--task", config, "--preview", preview}),
           "lopt: --preview: a QuadraticTask has nothing to draw\n");
  CHECK(errors({"describe", "--task", scratch / "none"})
            .starts_with(fmt::format("lopt: --task {}: there is no such file, and no task of that "
                                     "type; the types are QuadraticTask, ",
                                     scratch / "none")));
  CHECK(errors({"describe", "--steps", "3"})
            .starts_with("lopt: --steps says something of a task; it wants --task\n"));
  CHECK(errors({"describe", "--task", config, "--steps", "0"})
            .starts_with("lopt: --steps must be at least 1, got 0\n"));
  CHECK(errors({"describe", "--task", config, "--learning-rate", "nan"})
            .starts_with("lopt: --learning-rate must be above 0, got nan\n"));
  CHECK(errors({"describe", "ImageMLP", "--task", config})
            .starts_with("lopt: Give a TYPE or --task, not both\n"));
}

// Ten images a class of 4 x 4 pixels as lines of CSV: a class has one bright column.
std::string SomeCsv(int64_t white, int64_t first_label) {
  std::string text;
  for (int64_t row = 0; row < 40; ++row) {
    for (int64_t pixel = 0; pixel < 16; ++pixel) {
      text += fmt::format("{},", pixel % 4 == row % 4 ? white : pixel == 5 ? row % white : 0);
    }
    text += fmt::format("{}\n", row % 4 + first_label);
  }
  return text;
}

TEST_CASE("Data are described: shapes, classes with their counts, values and a picture") {
  const TempDirectory scratch;
  const auto describe = [&](const Words& more) {
    Words words = {"describe", "--data-dir", scratch.path()};
    words.insert(words.end(), more.begin(), more.end());
    FinishedProcess finished = Lopt(words);
    for (size_t at = 0; at < finished.output.size();) {
      const size_t end = finished.output.find('\n', at);
      // Not what the log says.
      if (finished.output[at] != '[') CHECK(end - at <= 80);
      at = end + 1;
    }
    return finished;
  };
  CHECK(describe({}).errors.starts_with("lopt: --data-dir " + scratch.path() +
                                        ": there are no data that lopt reads, but nothing; "));
  WriteTextFile(scratch / "train.csv", SomeCsv(16, 1));
  const FinishedProcess csv = describe({"--data", R"({"data": "csv", "csv_white": 16})"});
  CHECK(csv.output.find(": csv\n"
                        "  shape    4 x 4, grey\n"
                        "  images   40: train 28, inner_valid 4, outer_valid 4, test 4\n"
                        "  values   0 to 255, mean ") != std::string::npos);
  CHECK(csv.output.find("  classes  5, labels 0 to 4\n") != std::string::npos);
  CHECK(csv.output.find("         1          10 ") != std::string::npos);
  CHECK(
      csv.output.find("  label 1             label 2             label 3             label 4\n"
                      "  @@                    @@                    @@                    @@\n") !=
      std::string::npos);
  // As the loader warns.
  CHECK(
      csv.output.find("labels are wanted from 0 on without a gap, but no image has the label 0") !=
      std::string::npos);
  CHECK(describe({}).output.find("the greatest pixel is 16, where 255 is white") !=
        std::string::npos);
  // Every format of which there are files.
  NamedArrays arrays;
  std::vector<uint8_t> pixels(40 * 6 * 2 * 3);
  std::vector<uint8_t> labels(40);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(7 * i);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint8_t>(i % 30);
  arrays.Set("images", Array::Of<uint8_t>({40, 6, 2, 3}, pixels));
  arrays.Set("labels", Array::Of<uint8_t>({40}, labels));
  WriteNpz(scratch / "a.npz", arrays);
  const FinishedProcess both = describe({});
  CHECK(both.exit_code == 0);
  CHECK(At(both.output, ": csv\n") < At(both.output, ": npz\n"));
  CHECK(both.output.find("  shape    6 x 2, 3 channels\n") != std::string::npos);
  CHECK(both.output.find("    0:        2     1:        2  ") != std::string::npos);
  CHECK(describe({"--data", "npz"}).output.find("csv") == std::string::npos);
  CHECK(describe({"--data", "idx"}).errors.starts_with("lopt: There are no images in "));
  CHECK(describe({"--data", "tiff"}).errors.find("tiff") != std::string::npos);
  CHECK(Lopt({"describe", "--data", "npz"})
            .errors.starts_with("lopt: --data says which data; it wants --data-dir"));
  // Text.
  WriteTextFile(scratch / "text", "one two three\n four five\x1b[2J and some more words\n");
  const FinishedProcess text = Lopt({"describe", "--data-dir", scratch / "text"});
  CHECK(
      text.output.find(": text\n  bytes    49: train 34, inner_valid 5, outer_valid 5, test 5\n") !=
      std::string::npos);
  CHECK(text.output.find("one two three\\x0a four five\\x1b[2J and") != std::string::npos);
  // Lines end between characters, also where the 160 bytes that are shown end inside of one.
  const auto repeated = [](int times) {
    std::string characters;
    for (int i = 0; i < times; ++i) characters += "\xc3\xa9";
    return characters;
  };
  WriteTextFile(scratch / "accents", "a" + repeated(200));
  CHECK(Lopt({"describe", "--data-dir", scratch / "accents"})
            .output.ends_with("\n  a" + repeated(77) + "\n  " + repeated(3) + "\n"));
}

TEST_CASE("What a stranger has written does not drive the terminal by way of an error") {
  const FinishedProcess missing = Lopt({"inspect", "no\x1b[2J\nfile\xC2\x9B\xff"});
  CHECK(missing.exit_code == 1);
  CHECK(missing.errors.find("no\\x1b[2J\nfile\\xc2\\x9b\\xff") != std::string::npos);
  CHECK(missing.errors.find('\x1b') == std::string::npos);
}

TEST_CASE("The version says what a bug report needs: the build, the machine and the libraries") {
  const FinishedProcess finished = Lopt({"version"});
  CHECK_EQ(finished.exit_code, 0);
  for (const char* line :
       {"lopt 0.", "\ncommit: ", "\ncompiler: ", "\nMPI: ", "\nCUDA: ", "\nLibTorch: "}) {
    CHECK_MESSAGE(finished.output.find(line) != std::string::npos, line);
  }
  const auto printed = [](const char* command) {
    return RunProcess({"/bin/sh", "-c", command}).output;
  };
  const std::string system =
      fmt::format("\nsystem:           {}, {}C library:        {}",
                  printed(". /etc/os-release; printf %s \"$PRETTY_NAME\""), printed("uname -srm"),
                  printed("getconf GNU_LIBC_VERSION"));
  CHECK_MESSAGE(finished.output.find(system) != std::string::npos, finished.output);
  CHECK(finished.output.find("\nprocessor:        " + ProcessorName() + ", ") != std::string::npos);
  const size_t highway = At(finished.output, "\nHighway:          1.");
  std::string best = CurrentIsa();
  for (char& c : best) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  CHECK(At(finished.output, " " + best, highway) < At(finished.output, "\n", highway + 1));
  CHECK(finished.output.find("in use: " + CurrentIsa()) != std::string::npos);
  const CudaDevices found = FindCudaDevices();
  CHECK(finished.output.find(found.version.empty()
                                 ? "\nCUDA:             not built\n"
                                 : "\nCUDA:             " + found.version +
                                       (found.count == 0 ? " (CUDA finds no GPU"
                                                         : "; cuda:0 is ")) != std::string::npos);
}

}  // namespace lopt
