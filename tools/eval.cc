#include <fmt/core.h>
#include <fmt/ranges.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/arrays.h"
#include "base/eigen.h"
#include "base/isa.h"
#include "base/parallel.h"
#include "base/safetensors.h"
#include "evaluation/evaluate.h"
#include "evaluation/evaluation_directory.h"
#include "evaluation/presets.h"
#include "evaluation/replay.h"
#include "evaluation/summary.h"
#include "evaluation/tables.h"
#include "lopt/registry.h"
#include "lopt/theta_file.h"
#include "tasks/registry.h"
#include "tools/build_info.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/cores.h"
#include "tools/progress.h"
#include "tools/shell.h"
#include "tools/stop_signal.h"

namespace lopt {

namespace po = boost::program_options;
namespace fs = std::filesystem;

namespace {

constexpr const char* kSynopsis = "lopt eval [--theta FILE]... [OPTIONS]";
constexpr const char* kDefaultPreset = "image-mlp";

std::string Examples() {
  std::string text = "Presets:\n";
  for (const EvaluationPreset& preset : EvaluationPresets()) {
    text += fmt::format("  {:<15} {}\n", preset.name, preset.summary);
  }
  std::vector<std::string> names;
  for (const Baseline& baseline : Baselines()) names.push_back(baseline.name);
  return text + fmt::format("\nBaselines: {}\n", fmt::join(names, ", ")) +
         "\nExamples:\n"
         "  lopt eval --theta runs/tutorial/theta.safetensors\n"
         "  lopt eval --theta new=a.safetensors --theta old=b.safetensors --baselines Adam \\\n"
         "    --preset generalization --data-dir mnist --out runs/eval\n"
         "  lopt eval --tasks my_tasks.json --baselines all --steps 300,3000\n";
}

po::options_description Options() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("theta", po::value<std::vector<std::string>>()->value_name("[NAME=]FILE")->composing(),
      "Weights of a learned optimizer. May be repeated. Its name in the results is NAME, or the "
      "file's without .safetensors, or, for a theta.safetensors, its directory's.");
  add("learned-optimizer", po::value<std::string>()->value_name("JSON"),
      "Type and options of the optimizers, for files that do not say: '{\"type\": \"MLPLOpt\"}'.");
  add("tasks", po::value<std::string>()->value_name("CONFIG.json"),
      "What to train; lopt describe has the keys.");
  add("preset", po::value<std::string>()->value_name("NAME"),
      fmt::format("A built-in config instead. Default: {}.", kDefaultPreset).c_str());
  add("baselines", po::value<std::string>()->value_name("NAMES"),
      "all, none, or names with commas between them. Default: all.");
  add("steps", po::value<std::string>()->value_name("N,..."),
      "Inner steps to judge after, for all tasks; the last is how long is trained (steps).");
  add("seeds", po::value<int64_t>()->value_name("N"), "Trainings of each (seeds).");
  add("trials", po::value<int64_t>()->value_name("N"),
      "Learning rates that each baseline is tried with on each task (trials).");
  add("seed", po::value<int64_t>()->value_name("N"), "Seed of all randomness (seed).");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory with IDX image files (data_dir).");
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory for the results. Default: runs/eval- and the preset's or the config file's name.");
  add("overwrite", "Replace the evaluation that is in the output directory.");
  add("replay", po::value<std::string>()->value_name("FILE"),
      "Train exactly what the file says: its initial params and its data rows, once, on the only "
      "task; with --theta or the theta in the file, without baselines. Writes replay.safetensors.");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels. Default: the best.");
  return options;
}

// What to train, and the name that the output directory gets by default.
struct Source {
  EvaluationConfig config;
  std::string name;
};

Source ReadSource(const po::variables_map& values) {
  const auto preset = TextOption(values, "preset");
  Source source;
  if (const auto path = TextOption(values, "tasks")) {
    if (preset) throw UsageError("Give --tasks or --preset, not both");
    source = {ReadEvaluationConfig(Config::Load(*path)), fs::path(*path).stem().string()};
  } else {
    source.name = preset.value_or(kDefaultPreset);
    source.config = PresetEvaluation(source.name);
  }
  Config config = WriteEvaluationConfig(source.config);
  if (const auto steps = TextOption(values, "steps"))
    config = config.With("steps", "[" + *steps + "]");
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

// An optimizer and where it came from.
struct Contender {
  LearnedContender learned;
  ContenderInfo info;
};

Contender ReadContender(const std::string& argument, const std::optional<Config>& optimizer) {
  const size_t equals = argument.find('=');
  const bool named = equals != std::string::npos && !fs::exists(argument);
  const std::string path = named ? argument.substr(equals + 1) : argument;
  std::string name = fs::path(path).stem().string();
  if (name == "theta") name = fs::absolute(path).parent_path().filename().string();
  if (named) name = argument.substr(0, equals);
  const ThetaFile file = ReadThetaFile(path, optimizer);
  return {.learned = {.name = name,
                      .optimizer = OptimizerRegistry().Make(file.learned_optimizer),
                      .theta = file.theta},
          .info = {.name = name, .theta = path, .learned_optimizer = file.learned_optimizer}};
}

std::vector<Contender> ReadContenders(const po::variables_map& values,
                                      const std::string& theta_by_default) {
  std::optional<Config> optimizer;
  if (const auto json = TextOption(values, "learned-optimizer")) {
    optimizer = Config::Parse(*json, "--learned-optimizer");
  }
  std::vector<std::string> paths;
  if (values.contains("theta")) paths = values["theta"].as<std::vector<std::string>>();
  if (paths.empty() && !theta_by_default.empty()) paths = {theta_by_default};
  std::vector<Contender> contenders;
  for (const std::string& path : paths) contenders.push_back(ReadContender(path, optimizer));
  return contenders;
}

int RunTheReplay(const po::variables_map& values, const Source& source,
                 const std::string& out_dir) {
  const std::string path = *TextOption(values, "replay");
  if (source.config.tasks.size() != 1) {
    throw UsageError(fmt::format("--replay trains one task; '{}' has {}", source.name,
                                 source.config.tasks.size()));
  }
  for (const char* option : {"baselines", "seeds", "trials", "steps", "seed", "threads"}) {
    if (values.contains(option)) {
      throw UsageError(fmt::format("--{} has no meaning with --replay", option));
    }
  }
  const std::vector<Contender> contenders = ReadContenders(values, path);
  if (contenders.size() != 1) {
    throw UsageError(fmt::format("--replay takes one --theta, got {}", contenders.size()));
  }
  const EvaluationTask& named = source.config.tasks[0];
  const LearnedContender& learned = contenders[0].learned;
  const auto task = TaskRegistry().Make(named.task, TaskResources(source.config.data_dir));
  const Layout& layout = task->params_layout();
  const Replay replay = ReadReplay(path, layout);
  EvaluationDirectory directory(out_dir, values.contains("overwrite"));
  Workspace scratch;
  const TrainingCurve curve =
      RunReplay(replay, *task, *learned.optimizer->Bind(layout, AsSpan(learned.theta)), scratch);

  ArrayFile file;
  file.arrays.Set("loss", Array::Of<float>({replay.steps}, curve.train_loss));
  file.arrays.Merge("param_end/", ArraysFromRow(layout, curve.params));
  file.metadata = {{"replay", path}, {"theta", *contenders[0].info.theta}};
  WriteArrayFile(out_dir + "/replay.safetensors", file);
  fmt::print("Trained {} steps with {} as {} says: the last loss is {:.6g}\n", replay.steps,
             learned.name, path, curve.train_loss.back());
  if (replay.loss) {
    fmt::print("  losses differ from its own by at most {:.3g} (1 + |loss|)\n",
               LargestDifference(curve.train_loss, *replay.loss));
  }
  if (replay.param_end) {
    fmt::print("  params at the end differ by at most {:.3g} (1 + |param|)\n",
               LargestDifference(curve.params, *replay.param_end));
  }
  fmt::print("The losses and params are in {}/replay.safetensors\n", out_dir);
  return kExitDone;
}

// The command line that repeats this evaluation.
std::string CommandLine(const std::vector<std::string>& arguments) {
  std::string text = "lopt eval";
  for (const std::string& argument : arguments) text += " " + ShellQuoted(argument);
  return text;
}

int RunTheEvaluation(const std::vector<std::string>& arguments, const po::variables_map& values,
                     const Source& source, int threads, const std::string& out_dir) {
  const EvaluationConfig& config = source.config;
  std::vector<Contender> contenders = ReadContenders(values, "");
  Contenders judged;
  judged.baselines = BaselinesNamed(TextOption(values, "baselines").value_or("all"));
  const BuildInfo build = GetBuildInfo();
  EvaluationManifest manifest{.status = "running",
                              .command = CommandLine(arguments),
                              .version = VersionAndCommit(build),
                              .isa = std::string(CurrentIsa()),
                              .threads = threads};
  for (const Baseline& baseline : judged.baselines) {
    manifest.optimizers.push_back({.name = baseline.name});
  }
  for (Contender& contender : contenders) {
    manifest.optimizers.push_back(contender.info);
    judged.learned.push_back(std::move(contender.learned));
  }

  Evaluation evaluation(config, std::move(judged));
  EvaluationDirectory directory(out_dir, values.contains("overwrite"));
  directory.Begin(config);
  directory.WriteManifest(manifest);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  fmt::print("Evaluating {} optimizers on {} tasks, {} seeds, {} on {} threads, to {}\n",
             manifest.optimizers.size(), config.tasks.size(), config.seeds, CurrentIsa(), threads,
             out_dir);
  EvaluateOptions options;
  options.on_stage = [&](const std::string& task, const std::string& stage) {
    fmt::print("{:>5}  {}: {}\n", FormatDuration(seconds()), task, stage);
    std::fflush(stdout);
  };
  options.on_task = [&](const std::vector<RunResult>& results) { directory.AddResults(results); };
  options.stop = StopOnSignals(true);
  EvaluationOutcome outcome;
  try {
    ThreadPool(threads).Run([&] { outcome = evaluation.Run(options); });
  } catch (const std::exception& error) {
    manifest.status = "failed";
    manifest.error = error.what();
    directory.WriteManifest(manifest);
    throw;
  }
  manifest.status = outcome.interrupted ? "interrupted" : "finished";
  manifest.seconds = seconds();
  directory.WriteManifest(manifest);
  if (!outcome.results.empty()) {
    const Summary summary = Summarize(outcome.results);
    directory.WriteTables(summary);
    fmt::print("\n{}\n", MarkdownTable(summary));
  }
  fmt::print("The results are in {} ({})\n", out_dir, FormatDuration(manifest.seconds));
  return outcome.interrupted ? kExitInterrupted : kExitDone;
}

}  // namespace

int EvalCommand(const std::vector<std::string>& arguments) {
  const auto values = ParseCommandLine(arguments, Options(), "", 0, kSynopsis, Examples());
  if (!values) return kExitDone;
  if (const auto isa = TextOption(*values, "isa")) PinIsa(*isa);
  const int threads =
      values->contains("threads") ? (*values)["threads"].as<int>() : AvailableCores();
  const Source source = ReadSource(*values);
  const std::string out_dir = TextOption(*values, "out").value_or("runs/eval-" + source.name);
  return values->contains("replay")
             ? RunTheReplay(*values, source, out_dir)
             : RunTheEvaluation(arguments, *values, source, threads, out_dir);
}

}  // namespace lopt
