#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"
#include "lopt/evaluation/evaluation_directory.h"
#include "lopt/evaluation/evaluation_run.h"
#include "lopt/evaluation/narrow_table.h"
#include "lopt/evaluation/presets.h"
#include "lopt/evaluation/replay.h"
#include "lopt/evaluation/tables.h"
#include "lopt/learner/starts.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/colour.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/eval_progress.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/shell.h"
#include "lopt/tools/stop_signal.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace po = boost::program_options;
namespace fs = std::filesystem;

namespace {

constexpr const char* kEvalSynopsis = "lopt eval [--theta FILE]... [OPTIONS]";
constexpr const char* kDefaultPreset = "image-mlp";

std::string EvalExamples() {
  std::vector<std::string> names;
  for (const Baseline& baseline : Baselines()) names.push_back(baseline.name);
  return "Presets:\n" + EvaluationPresets().List(15) +
         fmt::format("\nBaselines: {}\n", fmt::join(names, ", ")) +
         "\nExamples:\n"
         "  lopt eval --theta recommended --theta runs/tutorial/theta.safetensors\n"
         "  lopt eval --theta new=a.safetensors --theta old=b.safetensors \\\n"
         "    --preset generalization --baselines Adam --data-dir mnist --out runs/eval\n"
         "  lopt eval --tasks my_tasks.json --skip slow --steps 300,3000\n"
         "  lopt eval --resume --out runs/eval\n";
}

po::options_description EvalOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("theta", po::value<std::vector<std::string>>()->value_name("[NAME=]FILE")->composing(),
      fmt::format("Weights of a learned optimizer: {}. May be repeated. Its name in the results is "
                  "NAME, or the file's without .safetensors, or, for a theta.safetensors, its "
                  "directory's.",
                  kThetaNames)
          .c_str());
  add("learned-optimizer", po::value<std::string>()->value_name("JSON"),
      "Type and options of the optimizers, for files that do not say: '{\"type\": \"MLPLOpt\"}'.");
  add(kDespiteFailedCheck, kDespiteFailedCheckText);
  add("tasks", po::value<std::string>()->value_name("CONFIG.json"),
      "What to train; lopt describe has the keys.");
  add("preset", po::value<std::string>()->value_name("NAME"),
      fmt::format("A built-in config instead. Default: {}.", kDefaultPreset).c_str());
  add("skip", po::value<std::vector<std::string>>()->value_name("TASK")->composing(),
      "Leave this task out. May be repeated.");
  add("baselines", po::value<std::string>()->value_name("NAMES"),
      "all, classic, strong, untuned, and names, with commas between them, or none. Default: all. "
      "All but the untuned ones are tuned for each task.");
  add("tune-learned",
      "Judge every learned optimizer a second time, as NAME-tuned, with a factor of its steps that "
      "is tuned for each task in as many trials as a baseline has.");
  add("start",
      "Also judge every learned optimizer with weights before meta-training, as NAME-start and, "
      "with its steps times 0.3, NAME-start-0.3; not those whose file does not say how it was "
      "made.");
  add("unknown-length",
      "Also judge every learned optimizer without telling it the length of the training, as "
      "NAME-unknown: by the average of its last steps.");
  add("steps", po::value<std::string>()->value_name("N,..."),
      "Judge after these numbers of inner steps, on every task; training ends with the last "
      "(steps).");
  add("seeds", po::value<int64_t>()->value_name("N"), "Trainings of each (seeds).");
  add("trials", po::value<int64_t>()->value_name("N"),
      "Trials of each baseline on each task: learning rates, or values of all that is tuned "
      "(trials).");
  add("seed", po::value<int64_t>()->value_name("N"), "Seed of all randomness (seed).");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the tasks' data files (data_dir).");
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory for the results. Default: runs/eval- and the preset's or the config file's name.");
  add("resume",
      "Go on with the evaluation in the output directory after its last finished task, with its "
      "config, weights and baselines; those given here must be the same.");
  add("overwrite", "Replace the evaluation that is in the output directory.");
  add("replay", po::value<std::string>()->value_name("FILE"),
      "Train exactly what the file says: its initial params and its data rows, once, on the only "
      "task; with --theta or the theta in the file, without baselines. Writes replay.safetensors.");
  add("verbose",
      "Also print more figures of tuned and untuned optimizers, those of each task, and notes; "
      "table.md always has them.");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels. Default: the best.");
  add("allow-isa-change",
      "Resume an evaluation of another instruction set; results may differ in last bits.");
  return options;
}

// What to do, where, and what is there already.
struct EvalSource {
  EvaluationConfig config;
  std::string out_dir;
  std::optional<StoredEvaluation> stored = {};  // of the evaluation to resume
};

// Tasks that need the torch module where it is missing: a preset's are left out, with a line each;
// one that the user's own config names is an Error.
void LeaveOutTorchTasks(bool of_preset, EvaluationConfig* config) {
  const std::vector<EvaluationTask> tasks = config->tasks;
  for (const EvaluationTask& task : tasks) {
    const std::string why = MissingTorchModule(task.task);
    if (why.empty()) continue;
    Require(of_preset, "Task '{0}': {1}. To leave the task out: --skip {0}", task.name, why);
    SkipTask(task.name, config);
    PrintOut("skipped: {}: {}\n", task.name, why);
  }
}

EvalSource ReadEvalSource(const po::variables_map& values) {
  const auto preset = TextOption(values, "preset");
  const auto tasks = TextOption(values, "tasks");
  if (tasks && preset) throw UsageError("Give --tasks or --preset, not both");
  const std::string name =
      tasks ? fs::path(*tasks).stem().string() : preset.value_or(kDefaultPreset);
  EvalSource source{.config = {},
                    .out_dir = TextOption(values, "out").value_or("runs/eval-" + name)};
  if (tasks) RequireConfigElsewhere(*tasks, source.out_dir, "evaluation");
  if (values.contains("resume")) source.stored = ReadStoredEvaluation(source.out_dir);
  if (tasks) {
    source.config = ReadEvaluationConfig(Config::Load(*tasks));
  } else if (source.stored && !preset) {
    source.config = source.stored->config;
  } else {
    source.config = ReadEvaluationConfig(EvaluationPresets().Find(name));
  }
  if (values.contains("skip")) {
    for (const auto& task : values["skip"].as<std::vector<std::string>>()) {
      SkipTask(task, &source.config);
    }
  }
  if (tasks || preset || !source.stored) LeaveOutTorchTasks(!tasks, &source.config);
  Config config = WriteEvaluationConfig(source.config);
  if (const auto steps = TextOption(values, "steps")) {
    config = config.With("steps", fmt::format("[{}]", *steps));
  }
  for (const char* key : {"seeds", "trials", "seed"}) {
    if (values.contains(key)) config = config.With(key, std::to_string(values[key].as<int64_t>()));
  }
  source.config = ReadEvaluationConfig(config);
  if (values.contains("steps")) {
    for (EvaluationTask& task : source.config.tasks) task.steps.clear();
  }
  if (const auto directory = TextOption(values, "data-dir")) source.config.data_dir = *directory;
  return source;
}

NamedLearnedOptimizer ReadLearned(const std::string& argument,
                                  const std::optional<Config>& optimizer,
                                  FailedCheck failed_check) {
  const size_t equals = argument.find('=');
  const bool named = equals != std::string::npos && !Exists(argument);
  const std::string path = ThetaPath(named ? argument.substr(equals + 1) : argument);
  const std::string name = named ? argument.substr(0, equals) : ThetaName(path);
  return NamedLearnedOptimizerOf(Utf8Text(name), ReadThetaFile(path, optimizer, failed_check),
                                 Utf8Text(path));
}

// Those of --theta; `path_by_default` without it, or none where that is empty.
std::vector<NamedLearnedOptimizer> ReadAllLearned(const po::variables_map& values,
                                                  const std::string& path_by_default) {
  std::optional<Config> optimizer;
  if (const auto json = TextOption(values, "learned-optimizer")) {
    optimizer = Config::Parse(*json, "--learned-optimizer");
  }
  std::vector<std::string> paths;
  if (values.contains("theta")) paths = values["theta"].as<std::vector<std::string>>();
  if (paths.empty() && !path_by_default.empty()) paths = {path_by_default};
  std::vector<NamedLearnedOptimizer> learned;
  for (const std::string& path : paths) {
    learned.push_back(ReadLearned(path, optimizer, FailedCheckOf(values)));
  }
  return learned;
}

// RunReplay of the replay in a file.
TrainingCurve TrainingOf(const std::string& path, const Replay& replay, const TaskFamily& task,
                         const UpdateRule& rule) {
  Workspace scratch;
  try {
    return RunReplay(replay, task, rule, scratch);
  } catch (const Error& error) {
    Fail("{}: cannot be replayed: {}", path, error.what());
  }
}

int RunTheReplay(const po::variables_map& values, const EvalSource& source) {
  const std::string path = *TextOption(values, "replay");
  for (const char* option :
       {"baselines", "tune-learned", "start", "unknown-length", "seeds", "trials", "steps", "seed",
        "threads", "resume", "allow-isa-change", "verbose"}) {
    if (values.contains(option)) {
      throw UsageError(fmt::format("--{} has no meaning with --replay", option));
    }
  }
  if (source.config.tasks.size() != 1) {
    throw UsageError(fmt::format("--replay trains one task; '{}' has {}", source.config.name,
                                 source.config.tasks.size()));
  }
  const std::vector<NamedLearnedOptimizer> all = ReadAllLearned(values, path);
  if (all.size() != 1) {
    throw UsageError(fmt::format("--replay takes one --theta, got {}", all.size()));
  }
  const EvaluationTask& named = source.config.tasks[0];
  const NamedLearnedOptimizer& learned = all[0];
  const auto task = TaskRegistry().Make(named.task, TaskResources(source.config.data_dir));
  const Layout& layout = task->params_layout();
  const Replay replay = ReadReplay(path, layout);
  WarnBeyondHorizon(learned, {{named.name, replay.steps}});
  std::optional<EvaluationDirectory> directory;
  const auto open = [&](ExistingEvaluation existing) {
    directory.emplace(source.out_dir, existing, EvaluationUse::kReplay);
  };
  const bool replaces = values.contains("overwrite");
  if (!replaces) open(ExistingEvaluation::kRefuse);
  const TrainingCurve curve =
      TrainingOf(path, replay, *task, *learned.optimizer->Bind(layout, AsSpan(learned.theta)));
  if (replaces) open(ExistingEvaluation::kReplace);  // what is there stays if the replay fails

  ArrayFile file;
  file.arrays.Set("loss", Array::Of<float>({replay.steps}, curve.train_loss));
  file.arrays.Merge("param_end/", ArraysFromRow(layout, curve.params));
  file.metadata = {{"replay", Utf8Text(path)}, {"theta", learned.source}};
  directory->WriteReplay(file);
  PrintOut("Trained {} steps with {} as {} says: the last loss is {:.6g}\n", replay.steps,
           learned.name, path, curve.train_loss.back());
  if (replay.loss) {
    PrintOut("  losses differ from its own by at most {:.3g} (1 + |loss|)\n",
             LargestDifference(curve.train_loss, *replay.loss));
  }
  if (replay.param_end) {
    PrintOut("  params at the end differ by at most {:.3g} (1 + |param|)\n",
             LargestDifference(curve.params, *replay.param_end));
  }
  PrintOut("The losses and params are in {}/replay.safetensors\n", source.out_dir);
  return kExitDone;
}

// The command line that repeats this evaluation.
std::string CommandLine(const std::vector<std::string>& arguments) {
  std::string text = "lopt eval";
  for (const std::string& argument : arguments) text += fmt::format(" {}", ShellQuoted(argument));
  return text;
}

EvaluatedOptimizers ReadOptimizers(const po::variables_map& values, const EvalSource& source) {
  EvaluatedOptimizers optimizers;
  if (source.stored) optimizers = source.stored->optimizers;
  if (values.contains("theta")) optimizers.learned = ReadAllLearned(values, "");
  // A directory has its own already.
  const auto any = [&](bool NamedLearnedOptimizer::*what) {
    return std::ranges::any_of(optimizers.learned, what);
  };
  if (values.contains("start") && !any(&NamedLearnedOptimizer::is_start)) AddStarts(&optimizers);
  if (values.contains("unknown-length") && !any(&NamedLearnedOptimizer::unknown_length)) {
    AddUnknownLengths(&optimizers);
  }
  if (values.contains("tune-learned") && !any(&NamedLearnedOptimizer::tuned)) {
    AddTunedSteps(&optimizers);
  }
  const auto baselines = TextOption(values, "baselines");
  if (baselines || !source.stored) optimizers.baselines = BaselinesNamed(baselines.value_or("all"));
  return optimizers;
}

ExistingEvaluation WhatToDoWithExisting(const po::variables_map& values) {
  if (values.contains("resume") && values.contains("overwrite")) {
    throw UsageError("Give --resume or --overwrite, not both");
  }
  return values.contains("resume")      ? ExistingEvaluation::kKeep
         : values.contains("overwrite") ? ExistingEvaluation::kReplace
                                        : ExistingEvaluation::kRefuse;
}

// The tables in the width of the terminal, learned optimizers in bold where it has colours, and
// the verdict.
void PrintTable(const Summary& summary) {
  const int terminal = TerminalColumns(stdout);
  const int columns = terminal > 0 ? terminal : static_cast<int>(kTerminalColumns);
  std::istringstream lines(NarrowTable(summary, columns));
  for (std::string line; std::getline(lines, line);) {
    PrintOut("{}\n", line.starts_with("> ") ? Bold(line, stdout) : line);
  }
  PrintOut("\n{}", Wrapped("", VerdictSentence(summary),
                           std::min(static_cast<size_t>(columns), kTerminalColumns)));
}

int RunTheEvaluation(const std::vector<std::string>& arguments, const po::variables_map& values,
                     const EvalSource& source) {
  const EvaluatedOptimizers optimizers = ReadOptimizers(values, source);
  EvaluationReporter reporter(stdout, RewritableColumns(stdout));
  EvaluationRunOptions options{
      .out_dir = source.out_dir,
      .threads = ThreadsOption(values),
      .existing = WhatToDoWithExisting(values),
      .allow_isa_change = values.contains("allow-isa-change"),
      .command = CommandLine(arguments),
      .version = VersionAndCommit(GetBuildInfo()),
      .on_progress = [&](const EvaluationProgress& progress) { reporter.Step(progress); },
      .stop = StopOnSignals("the running steps")};
  const size_t judged = optimizers.baselines.size() + optimizers.learned.size();
  const std::string begun = fmt::format("Evaluating {} on {}, {}, {} on {}, to {}",
                                        Counted(static_cast<int64_t>(judged), "optimizer"),
                                        Counted(std::ssize(source.config.tasks), "task"),
                                        Counted(source.config.seeds, "seed"), CurrentIsa(),
                                        Counted(options.threads, "thread"), source.out_dir);
  PrintOut("{}\n", FitTerminal(stdout, begun));
  std::fflush(stdout);
  const EvaluationRunResult result = RunEvaluation(source.config, optimizers, options);
  reporter.Finish();
  if (result.tasks_before == result.tasks) {
    PrintOut("All tasks ({}) were finished already; the tables are written anew\n", result.tasks);
  } else if (result.tasks_before > 0) {
    PrintOut("{} of {} tasks were finished already\n", result.tasks_before, result.tasks);
  }
  if (result.tasks_ended > 0) {
    PrintOut("\n");
    if (values.contains("verbose")) PrintOut("{}\n", NarrowTables(result.summary));
    PrintTable(result.summary);
    PrintOut("\nAll figures: {}/table.md ({})\n", source.out_dir, FormatDuration(result.seconds));
  }
  if (result.tasks_ended < result.tasks) {
    PrintOut("Stopped after {} of {} tasks. To go on:\n", result.tasks_ended, result.tasks);
    PrintOut("  lopt eval --resume --out {}{}{}\n", ShellQuoted(source.out_dir),
             WordsAgain(values, {"isa", "threads", "verbose"}), PluginWords(values));
    return kExitInterrupted;
  }
  return kExitDone;
}

// Options of which one at least says what is to be judged or trained.
constexpr const char* kEvalSubjects[] = {"theta",     "tasks",        "preset",
                                         "baselines", "resume",       "replay",
                                         "start",     "tune-learned", "unknown-length"};

// What is missing, and what would be done with it and the other options, in few lines.
std::string WithoutSubject(const po::variables_map& values) {
  const EvaluationConfig config = ReadEvalSource(values).config;
  const EvaluatedOptimizers optimizers{.baselines = BaselinesNamed("all")};
  const int64_t tuned = std::ssize(TunedOf(optimizers));
  int64_t steps = 0;
  for (const EvaluationTask& task : config.tasks) {
    for (const int64_t number : task.steps.empty() ? config.steps : task.steps) steps += number;
  }
  const auto inner_steps = [&](int64_t trainings) {
    return FormatCount(static_cast<double>(trainings * steps));
  };
  const int64_t judged = std::ssize(optimizers.baselines) + 1;
  const bool as_it_is = values.empty();  // then its summary holds, which says how long it takes
  const auto preset = std::ranges::find(EvaluationPresets().all(), kDefaultPreset, &Preset::name);
  return fmt::format(
      "Nothing was run: give --theta, --baselines, --preset or --tasks.\n\n"
      "With --theta recommended lopt eval would train the preset {}, {}:\n"
      "{}"
      "  to tune {}: {} steps x {} trials x {}, {} inner steps\n"
      "  to judge {}: {} steps x {}, {} inner steps\n"
      "The time left is shown from the first trainings on. Without a learned optimizer:\n"
      "  lopt eval --preset {}",
      kDefaultPreset, Counted(std::ssize(config.tasks), "task"),
      as_it_is ? fmt::format("  {}\n", preset->summary) : "", Counted(tuned, "baseline"), steps,
      config.trials, Counted(config.tuning_seeds, "seed"),
      inner_steps(tuned * config.trials * config.tuning_seeds), Counted(judged, "optimizer"), steps,
      Counted(config.seeds, "seed"), inner_steps(judged * config.seeds), kDefaultPreset);
}

}  // namespace

int EvalCommand(const std::vector<std::string>& arguments) {
  const auto values =
      ParseCommandLine(arguments, EvalOptions(), "", 0, kEvalSynopsis, EvalExamples());
  if (!values) return kExitDone;
  if (std::ranges::none_of(kEvalSubjects,
                           [&](const char* name) { return values->contains(name); })) {
    throw UsageError(WithoutSubject(*values));
  }
  if (!values->contains("theta") && !values->contains("replay")) {
    for (const char* option : {"learned-optimizer", kDespiteFailedCheck}) {
      if (values->contains(option)) {
        throw UsageError(fmt::format("--{} is about theta files; it wants --theta", option));
      }
    }
  }
  if (const auto isa = TextOption(*values, "isa")) PinIsa(*isa);
  const EvalSource source = ReadEvalSource(*values);
  return values->contains("replay") ? RunTheReplay(*values, source)
                                    : RunTheEvaluation(arguments, *values, source);
}

}  // namespace lopt
