#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include "lopt/base/nearest_name.h"
#include "lopt/base/print.h"
#include "lopt/tools/commands.h"

namespace lopt {

namespace {

constexpr Command kCommands[] = {
    {"meta-train", "Meta-train a learned optimizer.", MetaTrainCommand},
    {"worker", "Compute for a learner that is elsewhere, as long as it is there.", WorkerCommand},
    {"launch", "Meta-train on many ranks, with restarts from the last checkpoint.", LaunchCommand},
    {"train", "Train one model, its batches shared out to many ranks.", TrainCommand},
    {"eval", "Train tasks with learned optimizers and tuned baselines, and compare.", EvalCommand},
    {"report", "One HTML page with plots of meta-training runs and evaluations.", ReportCommand},
    {"describe", "Every type and key of a config, with defaults and meanings.", DescribeCommand},
    {"check", "Whether types keep what the library promises of them.", CheckCommand},
    {"bench", "How fast the kernels and meta-training run, beside the machine's peak.",
     BenchCommand},
    {"verify-kernels", "Compare a GPU's kernels with the processor's.", VerifyKernelsCommand},
    {"simulate", "Meta-training under faults of a simulated world, by seed.", SimulateCommand},
    {"export", "Write a trained optimizer as TorchScript or for NumPy.", ExportCommand},
    {"import", "Turn weights of google/learned_optimization into a theta file.", ImportCommand},
    {"inspect", "What a checkpoint or a .safetensors file holds.", InspectCommand},
    {"completion", "Print what completes command lines in bash, zsh or fish.", CompletionCommand},
    {"manual", "Write the manual pages of lopt and its commands.", ManualCommand},
    {"selftest", "Check this installation against known results.", SelftestCommand},
    {"version", "What this program was built from, and what it runs on.", VersionCommand},
};

std::string Usage() {
  std::string text = "Usage: lopt COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<14} {}\n", command.name, command.summary);
  }
  return text + "\nlopt COMMAND --help explains the options of one.\n";
}

int RunCommand(const std::vector<std::string>& words) {
  if (words.empty()) throw UsageError("A command is missing.\n\n" + Usage());
  if (words[0] == "--help" || words[0] == "help") {
    PrintOut("{}", Usage());
    return kExitDone;
  }
  for (const Command& command : kCommands) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  }
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  throw UsageError(fmt::format("There is no command '{}'{}\n\n{}", words[0],
                               DidYouMean(words[0], names), Usage()));
}

int RunAndReport(const std::vector<std::string>& words) {
  try {
    return RunCommand(words);
  } catch (const UsageError& error) {
    PrintErr("lopt: {}\n", error.what());
    return kExitUsage;
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      PrintErr(
          "lopt: no more threads or processes can be started ({}); limits are `ulimit -u`, "
          "and pids.max of a container\n",
          error.what());
    } else {
      PrintErr("lopt: {}\n", error.what());
    }
    return kExitError;
  } catch (const std::exception& error) {
    PrintErr("lopt: {}\n", error.what());
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
  PrintErr("lopt: standard output cannot be written: {}; the rest was done\n",
           std::generic_category().message(error));
  return kExitError;
}

}  // namespace lopt
