#include "lopt/tools/worker.h"

#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <memory>
#include <string>
#include <vector>

#include "lopt/learner/elastic/worker_process.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/gpu_list.h"
#include "lopt/tools/stop_signal.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kWorkerSynopsis = "lopt worker --join HOST:PORT [OPTIONS]";
constexpr const char* kWorkerExamples =
    "Examples:\n"
    "  lopt meta-train --preset tutorial --set workers=8 --listen 127.0.0.1:4711\n"
    "  lopt worker --join 127.0.0.1:4711 --threads 1\n";

po::options_description WorkerOptions() {
  po::options_description options("Options");
  auto add = options.add_options();
  add("join", po::value<std::string>()->value_name("HOST:PORT"),
      "Where the learner listens (lopt meta-train --listen).");
  add("threads", po::value<int>()->value_name("N"),
      "Default: one for each core that the process may use. Workers are shared out by them.");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "Directory of the tasks' data files here. Default: the learner's.");
  add("device", po::value<std::string>()->value_name("NAME"),
      "What runs the windows here. Default: as the learner's config says.");
  add("devices", po::value<std::string>()->value_name("LIST"),
      "With the device cuda: numbers of GPUs, of which the first is taken.");
  add("patience", po::value<double>()->value_name("SECONDS")->default_value(60, "60"),
      "How long to look for a learner, at first and when one has gone.");
  AddNetworkOptions(&options);
  return options;
}

}  // namespace

int RunWorker(const po::variables_map& values, const NetworkOptions& network, int threads,
              bool one_job, double patience_seconds, int place_on_host) {
  ElasticWorkerOptions options{.threads = threads,
                               .version = VersionAndCommit(GetBuildInfo()),
                               .data_dir = TextOption(values, "data-dir"),
                               .device = TextOption(values, "device"),
                               .place_on_host = place_on_host,
                               .stop = StopOnSignals(one_job ? "" : "this window"),
                               .token = network.secrets.token,
                               .one_job = one_job,
                               .patience_seconds = patience_seconds};
  if (const auto gpus = TextOption(values, "devices")) options.gpus = GpusOf(*gpus);
  const auto connect = [&] { return JoinGrpc(network.address, network.secrets.tls); };
  return RunElasticWorker(options, connect) == ElasticWorkerEnd::kFinished ? kExitDone
                                                                           : kExitInterrupted;
}

int WorkerCommand(const std::vector<std::string>& arguments) {
  const auto values =
      ParseCommandLine(arguments, WorkerOptions(), "", 0, kWorkerSynopsis, kWorkerExamples);
  if (!values) return kExitDone;
  const auto address = TextOption(*values, "join");
  if (!address) {
    throw UsageError(fmt::format("--join says where the learner is; usage: {}", kWorkerSynopsis));
  }
  const auto patience = (*values)["patience"].as<double>();
  if (!(patience >= 0)) {
    throw UsageError(fmt::format("--patience must be at least 0 seconds, got {}", patience));
  }
  const int threads = ThreadsOption(*values);
  return RunWorker(*values, ReadNetworkOptions(*values, *address), threads, false, patience);
}

}  // namespace lopt
