#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lopt/learner/parameter_server/parameter_messages.h"
#include "lopt/learner/parameter_server/parameter_store.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// One server of a job, the one of its rank: it answers the workers' requests. A request that is
// damaged, or that no worker of this job would make, is refused with a reason, changes nothing and
// holds up nobody else.
class ParameterServing {
 public:
  // With `path` it can write its file there; with `resume` it begins with what is in it. Throws
  // Error as ParameterStore does, if grads_to_wait exceeds the workers, and if the file is not one
  // of this server.
  ParameterServing(const ParameterServerOptions& options, Transport* transport, std::string path,
                   bool resume);
  ParameterServing(const ParameterServing&) = delete;
  ParameterServing& operator=(const ParameterServing&) = delete;

  const ParameterStore& store() const { return store_; }
  // Takes the messages that are there. False if there were none.
  bool Poll();
  // Of each worker that was lost before it left, why.
  const std::vector<std::string>& lost() const { return lost_; }
  // Whether all workers have left or were lost.
  bool done() const { return working_.empty(); }
  // Polls until then.
  void Run();

 private:
  // A push that waits for others.
  struct Waiting {
    int64_t number = 0;
    ParameterGradients gradients = {};
  };

  void Take(const Message& message);
  void Handle(const Message& message);
  template <class Request>
  Request Read(const Message& message) const;
  void CheckRequest(const ServerRequest& request) const;
  void AnswerVariables(int worker, const VariableRequest& request);
  void AnswerVectors(int worker, const VectorRequest& request);
  void TakePush(int worker, PushRequest request);
  void Save(int worker, const ServerRequest& request);
  ParameterGradients CheckedGradients(PushRequest request) const;
  void StepIfReady();
  void RemoveWorker(int worker);
  // Refuses what waits if so many gradients will not come.
  void RefuseIfTooFew();
  std::string TooFew() const;
  void Send(int worker, const ServerAnswer& answer);
  void Refuse(int worker, int64_t number, const std::string& why);

  std::shared_ptr<const ParameterModel> model_;
  Transport* transport_;
  std::string path_;
  ParameterStore store_;
  std::set<int> working_;           // ranks of workers that have not left
  std::map<int, Waiting> waiting_;  // by the worker's rank
  std::vector<std::string> lost_;
};

// The name of a server's file in a directory.
std::string ServerFileName(int64_t server, int64_t servers);

// Serves until all workers have left. If that fails, all workers are told before the Error comes.
// Throws Error at the end also if workers were lost, though the others were served.
void ServeParameters(const ParameterServerOptions& options, Transport* transport,
                     const std::string& path, bool resume);

}  // namespace lopt
