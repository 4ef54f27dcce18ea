#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/nearest_name.h"
#include "tools/commands.h"

namespace {

constexpr lopt::Command kCommands[] = {
    {"meta-train", "Meta-train a learned optimizer.", lopt::MetaTrainCommand},
    {"launch", "Meta-train on many ranks, with restarts from the last checkpoint.",
     lopt::LaunchCommand},
    {"eval", "Train tasks with learned optimizers and tuned baselines, and compare.",
     lopt::EvalCommand},
    {"report", "One HTML page with plots of meta-training runs and evaluations.",
     lopt::ReportCommand},
    {"describe", "Every type and key of a config, with defaults and meanings.",
     lopt::DescribeCommand},
    {"bench", "How fast the kernels and meta-training run, beside the machine's peak.",
     lopt::BenchCommand},
    {"export", "Write a trained optimizer as TorchScript or for NumPy.", lopt::ExportCommand},
    {"import", "Turn weights of google/learned_optimization into a theta file.",
     lopt::ImportCommand},
    {"inspect", "What a checkpoint or a .safetensors file holds.", lopt::InspectCommand},
    {"version", "What this program was built from, and what it runs on.", lopt::VersionCommand},
};

std::string Usage() {
  std::string text = "Usage: lopt COMMAND [OPTIONS]\n\nCommands:\n";
  for (const lopt::Command& command : kCommands) {
    text += fmt::format("  {:<12} {}\n", command.name, command.summary);
  }
  return text + "\nlopt COMMAND --help explains the options of one.\n";
}

int Run(const std::vector<std::string>& words) {
  if (words.empty()) throw lopt::UsageError("A command is missing.\n\n" + Usage());
  if (words[0] == "--help" || words[0] == "help") {
    fmt::print("{}", Usage());
    return lopt::kExitDone;
  }
  for (const lopt::Command& command : kCommands) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  }
  std::vector<std::string> names;
  for (const lopt::Command& command : kCommands) names.emplace_back(command.name);
  throw lopt::UsageError(fmt::format("There is no command '{}'{}\n\n{}", words[0],
                                     lopt::DidYouMean(words[0], names), Usage()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run({argv + 1, argv + argc});
  } catch (const lopt::UsageError& error) {
    fmt::print(stderr, "lopt: {}\n", error.what());
    return lopt::kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lopt: {}\n", error.what());
    return lopt::kExitError;
  }
}
