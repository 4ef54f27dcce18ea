#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lopt/learner/job/wire.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/worker.h"

namespace lopt {

// What a Message of a job holds, written and read by learner/job/wire.h.
enum MessageKind : int {
  kHello,      // every rank to the learner: Hello
  kHeartbeat,  // between the learner and every rank: Heartbeat
  kFailure,    // a rank to the learner: the text of an Error that ended its work
  kStop,       // a rank to the learner: it was told to stop
  kBegin,      // learner to rank: WorkerWeights; make the initial states of your workers
  kState,  // learner to rank: WorkersFile, the states of some of your workers; after the last: kGo
  kGo,     // learner to rank: the text that names the checkpoint to read your workers' states
           // from; empty: they were all sent
  kReady,  // rank to learner: its workers have their states; the text Experiment::data
  kWeights,     // learner to rank: WorkerWeights; compute once with them
  kGradients,   // rank to learner: a list with a WorkerGradient for each of its workers
  kSave,        // learner to rank: SaveRequest
  kSaved,       // rank to learner: a list with a SavedFile for each file of its workers' states
  kEnd,         // learner to rank: the text finished, interrupted or failed; nothing follows
  kCollective,  // between ranks: of learner/transport/collectives.h
};

// Who a rank is and what it runs; must agree between ranks where the result depends on it.
struct Hello {
  std::string host = {};
  int64_t pid = 0;
  std::string version = {};
  std::string isa = {};
  std::string device = {};  // model of what its windows run on; empty: it runs none
  std::string config = {};  // resolved, as text

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("host", host);
    visit("pid", pid);
    visit("version", version);
    visit("isa", isa);
    visit("device", device);
    visit("config", config);
  }
};

struct Heartbeat {
  std::string host = {};
  int64_t updates = 0;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("host", host);
    visit("updates", updates);
  }
};

// The states of logical workers [first, first + count), as the bytes of their file in a checkpoint.
struct WorkersFile {
  int64_t first = 0;
  int64_t count = 0;
  std::vector<std::byte> bytes = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("first", first);
    visit("count", count);
    visit("bytes", bytes);
  }
};

// One logical worker's gradient and the windows that it ran for it.
struct WorkerGradient {
  int64_t worker = 0;
  int64_t first_window = 0;
  int64_t windows = 0;
  AggregatedGradient gradient = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("worker", worker);
    visit("first_window", first_window);
    visit("windows", windows);
    visit("gradient", gradient);
  }
};

struct SaveRequest {
  enum class What : int {
    kWrite,   // the workers' files into `directory`
    kSend,    // their bytes to the learner
    kNothing  // say only how far the workers are
  };
  What what = What::kWrite;
  int64_t outer_step = 0;
  std::string directory = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("what", what);
    visit("outer_step", outer_step);
    visit("directory", directory);
  }
};

// A file with workers' states of a checkpoint: as it was written, or its name and its bytes.
struct SavedFile {
  CheckpointFile file = {};
  std::vector<std::byte> bytes = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("file", file);
    visit("bytes", bytes);
  }
};

}  // namespace lopt
