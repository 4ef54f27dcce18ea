#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/elastic/network.h"
#include "lopt/learner/parameter_server/parameter_model.h"
#include "lopt/learner/parameter_server/parameter_server.h"
#include "lopt/learner/parameter_server/parameter_server_transport.h"
#include "lopt/learner/parameter_server/parameter_serving.h"
#include "lopt/learner/parameter_server/parameter_worker_transport.h"
#include "lopt/learner/transport/job.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/learner/transport/mpi_launch.h"
#include "lopt/learner/transport/take_messages.h"

namespace lopt {
namespace {

using ParameterWork = std::function<void(ParameterClient&)>;

// The file of a server; empty if the job has no directory.
std::string ServerPath(const ParameterServerOptions& options, const ParameterJobOptions& job,
                       int server) {
  if (job.directory.empty()) return "";
  return job.directory + "/" + ServerFileName(server, options.servers);
}

void CheckServerFile(const ParameterJobOptions& job, const std::string& path) {
  Require(!path.empty() || !job.resume, "parameter server: resume needs a directory");
  if (path.empty()) return;
  const bool there = Exists(path);
  Require(there || !job.resume, "parameter server: cannot resume: there is no {}", path);
  Require(!there || job.resume,
          "parameter server: {} is there already; resume, or choose another directory", path);
  MakeDirectories(job.directory);
}

void Serve(const ParameterServerOptions& options, const ParameterJobOptions& job,
           Transport* transport) {
  ServeParameters(options, transport, ServerPath(options, job, transport->rank()), job.resume);
}

// What one rank does. Workers leave, however their work ends.
void RunRank(const ParameterServerOptions& options, const ParameterJobOptions& job,
             Transport* transport, const ParameterWork& work) {
  if (transport->rank() < options.servers) {
    Serve(options, job, transport);
    return;
  }
  ParameterClient client(options, transport);
  try {
    work(client);
  } catch (...) {
    client.Leave();
    throw;
  }
  client.Leave();
}

void RunInThreads(const ParameterServerOptions& options, const ParameterJobOptions& job,
                  const ParameterWork& work) {
  const auto transports = MakeLocalTransports(static_cast<int>(options.servers) + job.workers);
  std::vector<std::exception_ptr> errors(transports.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < transports.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        RunRank(options, job, transports[rank].get(), work);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

NetworkSecrets SecretsOf(const NetworkFiles& files, const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    const std::string missing = MissingOf(files, ParseNetAddress(address));
    Require(missing.empty(), "parameter server: {}", missing);
  }
  return ReadSecrets(files);
}

// Of a process that is one server or one worker.
std::unique_ptr<Transport> TransportOver(const ParameterNetwork& network,
                                         const ParameterServerOptions& options, int workers) {
  const NetworkSecrets secrets = SecretsOf(
      network.files, network.server ? std::vector<std::string>{network.listen} : network.servers);
  const ParameterLinkOptions link{.workers = workers,
                                  .token = secrets.token,
                                  .timeout_seconds = network.timeout_seconds,
                                  .wait_seconds = network.wait_seconds};
  if (network.server) {
    auto connections = ListenGrpc(ParseNetAddress(network.listen), secrets.tls);
    const std::string description = connections->Description();
    auto transport = std::make_unique<ParameterServerTransport>(options, *network.server, link,
                                                                std::move(connections));
    if (network.on_listening) {
      network.on_listening(description.substr(description.rfind(' ') + 1));
    }
    return transport;
  }
  ParameterWorkerTransport::Servers servers;
  for (const std::string& address : network.servers) {
    servers.emplace_back(
        address, [at = ParseNetAddress(address), tls = secrets.tls] { return JoinGrpc(at, tls); });
  }
  return std::make_unique<ParameterWorkerTransport>(options, *network.worker, link, servers);
}

// What a process has said last gets there, however its work ends.
void RunOverNetwork(const ParameterServerOptions& options, const ParameterJobOptions& job,
                    const ParameterWork& work) {
  const ParameterNetwork& network = *job.network;
  Require(network.server.has_value() != network.worker.has_value(),
          "parameter server: a process on the network is one server or one worker, got {}",
          network.server ? "both" : "neither");
  if (network.server) {
    CheckServerNumber(*network.server, options.servers);
    CheckServerFile(job, ServerPath(options, job, *network.server));
  }
  const std::unique_ptr<Transport> transport = TransportOver(network, options, job.workers);
  try {
    RunRank(options, job, transport.get(), work);
  } catch (...) {
    SayFarewell(transport.get());
    throw;
  }
  SayFarewell(transport.get());
}

int RunAsRank(const ParameterServerOptions& options, const ParameterJobOptions& job,
              Transport* transport, const ParameterWork& work) {
  Require(transport->size() > options.servers,
          "parameter server: {} servers and their workers want more than {} ranks", options.servers,
          transport->size());
  if (transport->rank() < options.servers) {
    CheckServerFile(job, ServerPath(options, job, transport->rank()));
  }
  RunRank(options, job, transport, work);
  return 0;
}

}  // namespace

int RunParameterJob(const ParameterServerOptions& options, const ParameterJobOptions& job,
                    const std::function<void(ParameterClient&)>& work) {
  ParameterModel checked(options);
  Require(!job.in_one_process || !job.network,
          "parameter server: a job runs in one process or on a network, not both");
  if (!job.in_one_process && !job.network && StartedByMpi()) {
    return RunJob([&](Transport* rank) { return RunAsRank(options, job, rank, work); });
  }
  Require(job.workers >= 1, "parameter server: wanted at least 1 worker, got {}", job.workers);
  checked.CheckWorkers(job.workers);
  if (job.network) {
    RunOverNetwork(options, job, work);
    return 0;
  }
  if (!job.in_one_process) CheckLauncher(1, "");
  for (int server = 0; server < options.servers; ++server) {
    CheckServerFile(job, ServerPath(options, job, server));
  }
  RunInThreads(options, job, work);
  return 0;
}

}  // namespace lopt
