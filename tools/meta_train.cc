#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/cores.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/learner/elastic/elastic_transport.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/learner/transport/mpi_launch.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/gpu_list.h"
#include "lopt/tools/job_command.h"
#include "lopt/tools/network_options.h"
#include "lopt/tools/progress.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/rendezvous.h"
#include "lopt/tools/shell.h"
#include "lopt/tools/stop_signal.h"
#include "lopt/tools/trained_theta.h"
#include "lopt/tools/worker.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

// How long a process looks for the one that is rank 0, and that for the others.
constexpr double kRendezvousSeconds = 300;

constexpr const char* kMetaTrainSynopsis = "lopt meta-train [CONFIG.json] [OPTIONS]";

std::string MetaTrainExamples() {
  return "Presets:\n" + MetaTrainPresets().List(12) +
         "\nExamples:\n"
         "  lopt meta-train --preset tutorial --data-dir mnist --out runs/first\n"
         "  lopt meta-train config.json --set estimators.0.std=0.02 --steps 1000\n"
         "  lopt meta-train --resume --out runs/first --steps 2000\n"
         "  mpiexec -n 4 lopt meta-train --preset tutorial --set workers=4\n"
         "  lopt meta-train --preset tutorial --set workers=4 --listen 127.0.0.1:4711\n"
         "  torchrun --nproc_per_node=3 --no_python \\\n"
         "    lopt meta-train --preset tutorial --init-method env://\n";
}

po::options_description ExperimentOptions() {
  po::options_description options;
  auto add = options.add_options();
  add("preset", po::value<std::string>()->value_name("NAME"),
      "Use a built-in config instead of CONFIG.json.");
  add("set", po::value<std::vector<std::string>>()->value_name("KEY=VALUE")->composing(),
      "Replace one value of the config, e.g. estimators.0.std=0.02. May be repeated.");
  add("steps", po::value<int64_t>()->value_name("N"),
      "Updates of theta in total, those before a resume included (meta_steps).");
  add("seed", po::value<int64_t>()->value_name("N"), "Seed of all randomness (seed).");
  add("init-theta", po::value<std::string>()->value_name("FILE"),
      fmt::format("Theta to start from, with a fresh theta_opt (init_theta): {}.", kThetaNames)
          .c_str());
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the tasks' data files (data_dir).");
  return options;
}

po::options_description DirectoryOptions() {
  po::options_description options;
  auto add = options.add_options();
  add("out", po::value<std::string>()->value_name("DIR"),
      "Directory for the run. Default: runs/ and the preset's or the config file's name.");
  add("resume", "Go on from the newest checkpoint in the output directory.");
  add("from", po::value<int64_t>()->value_name("STEP"),
      "With --resume: go on from the checkpoint of this many updates, and remove what came after.");
  add("overwrite", "Remove the run that is in the output directory.");
  return options;
}

po::options_description MachineOptions() {
  po::options_description options;
  auto add = options.add_options();
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use; ranks on one host share them.");
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set of the kernels (isa). Default: the best.");
  add("device", po::value<std::string>()->value_name("NAME"),
      "What runs the windows: cpu, cuda (each rank takes a GPU of its host), cuda:<n> or emulated "
      "(device). Default: cpu.");
  add("devices", po::value<std::string>()->value_name("LIST"),
      "With the device cuda: numbers of the GPUs that the ranks of a host take in turn, e.g. 0,2. "
      "Default: all.");
  add("allow-isa-change",
      "Resume a run of another instruction set or device, or let ranks differ in them; results may "
      "differ in last bits.");
  return options;
}

po::options_description ProcessOptions() {
  po::options_description options;
  auto add = options.add_options();
  add("learner-only", "Under mpiexec: rank 0 updates theta only, the other ranks compute.");
  add("listen", po::value<std::string>()->value_name("HOST:PORT"),
      "Compute nothing here but wait for `lopt worker` processes, which may come and go. Turns "
      "on gather_checkpoints.");
  add("init-method", po::value<std::string>()->value_name("URL"),
      "For a launcher that sets RANK and WORLD_SIZE, such as torchrun: rank 0 listens at "
      "tcp://HOST:PORT, or with env:// at MASTER_ADDR and MASTER_PORT; the others join it.");
  add("wait-for", po::value<int64_t>()->value_name("N"),
      "With --listen: begin when N workers are there. Default: 0, at once.");
  AddNetworkOptions(&options);
  return options;
}

std::vector<OptionGroup> MetaTrainOptions() {
  return {{"What is meta-trained", ExperimentOptions()},
          {"The run and its directory", DirectoryOptions()},
          {"The machine", MachineOptions()},
          {"Many processes", ProcessOptions()},
          {"Other options", {}}};
}

// What stands before a number of the whole run, where this call made only its last updates.
std::string InAll(const MetaTrainResult& result) {
  return result.updates < result.learner.outer_step ? "in all " : "";
}

void PrintSummary(const MetaTrainResult& result) {
  PrintOut("{} in {} ({} updates/s)\n", Counted(result.updates, "update"),
           FormatDuration(result.seconds),
           FormatRate(static_cast<double>(result.updates) / std::max(result.seconds, 1e-9)));
  for (size_t e = 0; e < result.estimator_names.size(); ++e) {
    const StepCounts& total = result.totals[e];
    PrintOut("  {}: {}{} inner steps, {} episodes{}\n", result.estimator_names[e], InAll(result),
             FormatCount(static_cast<double>(total.inner_steps)),
             FormatCount(static_cast<double>(total.episodes_ended)),
             total.non_finite == 0 ? "" : fmt::format(", {} losses not finite", total.non_finite));
  }
  if (result.learner.skipped_updates > 0) {
    PrintOut("  {}{} updates were skipped: their gradient was not finite\n", InAll(result),
             result.learner.skipped_updates);
  }
}

// What became of the inner steps, where not all of them were used.
void PrintLedger(const MetaTrainResult& result) {
  const Ledger& ledger = result.ledger;
  const auto line = [](const std::string& name, const StepShares& shares) {
    std::vector<std::string> counts;
    for (const auto& [outcome, word] : kOutcomes) {
      counts.push_back(
          fmt::format("{} {}", FormatCount(static_cast<double>(shares[outcome])), word));
    }
    PrintOut("    {}: {}\n", name, fmt::join(counts, ", "));
  };
  const StepShares total = ledger.Total();
  if (total[Outcome::kUsed] == total.Total()) return;
  PrintOut("  of {}{} inner steps started:\n", InAll(result),
           FormatCount(static_cast<double>(total.Total())));
  line("all", total);
  for (int64_t e = 0; e < ledger.estimators(); ++e) {
    line(result.estimator_names[static_cast<size_t>(e)], ledger.OfEstimator(e));
  }
  for (int64_t w = 0; ledger.workers() > 1 && w < ledger.workers(); ++w) {
    const StepShares shares = ledger.OfWorker(w);
    if (shares[Outcome::kUsed] != shares.Total()) line(fmt::format("worker {}", w), shares);
  }
  if (ledger.UnknownWindows() > 0) {
    PrintOut("    and {} windows that were lost and not run again\n", ledger.UnknownWindows());
  }
}

// Where the workers of a job come to that compute elsewhere.
struct Listening {
  std::string address;
  int64_t wait_for = 0;       // so many are to be there at the beginning
  double wait_seconds = 0;    // how long it waits for them; 0: for ever
  bool workers_stop = false;  // one that is told to stop stops the job
};

std::unique_ptr<ElasticTransport> ListenForWorkers(const NetworkOptions& network,
                                                   const Listening& listening,
                                                   const MetaTrainConfig& config,
                                                   const MetaTrainerOptions& options) {
  CheckConfig(config);
  return std::make_unique<ElasticTransport>(config, options,
                                            ElasticOptions{.token = network.secrets.token,
                                                           .wait_for = listening.wait_for,
                                                           .wait_seconds = listening.wait_seconds,
                                                           .workers_stop = listening.workers_stop,
                                                           .stop = options.stop},
                                            ListenGrpc(network.address, network.secrets.tls));
}

// Says how a run goes on that has stopped; all else that its config says is in its directory. The
// processes of a launcher are told by it who they are.
void PrintGoOn(const po::variables_map& values, const Transport& transport,
               const std::string& out_dir, bool listens, int64_t updates, int64_t meta_steps) {
  PrintOut("Stopped after update {} of {}; the state is saved. To go on{}:\n", updates, meta_steps,
           listens && values.contains("init-method") ? ", with the same launcher" : "");
  std::string words = WordsAgain(values, {"threads", "devices", "allow-isa-change"});
  if (transport.size() > 1) words += WordsAgain(values, {"learner-only"});
  if (listens) {
    words += WordsAgain(values, {"listen", "init-method", "wait-for", "token-file", "tls-cert",
                                 "tls-key", "tls-ca", "insecure"});
  }
  PrintOut("  {}lopt meta-train --resume --out {}{}{}\n", MpiexecWords(transport),
           ShellQuoted(out_dir), words, PluginWords(values));
}

// Meta-training as this rank of the job, or as the learner of workers elsewhere. Returns the exit
// code.
int Train(const po::variables_map& values, Transport* transport,
          const std::optional<Listening>& listening) {
  if (values.contains("resume") && values.contains("overwrite")) {
    throw UsageError("Give --resume or --overwrite, not both");
  }
  if (values.contains("from") && !values.contains("resume")) {
    throw UsageError("--from says where to go on; it wants --resume");
  }
  const RunSource source =
      ReadRunSource(values, RunKind::kMetaTraining, kMetaTrainSynopsis, &MetaTrainPresets());
  auto config = ReadOptions<MetaTrainConfig>(WithSettings(values, source.config, "meta_steps"));
  if (const auto directory = TextOption(values, "data-dir")) config.data_dir = *directory;
  if (const auto isa = TextOption(values, "isa")) config.isa = *isa;
  if (const auto device = TextOption(values, "device")) config.device = *device;
  if (const auto theta = TextOption(values, "init-theta")) config.init_theta = ThetaPath(*theta);

  if (!config.isa.empty()) PinIsa(config.isa);  // its errors come before the first line

  config.gather_checkpoints = config.gather_checkpoints || listening;

  const bool speaks = transport->rank() == 0;
  const BuildInfo build = GetBuildInfo();
  MetaTrainerOptions options;
  options.out_dir = OutDirectory(values, source.name);
  options.threads = ThreadsOf(values, *transport);
  options.resume = values.contains("resume");
  if (values.contains("from")) options.from = values["from"].as<int64_t>();
  options.overwrite = values.contains("overwrite");
  options.allow_isa_change = values.contains("allow-isa-change");
  if (const auto gpus = TextOption(values, "devices")) options.gpus = GpusOf(*gpus);
  options.learner_only = values.contains("learner-only") || listening;
  options.version = VersionAndCommit(build);
  options.stop = StopOnSignals(speaks ? "this update" : "");
  std::unique_ptr<ElasticTransport> elastic;
  NetworkOptions network;
  if (listening) {
    network = ReadNetworkOptions(values, listening->address);
    elastic = ListenForWorkers(network, *listening, config, options);
    transport = elastic.get();
    options.on_experiment = [&elastic](const Experiment& made) { elastic->Know(made); };
  }
  options.transport = transport;
  if (!speaks) {
    return RunMetaTraining(config, options).interrupted ? kExitInterrupted : kExitDone;
  }

  ProgressReporter progress(stdout, RewritableColumns(stdout));
  options.on_step = [&](const MetaTrainProgress& step) { progress.Step(step); };
  const std::string who =
      listening
          ? fmt::format("workers that come ({})", transport->Description())
          : fmt::format("{}{}",
                        transport->size() > 1 ? fmt::format("{} ranks x ", transport->size()) : "",
                        Counted(options.threads, "thread"));
  const std::string begun = fmt::format(
      "Meta-training {}: {}, {} on {}{}, to {}", config.learned_optimizer.Type(),
      Counted(config.meta_steps, "update"), config.isa.empty() ? CurrentIsa() : config.isa, who,
      config.device == "cpu" ? "" : fmt::format(", windows on {}", config.device), options.out_dir);
  PrintOut("{}\n", FitTerminal(stdout, begun));
  if (!network.secrets.token.empty()) {
    PrintOut("Workers join with the token in {}\n", network.secrets.token_file);
  }
  std::fflush(stdout);
  MetaTrainResult result;
  try {
    result = RunMetaTraining(config, options);
  } catch (const StoppedAlone& stopped) {
    progress.Finish();
    PrintErr("lopt: {}\n", stopped.what());
    return kExitInterrupted;
  }
  progress.Finish();
  PrintSummary(result);
  PrintLedger(result);
  if (result.interrupted) {
    PrintGoOn(values, *transport, options.out_dir, listening.has_value(), result.learner.outer_step,
              config.meta_steps);
    return kExitInterrupted;
  }
  PrintOut("The weights are in {}\n", result.theta_path);
  if (config.eval_every > 0) {
    const std::string best = options.out_dir + "/theta_best.safetensors";
    if (Exists(best)) {
      PrintOut("The weights of the lowest held-out loss are in {}\n", best);
    } else {
      PrintOut(
          "There are no weights of the lowest held-out loss: theta was not judged, or no loss was "
          "a finite number\n");
    }
  }
  return kExitDone;
}

// Meta-training in a job of whatever kind.
int TrainAsRank(const po::variables_map& values, Transport* transport) {
  const auto listen = TextOption(values, "listen");
  const auto method = TextOption(values, "init-method");
  if (StartedByMpi() && (listen || method)) {
    throw UsageError("--listen and --init-method are for a job without MPI");
  }
  if (listen && method) throw UsageError("Give --listen or --init-method, not both");
  if (values.contains("wait-for") && !listen) {
    throw UsageError("--wait-for is about workers that come; it wants --listen");
  }
  std::optional<Listening> listening;
  if (listen) {
    listening = {.address = *listen};
    if (values.contains("wait-for")) listening->wait_for = values["wait-for"].as<int64_t>();
    if (listening->wait_for < 0) {
      throw UsageError(
          fmt::format("--wait-for must be at least 0 workers, got {}", listening->wait_for));
    }
  } else if (method) {
    const Rendezvous rendezvous = ReadRendezvous(*method);
    if (rendezvous.rank > 0) {
      const int threads = values.contains("threads")
                              ? ThreadsOption(values)
                              : std::max(1, AvailableCores() / rendezvous.processes_on_host);
      return RunWorker(values, ReadNetworkOptions(values, rendezvous.address), threads, true,
                       kRendezvousSeconds, rendezvous.place_on_host);
    }
    if (rendezvous.world_size > 1) {
      listening = {.address = rendezvous.address,
                   .wait_for = rendezvous.world_size - 1,
                   .wait_seconds = kRendezvousSeconds,
                   .workers_stop = true};
    }
  } else {
    for (const char* name : {"token-file", "tls-cert", "tls-key", "tls-ca", "insecure"}) {
      if (values.contains(name)) {
        throw UsageError(fmt::format(
            "--{} is about workers elsewhere; it wants --listen or --init-method", name));
      }
    }
  }
  return Train(values, transport, listening);
}

}  // namespace

int MetaTrainCommand(const std::vector<std::string>& arguments) {
  const auto parse = [&] {
    return ParseGroupedCommandLine(arguments, MetaTrainOptions(), "config", 1, kMetaTrainSynopsis,
                                   MetaTrainExamples());
  };
  return RunAsRank(parse, TrainAsRank);
}

}  // namespace lopt
