#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/base/utf8.h"
#include "lopt/learner/train/train_config.h"
#include "lopt/learner/train/trainer.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/job_command.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/shell.h"
#include "lopt/tools/stop_signal.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kTrainSynopsis = "lopt train [CONFIG.json] [OPTIONS]";
constexpr const char* kTrainExamples =
    "The keys of the config are in lopt describe, under Trainings.\n"
    "\nExamples:\n"
    "  lopt train config.json --out runs/model\n"
    "  lopt train config.json --theta recommended --steps 2000\n"
    "  lopt train config.json --init-model model.safetensors --out runs/tuned\n"
    "  lopt train --resume --out runs/model\n"
    "  mpiexec -n 4 lopt train config.json --set workers=4\n";

po::options_description TrainingOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("set", po::value<std::vector<std::string>>()->value_name("KEY=VALUE")->composing(),
      "Replace one value of the config, e.g. optimizer.learning_rate=0.01. May be repeated.");
  add("theta", po::value<std::string>()->value_name("FILE"),
      fmt::format("Train with this learned optimizer (optimizer): {}.", kThetaNames).c_str());
  add("init-model", po::value<std::string>()->value_name("FILE"),
      "Model file to start from, with a fresh state of the optimizer (init_model).");
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory for the run. Default: runs/ and the config file's name.");
  add("steps", po::value<int64_t>()->value_name("N"), "Updates of the params in total (steps).");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use; ranks on one host share them.");
  add("seed", po::value<int64_t>()->value_name("N"), "Seed of all randomness (seed).");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the task's data files (data_dir).");
  add("resume", "Go on from the newest checkpoint in the output directory.");
  add("overwrite", "Remove the run that is in the output directory.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels (isa). Default: the best.");
  add("allow-isa-change",
      "Resume a run of another instruction set, or let ranks differ in it; results may differ in "
      "last bits.");
  return options;
}

std::string TrainingLine(const TrainProgress& progress) {
  const auto made = static_cast<double>(progress.step - progress.first_step);
  const double rate = made / std::max(progress.seconds, 1e-9);
  return fmt::format("{}/{}  loss {:.5g}  {} steps/s  {} left", progress.step, progress.steps,
                     progress.loss, FormatRate(rate),
                     FormatDuration(static_cast<double>(progress.steps - progress.step) / rate));
}

// For Config::With: a text also where it reads as JSON, "5". With refuses what is no UTF-8.
std::string TextAsJson(const std::string& text) {
  return IsUtf8(text) ? nlohmann::json(text).dump() : text;
}

// The training as this rank of the job. Returns the exit code.
int TrainModel(const po::variables_map& values, Transport* transport) {
  if (values.contains("resume") && values.contains("overwrite")) {
    throw UsageError("Give --resume or --overwrite, not both");
  }
  const RunSource source = ReadRunSource(values, RunKind::kTraining, kTrainSynopsis, nullptr);
  Config written = source.config;
  if (const auto theta = TextOption(values, "theta")) {
    written = written.With("optimizer", R"({"type": "Theta"})")
                  .With("optimizer.file", TextAsJson(ThetaPath(*theta)));
  }
  auto config = ReadOptions<TrainConfig>(WithSettings(values, written, "steps"));
  if (const auto model = TextOption(values, "init-model")) config.init_model = *model;
  if (const auto directory = TextOption(values, "data-dir")) config.data_dir = *directory;
  if (const auto isa = TextOption(values, "isa")) config.isa = *isa;
  if (!config.isa.empty()) PinIsa(config.isa);  // its errors come before the first line

  const bool speaks = transport->rank() == 0;
  TrainOptions options{.out_dir = OutDirectory(values, source.name),
                       .threads = ThreadsOf(values, *transport),
                       .resume = values.contains("resume"),
                       .overwrite = values.contains("overwrite"),
                       .allow_isa_change = values.contains("allow-isa-change"),
                       .version = VersionAndCommit(GetBuildInfo()),
                       .stop = StopOnSignals(speaks ? "this update" : ""),
                       .transport = transport};
  if (!speaks) return RunTraining(config, options).interrupted ? kExitInterrupted : kExitDone;

  ProgressLine line(stdout, RewritableColumns(stdout));
  TrainProgress last;
  int64_t shown = last.step;
  const auto show = [&] {
    line.Print(TrainingLine(last), last.seconds);
    shown = last.step;
  };
  options.on_step = [&](const TrainProgress& step) {
    last = step;
    if (line.IsDue(step.seconds)) show();
  };
  const std::string begun = fmt::format(
      "Training {} with {}: {}, {} on {}{}, {}, to {}", config.task.Type(), config.optimizer.Type(),
      Counted(config.steps, "step"), Counted(config.workers, "worker"),
      transport->size() > 1 ? fmt::format("{} ranks x ", transport->size()) : "",
      Counted(options.threads, "thread"), config.isa.empty() ? CurrentIsa() : config.isa,
      options.out_dir);
  PrintOut("{}\n", FitTerminal(stdout, begun));
  std::fflush(stdout);
  const TrainResult result = RunTraining(config, options);
  if (last.step != shown) show();
  line.End();
  PrintOut("{} in {} ({} steps/s)\n", Counted(result.updates, "update"),
           FormatDuration(result.seconds),
           FormatRate(static_cast<double>(result.updates) / std::max(result.seconds, 1e-9)));
  if (result.updates > 0) PrintOut("  loss of the last batch: {:.6g}\n", result.loss);
  for (const auto& [name, value] : result.judged) PrintOut("  {}: {:.6g}\n", name, value);
  if (result.interrupted) {
    PrintOut("Stopped after update {} of {}; the state is saved. To go on:\n", result.state.step,
             config.steps);
    PrintOut("  {}lopt train --resume --out {}{}{}\n", MpiexecWords(*transport),
             ShellQuoted(options.out_dir), WordsAgain(values, {"threads", "allow-isa-change"}),
             PluginWords(values));
    return kExitInterrupted;
  }
  PrintOut("The model is in {}\n", result.model_path);
  if (result.classes > 0) {
    PrintOut("What it predicts: lopt predict {}{}\n", ShellQuoted(options.out_dir),
             PluginWords(values));
  }
  return kExitDone;
}

}  // namespace

int TrainCommand(const std::vector<std::string>& arguments) {
  const auto parse = [&] {
    return ParseCommandLine(arguments, TrainingOptions(), "config", 1, kTrainSynopsis,
                            kTrainExamples);
  };
  return RunAsRank(parse, TrainModel);
}

}  // namespace lopt
