#include <fmt/format.h>

#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/parameter_server/parameter_model.h"
#include "lopt/learner/parameter_server/parameter_server.h"
#include "lopt/learner/parameter_server/parameter_serving.h"
#include "lopt/learner/parameter_server/take_messages.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/learner/transport/mpi_launch.h"
#include "lopt/learner/transport/mpi_transport.h"

namespace lopt {
namespace {

using ParameterWork = std::function<void(ParameterClient&)>;

constexpr int kExitFailed = 1;

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

void SayFarewell(Transport* transport) {
  transport->BeginFarewell();
  TakeMessagesUntil(
      transport, [](const Message&) {}, [&] { return transport->FarewellDone(); });
}

int RunUnderMpi(const ParameterServerOptions& options, const ParameterJobOptions& job,
                const ParameterWork& work) {
  const std::unique_ptr<Transport> transport = MakeMpiTransport();
  try {
    CheckLauncher(transport->size(), MpiLibrary());
    Require(transport->size() > options.servers,
            "parameter server: {} servers and their workers want more than {} ranks",
            options.servers, transport->size());
    if (transport->rank() < options.servers) {
      CheckServerFile(job, ServerPath(options, job, transport->rank()));
    }
    RunRank(options, job, transport.get(), work);
    SayFarewell(transport.get());
  } catch (const std::exception& error) {
    Environment::Current().Say(fmt::format("rank {}: {}", transport->rank(), error.what()));
    transport->Abort(kExitFailed);
  }
  return transport->Exit(0);
}

}  // namespace

int RunParameterJob(const ParameterServerOptions& options, const ParameterJobOptions& job,
                    const std::function<void(ParameterClient&)>& work) {
  ParameterModel checked(options);
  if (!job.in_one_process && StartedByMpi()) return RunUnderMpi(options, job, work);
  Require(job.workers >= 1, "parameter server: wanted at least 1 worker, got {}", job.workers);
  Require(options.grads_to_wait <= job.workers,
          "parameter server: grads_to_wait must be at most the number of workers, {}, got {}",
          job.workers, options.grads_to_wait);
  if (!job.in_one_process) CheckLauncher(1, "");
  for (int server = 0; server < options.servers; ++server) {
    CheckServerFile(job, ServerPath(options, job, server));
  }
  RunInThreads(options, job, work);
  return 0;
}

}  // namespace lopt
