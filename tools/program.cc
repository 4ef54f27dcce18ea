#include <fmt/core.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "lopt/base/nearest_name.h"
#include "lopt/base/print.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/colour.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/help_text.h"
#include "lopt/tools/log_sink.h"

namespace lopt {

namespace {

constexpr Command kCommands[] = {
    {"meta-train", "Meta-train a learned optimizer.", MetaTrainCommand},
    {"worker", "Compute for a learner that is elsewhere, as long as it is there.", WorkerCommand},
    {"launch", "Meta-train on many ranks, with restarts from the last checkpoint.", LaunchCommand},
    {"train", "Train one model, its batches shared out to many ranks.", TrainCommand},
    {"predict", "What a model that lopt train has made says of rows of its data.", PredictCommand},
    {"eval", "Train tasks with learned optimizers and tuned baselines, and compare.", EvalCommand},
    {"sweep", "Meta-train variants of a recipe with several seeds, judge and compare them.",
     SweepCommand},
    {"distill", "Draw what a learned scheduler does, and fit a formula of five numbers to it.",
     DistillCommand},
    {"fit", "Fit a learned optimizer to a task, and say whether to take it.", FitCommand},
    {"report", "One HTML page with plots of meta-training runs and evaluations.", ReportCommand},
    {"preset", "List the built-in configs, or print one.", PresetCommand},
    {"config", "Print a config with all its defaults, or with what its keys mean.", ConfigCommand},
    {"describe", "Every type and key of a config, with defaults and meanings.", DescribeCommand},
    {"export", "Write a trained optimizer for other programs, or to be published.", ExportCommand},
    {"import", "Turn weights of google/learned_optimization into a theta file.", ImportCommand},
    {"inspect", "What a checkpoint or a .safetensors file holds.", InspectCommand},
    {"completion", "Print what completes command lines in bash, zsh or fish.", CompletionCommand},
    {"manual", "Write the manual pages of lopt and its commands.", ManualCommand},
    {"selftest", "Check this installation against known results.", SelftestCommand},
    {"version", "What this program was built from, and what it runs on.", VersionCommand},
    {"check", "Whether types keep what the library promises of them.", CheckCommand, true},
    {"bench", "How fast the kernels and meta-training run, beside the machine's peak.",
     BenchCommand, true},
    {"verify-kernels", "Compare a GPU's kernels with the processor's.", VerifyKernelsCommand, true},
    {"simulate", "Meta-training under faults of a simulated world, by seed.", SimulateCommand,
     true},
};

// What --help prints on the stream.
std::string Usage(std::FILE* stream) {
  std::string text = "Usage: lopt COMMAND [OPTIONS]\n\nCommands:\n";
  bool developers = false;
  for (const Command& command : kCommands) {
    if (command.for_developers && !developers) text += "\nCommands for developers:\n";
    developers = command.for_developers;
    text += HelpEntry(fmt::format("  {}", command.name), command.summary, 17, HelpColumns(stream));
  }
  return text + "\nlopt help COMMAND explains the options of one.\n";
}

// The command of this name. Throws UsageError with the nearest, or with all.
const Command& FindCommand(const std::string& name) {
  std::vector<std::string> names = {"help", "--help", "--version"};
  for (const Command& command : kCommands) {
    if (name == command.name) return command;
    names.emplace_back(command.name);
  }
  const std::string nearest = DidYouMean(name, names);
  if (!nearest.empty()) {
    throw UsageError(
        fmt::format("There is no command '{}'{}\n`lopt help` lists them.", name, nearest));
  }
  if (name.starts_with('-')) {
    throw UsageError(fmt::format("The command comes first, not {}\n\n{}", name, Usage(stderr)));
  }
  throw UsageError(fmt::format("There is no command '{}'\n\n{}", name, Usage(stderr)));
}

int Help(const std::vector<std::string>& words) {
  if (words.size() > 2) {
    throw UsageError(fmt::format("{} explains one command, not {}; usage: lopt help COMMAND",
                                 words[0], words.size() - 1));
  }
  const std::string& about = words.back();
  if (about == "help" || about == "--help" || about == "-h") {
    PrintOut("{}", Usage(stdout));
    return kExitDone;
  }
  return FindCommand(about).run({"--help"});
}

int RunCommand(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("A command is missing.\n\n" + Usage(stderr));
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") return Help(words);
  if (words[0] == "--version" || words[0] == "-V") {
    PrintOut("lopt {}\n", VersionAndCommit(GetBuildInfo()));
    return kExitDone;
  }
  return FindCommand(words[0]).run({words.begin() + 1, words.end()});
}

// In place of spdlog's own output, which knows no progress line and looks at the terminal alone
// for colours.
void LogAboveProgress() {
  for (spdlog::sink_ptr& sink : spdlog::default_logger()->sinks()) {
    if (dynamic_cast<spdlog::sinks::stdout_color_sink_mt*>(sink.get()) == nullptr) continue;
    sink = std::make_shared<LogSink>(
        stdout, WantsColour(stdout) ? spdlog::color_mode::automatic : spdlog::color_mode::never);
  }
}

int RunAndReport(const std::vector<std::string>& words) {
  try {
    LogAboveProgress();
    return RunCommand(words);
  } catch (const UsageError& error) {
    PrintFailure(error.what());
    return kExitUsage;
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      PrintErr(
          "lopt: no more threads or processes can be started ({}); limits are `ulimit -u`, "
          "and pids.max of a container\n",
          error.what());
    } else {
      PrintFailure(error.what());
    }
    return kExitError;
  } catch (const std::exception& error) {
    PrintFailure(error.what());
    return kExitError;
  }
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

int RunProgram(const std::vector<std::string>& words) {
  OpenStandardStreams();
  const int status = RunAndReport(words);
  const int error = FinishOutput();
  if (error == 0 || status != kExitDone) return status;
  PrintFailure(fmt::format("standard output cannot be written: {}; the rest was done",
                           std::generic_category().message(error)));
  return kExitError;
}

}  // namespace lopt
