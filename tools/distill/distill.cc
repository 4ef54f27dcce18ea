#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/option_words.h"
#include "lopt/base/options.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/parallel.h"
#include "lopt/base/print.h"
#include "lopt/base/record.h"
#include "lopt/base/run_lock.h"
#include "lopt/base/utf8.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/presets.h"
#include "lopt/lopt/rules/learned_scheduler.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/distill/distilled.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace {

namespace po = boost::program_options;

constexpr const char* kDistillSynopsis = "lopt distill THETA [OPTIONS]";
constexpr const char* kDistillPreset = "generalization";
constexpr int64_t kDistillSeeds = 3;
constexpr const char* kDistillRecord = "/formula.json";
constexpr const char* kDistillTheta = "/formula.safetensors";
constexpr const char* kDistillPage = "/steps.html";

std::string DistillExamples() {
  return fmt::format("THETA is {}, whose type is LearnedScheduler.\n\n", kThetaNames) +
         "The tasks are trained with THETA, and the step size of every kind of tensor is fitted by "
         "a formula: five numbers that see no gradient. Then they are trained with the formula in "
         "place of the network, and both test losses are printed. DIR gets formula.json, "
         "formula.safetensors, which runs the formula wherever a theta file is taken, and "
         "steps.html with the curves.\n"
         "\nPresets:\n" +
         EvaluationPresets().List(15) +
         "\nExamples:\n"
         "  lopt distill recommended\n"
         "  lopt distill runs/mine/theta.safetensors --task base --seeds 10\n";
}

po::options_description DistillOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("preset", po::value<std::string>()->value_name("NAME"),
      fmt::format("Tasks of a preset of lopt eval. Default: {}.", kDistillPreset).c_str());
  add("tasks", po::value<std::string>()->value_name("CONFIG.json"),
      "The tasks of a config of lopt eval instead.");
  add("task", po::value<std::vector<std::string>>()->value_name("TASK")->composing(),
      "Only this task of them. May be repeated.");
  add("seeds", po::value<int64_t>()->value_name("N"),
      fmt::format("Trainings of each task. Default: {}.", kDistillSeeds).c_str());
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the tasks' data files (data_dir).");
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory for the results. Default: runs/distill- and the file's name, or its directory's "
      "where that is theta.");
  add("overwrite", "Replace the formula that is in the output directory.");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels. Default: the best.");
  add(kDespiteFailedCheck, kDespiteFailedCheckText);
  return options;
}

void KeepTasks(const std::vector<std::string>& wanted, EvaluationConfig* config) {
  std::vector<std::string> names;
  for (const EvaluationTask& task : config->tasks) names.push_back(task.name);
  for (const std::string& task : wanted) {
    Require(std::ranges::find(names, task) != names.end(),
            "There is no task '{}' in '{}'; its tasks are {}{}", task, config->name,
            fmt::join(names, ", "), DidYouMean(task, names));
  }
  std::erase_if(config->tasks, [&](const EvaluationTask& task) {
    return std::ranges::find(wanted, task.name) == wanted.end();
  });
}

EvaluationConfig ReadTasks(const po::variables_map& values) {
  const auto preset = TextOption(values, "preset");
  const auto tasks = TextOption(values, "tasks");
  if (tasks && preset) throw UsageError("Give --tasks or --preset, not both");
  EvaluationConfig config = ReadEvaluationConfig(
      tasks ? Config::Load(*tasks) : EvaluationPresets().Find(preset.value_or(kDistillPreset)));
  if (values.contains("task")) KeepTasks(values["task"].as<std::vector<std::string>>(), &config);
  // One training of each task, to its last number of steps.
  for (EvaluationTask& task : config.tasks) {
    task.steps = {(task.steps.empty() ? config.steps : task.steps).back()};
  }
  config.seeds = values.contains("seeds") ? values["seeds"].as<int64_t>() : kDistillSeeds;
  if (const auto directory = TextOption(values, "data-dir")) config.data_dir = *directory;
  CheckEvaluationConfig(config);
  return config;
}

ThetaFile ReadScheduler(const std::string& path, FailedCheck failed_check) {
  ThetaFile file = ReadThetaFile(path, {}, failed_check);
  const std::string type = file.learned_optimizer.Type();
  Require(type == "LearnedScheduler",
          "{}: lopt distill wants a learned optimizer of type LearnedScheduler, whose network says "
          "how large steps are, as recommended and fast are; this one is of type {}",
          path, type);
  return file;
}

// Throws Error where the directory holds an earlier formula that is not to be replaced, or a file
// of another kind that has the name of one of these.
void CheckReplaced(const std::string& out, bool overwrite) {
  const std::string record = out + kDistillRecord;
  const bool has_formula = HoldsRecord(record, "lopt distill");
  for (const char* file : {kDistillRecord, kDistillTheta, kDistillPage}) {
    Require(has_formula || !Exists(out + file),
            "{} holds no formula of lopt distill, but something called {}, which would be "
            "replaced: choose another directory ({})",
            out, file + 1, OptionWords("out"));
  }
  Require(overwrite || !has_formula,
          "{} holds a formula already: replace it ({}) or choose another directory ({})", out,
          FlagWords("overwrite"), OptionWords("out"));
}

}  // namespace

int DistillCommand(const std::vector<std::string>& arguments) {
  const auto values = ParseCommandLine(arguments, DistillOptions(), "theta", 1, kDistillSynopsis,
                                       DistillExamples());
  if (!values) return kExitDone;
  const auto theta = TextOption(*values, "theta");
  if (!theta) {
    throw UsageError(fmt::format("The theta file is missing; usage: {}", kDistillSynopsis));
  }
  if (const auto isa = TextOption(*values, "isa")) PinIsa(*isa);
  const std::string path = ThetaPath(*theta);
  const ThetaFile file = ReadScheduler(path, FailedCheckOf(*values));
  const EvaluationConfig config = ReadTasks(*values);
  const std::string out = TextOption(*values, "out").value_or("runs/distill-" + ThetaName(path));
  const int threads = ThreadsOption(*values);
  MakeOutputDirectory(out);
  const RunLock lock(out, "distill");
  CheckReplaced(out, values->contains("overwrite"));
  const RateSchedule schedule =
      ReadOptions<LearnedSchedulerOptions>(file.learned_optimizer).schedule;

  PrintOut("Distilling {} on {}, {}, {}, to {}\n\n", path,
           Counted(std::ssize(config.tasks), "task"), Counted(config.seeds, "seed"), CurrentIsa(),
           out);
  std::fflush(stdout);
  Distilled distilled{.theta = Utf8Text(path), .seeds = config.seeds};
  ThetaFile formula;
  std::vector<SchedulerRecord> records;
  ThreadPool(threads).Run([&] {
    records = RecordTrainings(file, config);
    FittedFormula fitted = FitStepFormula(records, schedule);
    formula = WithFormula(file, fitted.formula);
    distilled.formula = fitted.formula;
    distilled.not_fitted = std::move(fitted.not_fitted);
    distilled.log_error = fitted.log_error;
    distilled.tasks = CompareFormula(file, formula, config);
    SumUp(&distilled);
    // All files at the end: whoever stops it before keeps those of an earlier call together.
    lock.RequireNotSilent();
    // First the one that says what the others are.
    WriteRecordFile(out + kDistillRecord, distilled);
    WriteThetaFile(out + kDistillTheta, formula);
  });
  WriteTextFile(out + kDistillPage,
                DistilledPage(distilled, records, schedule, VersionAndCommit(GetBuildInfo())));
  PrintOut("{}", DistilledText(distilled, records, schedule));
  PrintOut("\nCurves: {}{}\n", out, kDistillPage);
  return kExitDone;
}

}  // namespace lopt
