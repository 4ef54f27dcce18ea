#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/learner/elastic/network_files.h"

namespace lopt {

class Transport;

// What the numbers of a variable or of a vector begin as: mean + stddev z with standard normal z,
// drawn with a key that follows from the run's key, the name and the id alone.
struct InitialValues {
  float mean = 0;    // finite
  float stddev = 0;  // finite, at least 0; 0: all numbers are the mean
};

// A tensor of the model that every worker uses as a whole.
struct DenseVariable {
  std::string name = {};       // distinct among the variables
  Shape shape = {};            // [spatial..., in, out], for optimizers that see shapes
  InitialValues initial = {};  // its first values
};

// A table of vectors, of which a batch uses few. A vector exists from its first use on.
struct EmbeddingLayer {
  std::string name = {};                              // distinct among the layers
  int64_t width = 0;                                  // numbers of a vector, at least 1
  int64_t ids = std::numeric_limits<int64_t>::max();  // ids are in [0, ids)
  InitialValues initial = {0, 0.1F};                  // of each vector
};

// The parameters of a model, on which servers they are, and how they are stepped. Variables are on
// server FNV-1a(name) mod `servers` (64 bits), vectors on server id mod `servers`. If a step waits
// for gradients of all workers, bits depend neither on the number of servers nor on who comes
// first.
struct ParameterServerOptions {
  std::vector<DenseVariable> variables = {};  // at most 2^28 numbers on a server
  std::vector<EmbeddingLayer> layers = {};    // embedding tables
  // A type of OptimizerRegistry() that treats each tensor by itself; a vector of a table is a
  // tensor of one axis. A tensor's StepInfo::step counts its own updates.
  Config optimizer = {};
  Eigen::VectorXf theta = {};  // the optimizer's weights; empty: those that it begins with
  Key key = {};                // of the run
  int64_t servers = 1;         // S, at least 1
  int64_t grads_to_wait = 1;   // gradients that a step waits for and takes the mean of
  std::optional<int64_t> staleness = {};  // steps that gradients may be behind; none: any number
  int64_t num_steps = 0;  // of the run, for optimizers that need its length; 0: unknown

  // Shows the optimizer and the numbers.
  void Visit(FieldVisitor& v);
};

// Which params a worker asks for: those at which gradients are taken, or those for which the
// training stands (UpdateRule::EvalParams).
enum class PulledParams : int { kTraining, kEvaluation };

// The steps that each server has made, [S].
using ParameterVersions = std::vector<int64_t>;

// Dense variables as they were when servers had made so many steps.
struct PulledVariables {
  NamedArrays values = {};          // float32
  ParameterVersions versions = {};  // to be given back with the gradients
};

// The gradients of vectors of a layer. An id may come several times: its rows are added up.
struct SparseGradient {
  std::string layer = {};         // its name
  std::vector<int64_t> ids = {};  // [n]
  std::vector<float> rows = {};   // [n, width]
};

// What a worker computed from a batch: float32 gradients of some variables, of some vectors, and
// the loss, which must be there if the optimizer needs it. All numbers are finite.
struct ParameterGradients {
  NamedArrays dense = {};                   // by the variables' names
  std::vector<SparseGradient> sparse = {};  // a layer may come several times
  std::optional<float> loss = {};           // of the batch
};

// What became of a worker's gradients.
struct PushResult {
  // By which servers, at which version, and of which version the gradients are; empty: all servers
  // have stepped with them.
  std::string refused = {};
  ParameterVersions versions = {};  // afterwards
};

// A worker's view of the servers. Calls return when all servers that are concerned have answered.
// They throw Error if a name, shape, id or number is not one of the model, before anything is sent;
// if a server refuses a request for another reason than its age; or if a server has failed. Not
// thread-safe.
class ParameterClient {
 public:
  // For a worker's rank of a job whose ranks [0, servers) serve with the same options.
  ParameterClient(const ParameterServerOptions& options, Transport* transport);
  ~ParameterClient();
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  // This worker's number, in [0, workers).
  int worker() const;
  // How many there are.
  int workers() const;

  // All dense variables.
  PulledVariables PullVariables(PulledParams which = PulledParams::kTraining);
  // Those of these names; of none, the versions alone.
  PulledVariables PullVariables(const std::vector<std::string>& names,
                                PulledParams which = PulledParams::kTraining);
  // The vectors of these ids, float32 [n, width], in their order; new ones are made.
  Array PullEmbeddingVectors(const std::string& layer, std::span<const int64_t> ids,
                             PulledParams which = PulledParams::kTraining);
  // Sends gradients that were computed with params of these versions. Each server refuses them if
  // they are more than `staleness` steps behind it, else returns once it has stepped: with the
  // mean, in float64, of grads_to_wait gradients in the order of the workers. Throws Error also if
  // so many will not come because workers have left.
  PushResult PushGradients(const ParameterGradients& gradients, const ParameterVersions& versions);
  // Has all servers write their files (ParameterJobOptions::directory). The files are of one step
  // if no gradients are on their way.
  void Save();
  // Asks nothing more. Servers end when all workers have left.
  void Leave();

 private:
  class Requests;
  std::unique_ptr<Requests> requests_;
};

// Which part of a job this process is that talks to the others over gRPC: one server or one worker.
// Where an address is not of this machine alone, TLS and a token are wanted, or `insecure`; on
// this machine the token is by default the user's own, as that of `lopt worker`.
struct ParameterNetwork {
  std::optional<int> server = {};         // this server, which listens here
  std::string listen = {};                // "host:port"; port 0: one that is free
  std::optional<int> worker = {};         // or this worker, of servers that are there
  std::vector<std::string> servers = {};  // "host:port" of each, [S]

  NetworkFiles files = {};  // by which the two sides know each other
  // Of a server: the other end of a connection that gives no sign of life for so long has gone; a
  // worker that computes gives some. 0: none ends for that.
  double timeout_seconds = 60;
  double wait_seconds = 600;  // for the others to be there at first
  // Is told where a server listens, once it does.
  std::function<void(const std::string& address)> on_listening = {};
};

// Where and how a job runs; nothing here changes results.
struct ParameterJobOptions {
  int workers = 1;              // without a launcher
  bool in_one_process = false;  // run in this process, also under a launcher
  std::string directory = {};   // of the servers' files, server-<s>-of-<S>.safetensors; empty: none
  bool resume = false;          // begin with what these files hold
  std::optional<ParameterNetwork> network = {};  // over gRPC, with or without a launcher
};

// Runs servers and workers. With a network this process is one of them. Under an MPI launcher
// (mpiexec, srun) it is one rank: the first `servers` ranks serve, each other rank is a worker; to
// be called last in main, since on several hosts it ends the process. Elsewhere all run in threads
// of this process. `work` is called once for each worker. Returns the exit code of the program, 0.
//
// Over gRPC a worker that is lost counts as one that has left: the servers go on with the others,
// and at the end throw Error that names it. A worker whose server refuses it, is lost, or is not
// there in time, throws Error.
//
// Throws Error if options are wrong, if grads_to_wait exceeds the workers or, with several
// servers, is neither 1 nor all of them, if the directory holds
// files and `resume` is not set, or holds none of such servers and it is, and what the first server
// or worker that failed threw; under a launcher, a failure is printed and ends all ranks instead.
int RunParameterJob(const ParameterServerOptions& options, const ParameterJobOptions& job,
                    const std::function<void(ParameterClient&)>& work);

}  // namespace lopt
