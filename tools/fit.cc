#include "lopt/tools/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/base/wrapped.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/fit/fit_defaults.h"
#include "lopt/tools/fit_progress.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/shell.h"
#include "lopt/tools/stop_signal.h"
#include "lopt/tools/trained_theta.h"
#include "lopt/tools/typed_config.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kFitSynopsis = "lopt fit TASK [OPTIONS]";
constexpr const char* kFitExamples =
    "TASK is a task's config, a file with one, or a type, with its defaults: lopt describe has\n"
    "them. A quarter of the minutes is for fitting. In the rest AdamW, Muon and a random\n"
    "search are tuned for as long each, to compare with.\n"
    "\nExamples:\n"
    "  lopt fit task.json --minutes 10\n"
    "  lopt fit '{\"type\": \"ImageMLP\", \"hidden\": [64]}' --steps 300 --out runs/digits\n"
    "  lopt fit --resume --out runs/digits\n";

po::options_description FitOptionWords() {
  const FitRequest defaults;
  po::options_description options("Options");
  auto add = options.add_options();
  add("minutes", po::value<double>()->value_name("MINUTES"),
      fmt::format("Time for everything, the comparison too. Default: {}, or no limit if --updates "
                  "and --trials are given.",
                  kDefaultFitMinutes)
          .c_str());
  add("steps", po::value<int64_t>()->value_name("N"),
      fmt::format("Steps of a training. Default: {}.", defaults.steps).c_str());
  add("start", po::value<std::string>()->value_name("FILE"),
      fmt::format("The optimizer to begin with, a LearnedScheduler: {}. Default: {}.", kThetaNames,
                  defaults.start)
          .c_str());
  add("updates", po::value<int64_t>()->value_name("N"),
      "Updates of meta-training, whatever time they take; 0: none.");
  add("trials", po::value<int64_t>()->value_name("N"),
      "Trainings that tune each rival, whatever time they take; fitting makes as many, but "
      "at least 25 if it tries five kinds, before its updates. With --updates the result does not "
      "depend on the clock.");
  add("seeds", po::value<int64_t>()->value_name("N"),
      fmt::format("Trainings of each optimizer in the comparison. Default: {}.", defaults.seeds)
          .c_str());
  add("seed", po::value<int64_t>()->value_name("N"),
      fmt::format("Seed of all randomness. Default: {}.", defaults.seed).c_str());
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the task's data files.");
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory for the result. Default: runs/fit.");
  add("resume", "Go on with the fit in the output directory, with its task and options.");
  add("overwrite", "Replace the fit that is in the output directory.");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels. Default: the best.");
  return options;
}

// What a fit is begun with.
struct FitSource {
  FitRequest request;
  ThetaFile start;
};

FitSource ReadFitSource(const po::variables_map& values) {
  const auto task = TextOption(values, "task");
  if (!task) throw UsageError(fmt::format("There is no TASK; wanted {}", kFitSynopsis));
  FitSource source;
  FitRequest& request = source.request;
  request.task = ReadTypedConfig("TASK", *task, TaskRegistry().table());
  const auto number = [&](const char* name) { return values[name].as<int64_t>(); };
  if (values.contains("steps")) request.steps = number("steps");
  if (values.contains("seeds")) request.seeds = number("seeds");
  if (values.contains("seed")) request.seed = number("seed");
  if (values.contains("updates")) request.updates = number("updates");
  if (values.contains("trials")) request.trials = number("trials");
  if (values.contains("minutes")) request.minutes = values["minutes"].as<double>();
  SetFitMinutes(&request);
  request.data_dir = TextOption(values, "data-dir").value_or("");
  const std::string start = TextOption(values, "start").value_or(request.start);
  const std::string path = ThetaPath(start);
  request.start = path == start ? "start" : start;
  source.start = ReadThetaFile(path);
  return source;
}

// With --resume all but the directory is known.
void RequireNothingElse(const po::variables_map& values) {
  for (const char* option : {"task", "minutes", "steps", "start", "updates", "trials", "seeds",
                             "seed", "data-dir", "overwrite"}) {
    if (values.contains(option)) {
      throw UsageError(
          fmt::format("--resume goes on with what the fit began with; without {}",
                      option == std::string("task") ? "TASK" : fmt::format("--{}", option)));
    }
  }
}

void PrintFit(const FitResult& result, const std::string& out) {
  const FitRecord& record = result.record;
  PrintOut("\nFitting took {}, with {} of meta-training. After {} steps, {}:\n\n",
           FormatDuration(record.FittingSeconds()), Counted(record.measured->updates, "update"),
           record.request.steps, Counted(record.request.seeds, "seed"));
  const int terminal = TerminalColumns(stdout);
  const size_t columns = terminal > 0 ? static_cast<size_t>(terminal) : kTerminalColumns;
  const std::string table = FitTable(result.judged, columns);
  PrintOut("{}\n{}\n", table, Wrapped("", record.verdict, std::min(columns, kTerminalColumns)));
  PrintOut("The weights are in {}/theta.safetensors\n", out);
}

}  // namespace

int FitCommand(const std::vector<std::string>& arguments) {
  const auto values =
      ParseCommandLine(arguments, FitOptionWords(), "task", 1, kFitSynopsis, kFitExamples);
  if (!values) return kExitDone;
  if (const auto isa = TextOption(*values, "isa")) PinIsa(*isa);
  const bool resume = values->contains("resume");
  FitSource source;
  if (resume) {
    RequireNothingElse(*values);
  } else {
    source = ReadFitSource(*values);
  }
  FitReporter reporter(stdout, RewritableColumns(stdout));
  const FitOptions options{
      .out_dir = TextOption(*values, "out").value_or("runs/fit"),
      .threads = ThreadsOption(*values),
      .existing = resume                          ? ExistingFit::kResume
                  : values->contains("overwrite") ? ExistingFit::kReplace
                                                  : ExistingFit::kRefuse,
      .version = VersionAndCommit(GetBuildInfo()),
      .stop = StopOnSignals("the running steps"),
      .on_progress = [&](const FitProgress& progress) { reporter.Step(progress); }};
  const FitResult result = RunFit(source.request, source.start, options);
  reporter.Finish();
  if (result.kept_other) {
    PrintOut("Stopped before it replaced the fit in {}.\n", options.out_dir);
    return kExitInterrupted;
  }
  if (result.interrupted) {
    PrintOut("Stopped. The best weights so far are in {}/theta.safetensors. To go on:\n",
             options.out_dir);
    PrintOut("  lopt fit --resume --out {}{}{}\n", ShellQuoted(options.out_dir),
             WordsAgain(*values, {"isa", "threads"}), PluginWords(*values));
    return kExitInterrupted;
  }
  PrintFit(result, options.out_dir);
  return kExitDone;
}

}  // namespace lopt
