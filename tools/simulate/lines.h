#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lopt/learner/elastic/connections.h"
#include "lopt/tools/simulate/process.h"

namespace lopt {

// The connections between a learner and worker processes that come and go. Frames of a connection
// keep their order in each direction; how long they take is drawn. When a process dies its
// connections are closed a little later, or never, if its machine has gone with it.
class Lines {
 public:
  // Frames take less than 2^delay_bits microseconds.
  Lines(World* world, Process* learner, int delay_bits);
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  // To be used in tasks of the learner. Once.
  std::unique_ptr<Connections> Listen();
  // To be used in tasks of that process.
  std::unique_ptr<Connections> Join(Process* worker);
  // The system closes what a process that has ended had open.
  void Ended(const Process* process);
  // Frames that the learner has sent to a connection of which it knew that it was closed.
  int64_t sent_to_the_gone() const { return sent_to_the_gone_; }

 private:
  class LearnersEnd;
  class WorkersEnd;
  struct Line;

  // An event for one end of a line. Notifies who waits there.
  void Deliver(Line* line, bool to_learner, Connections::Event event);

  World* world_;
  Process* learner_;
  int delay_bits_;
  std::vector<std::unique_ptr<Line>> lines_;  // connection n is the n-th
  Wakeup* learners_wakeup_ = nullptr;
  bool listens_ = false;
  int64_t sent_to_the_gone_ = 0;
};

}  // namespace lopt
