#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/learner/parameter_server/parameter_server.h"

namespace lopt {

// What a Message of a parameter server's job holds, written and read by learner/job/wire.h.
enum ParameterMessage : int {
  kPullVariables = 100,  // worker to server: VariableRequest
  kPullVectors,          // worker to server: VectorRequest
  kPushGradients,        // worker to server: PushRequest
  kSaveServer,           // worker to server: ServerRequest; write your file
  kLeaveServer,          // worker to server: nothing; no answer
  kServerAnswer,         // server to worker: ServerAnswer
  kServerFailed,         // server to worker: the text of the Error that ended it
  kWorkerLost,           // a server's transport to it: the text that says why; no answer
};

// What all requests begin with.
struct ServerRequest {
  int64_t number = 0;   // of the worker's requests to this server, counted from 1
  uint64_t digest = 0;  // ParameterModel::digest

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("number", number);
    visit("digest", digest);
  }
};

struct VariableRequest {
  ServerRequest request = {};
  std::vector<std::string> names = {};
  PulledParams which = PulledParams::kTraining;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("request", request);
    visit("names", names);
    visit("which", which);
  }
};

struct VectorRequest {
  ServerRequest request = {};
  std::string layer = {};
  std::vector<int64_t> ids = {};
  PulledParams which = PulledParams::kTraining;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("request", request);
    visit("layer", layer);
    visit("ids", ids);
    visit("which", which);
  }
};

// A float32 array of a variable.
struct VariableNumbers {
  std::string name = {};
  Shape shape = {};
  std::vector<float> numbers = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("shape", shape);
    visit("numbers", numbers);
  }
};

// A SparseGradient.
struct VectorNumbers {
  std::string layer = {};
  std::vector<int64_t> ids = {};
  std::vector<float> rows = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("layer", layer);
    visit("ids", ids);
    visit("rows", rows);
  }
};

struct PushRequest {
  ServerRequest request = {};
  int64_t version = 0;  // of the server, when the params were pulled
  std::vector<VariableNumbers> dense = {};
  std::vector<VectorNumbers> sparse = {};
  std::optional<float> loss = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("request", request);
    visit("version", version);
    visit("dense", dense);
    visit("sparse", sparse);
    visit("loss", loss);
  }
};

struct ServerAnswer {
  int64_t number = 0;      // of the request
  std::string error = {};  // why there is no answer; empty: there is one
  int64_t version = 0;     // of the server
  bool stale = false;      // the gradients are too old
  std::vector<VariableNumbers> variables = {};
  std::vector<float> vectors = {};  // [n, width]

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("number", number);
    visit("error", error);
    visit("version", version);
    visit("stale", stale);
    visit("variables", variables);
    visit("vectors", vectors);
  }
};

}  // namespace lopt
