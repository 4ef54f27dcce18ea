#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/check/check_request.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/typed_config.h"

namespace lopt {
namespace {

namespace po = boost::program_options;

constexpr const char* kCheckSynopsis = "lopt check [CONFIG.json] [OPTIONS]";

po::options_description CheckCommandOptions() {
  const auto typed = [] {
    return po::value<std::vector<std::string>>()->value_name("CONFIG.json|TYPE|JSON")->composing();
  };
  po::options_description options("Options");
  auto add = options.add_options();
  add("preset", po::value<std::string>()->value_name("NAME"),
      "A built-in config instead of CONFIG.json.");
  add("task", typed(),
      "A task family: a file with its config, a type, with its defaults, or a config. May be "
      "repeated, as the others.");
  add("optimizer", typed(), "A learned optimizer, which also trains the tasks.");
  add("schedule", typed(), "A truncation schedule.");
  add("estimator", typed(), "A gradient estimator, whose config names its task.");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the tasks' data files.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels. Default: the config's, else the best.");
  add("list", "Say what is checked, and where it is promised.");
  return options;
}

// Throws UsageError if the word for a config file is the name of a type, and no file.
void RequireNoType(const std::string& word) {
  if (Exists(word)) return;
  const std::pair<const char*, const TypeTable*> kinds[] = {
      {"task", &TaskRegistry().table()},
      {"optimizer", &OptimizerRegistry().table()},
      {"schedule", &ScheduleRegistry().table()},
      {"estimator", &EstimatorRegistry().table()}};
  for (const auto& [option, table] : kinds) {
    for (const TypeEntry& entry : table->entries()) {
      if (entry.type == word) {
        throw UsageError(
            fmt::format("{} is a type and no file: lopt check --{} {}", word, option, word));
      }
    }
  }
}

CheckRequest ReadRequest(const po::variables_map& values) {
  CheckRequest request;
  request.data_dir = TextOption(values, "data-dir").value_or("");
  request.isa = TextOption(values, "isa").value_or("");
  const auto config = TextOption(values, "config");
  const auto preset = TextOption(values, "preset");
  if (config && preset) throw UsageError("Give a config file or --preset, not both");
  if (config) {
    RequireNoType(*config);
    AddMetaTraining(Config::Load(*config), &request);
  }
  if (preset) AddMetaTraining(MetaTrainPresets().Find(*preset), &request);
  const auto read = [&](const char* option, const TypeTable& table, std::vector<Config>* configs) {
    if (!values.contains(option)) return;
    for (const std::string& text : values[option].as<std::vector<std::string>>()) {
      configs->push_back(ReadTypedConfig(fmt::format("--{}", option), text, table));
    }
  };
  read("task", TaskRegistry().table(), &request.tasks);
  read("optimizer", OptimizerRegistry().table(), &request.optimizers);
  read("schedule", ScheduleRegistry().table(), &request.schedules);
  read("estimator", EstimatorRegistry().table(), &request.estimators);
  if (request.tasks.empty() && request.optimizers.empty() && request.schedules.empty() &&
      request.estimators.empty()) {
    throw UsageError(
        fmt::format("What to check is missing: a config file, --preset, --task, --optimizer, "
                    "--schedule or --estimator; usage: {}",
                    kCheckSynopsis));
  }
  return request;
}

}  // namespace

int CheckCommand(const std::vector<std::string>& arguments) {
  const auto values = ParseCommandLine(
      arguments, CheckCommandOptions(), "config", 1, kCheckSynopsis,
      "Checks that types keep what the library promises of them: gradients against\n"
      "differences, randomness from keys alone, the same bits on any number of threads,\n"
      "pairs that share their draws, saving and restoring, sizes, memory. CONFIG.json is a\n"
      "meta-training config: its optimizer and every task, schedule and estimator. Exit\n"
      "code 1 where one fails.\n\n"
      "Examples:\n  lopt check --preset tutorial\n"
      "  lopt check --task '{\"type\": \"ImageMLP\", \"hidden\": [8]}'\n"
      "  lopt check --optimizer MLPLOpt --task QuadraticTask\n");
  if (!values) return kExitDone;
  if (values->contains("list")) {
    PrintOut("{}", ListOfChecks());
    return kExitDone;
  }
  OutcomeCounts total;
  const double start = checks::SecondsNow();
  RunRequest(ReadRequest(*values), [&](const CheckedThing& thing) {
    PrintOut("{}", OutcomeTable(thing));
    std::fflush(stdout);
    total += Count(thing.outcomes);
  });
  PrintOut("{} checks passed, {} failed, {} left out, on {} in {:.1f} s\n", total.passed,
           total.failed, total.left_out, CurrentIsa(), checks::SecondsNow() - start);
  return total.failed == 0 ? kExitDone : kExitError;
}

}  // namespace lopt
