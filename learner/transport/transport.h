#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {

class Wakeup;

// A learner was told to stop while no worker was there to finish the update.
class StoppedAlone : public Error {
 public:
  using Error::Error;
};

// A flat buffer that one rank sent to another.
struct Message {
  int from = 0;                       // the rank
  int kind = 0;                       // what it holds, as the sender says
  std::vector<std::byte> bytes = {};  // the buffer
};

// The processes ("ranks") of one job and the messages between them. No call blocks. All calls come
// from one thread.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // This one, from 0 on.
  virtual int rank() const = 0;
  // How many there are.
  virtual int size() const = 0;
  // How many ranks run on this one's host, this one included.
  virtual int ranks_on_host() const = 0;
  // This one's place among them, from 0 on.
  virtual int rank_on_host() const = 0;
  // Whether every rank is a process, all of which Abort ends.
  virtual bool RanksAreProcesses() const { return false; }
  // "MPICH 4.0.2, 3 ranks", for the log.
  virtual std::string Description() const = 0;

  // Messages from one rank to another (also to itself) arrive complete and in the order sent. A
  // rank that reads no messages does not hold up others. They may have any length.
  virtual void Send(int to, int kind, std::vector<std::byte> bytes) = 0;
  // The next message that has arrived. To be called often: it also moves what is being sent.
  virtual std::optional<Message> Poll() = 0;
  // Starts the meeting of all ranks at the end, once, when nothing more is to be sent.
  virtual void BeginFarewell() = 0;
  // Whether this one and all other ranks have begun it and what this one sent has left.
  virtual bool FarewellDone() = 0;

  // Where arriving messages can wake a sleeping thread they notify this; the return value says
  // whether they do.
  virtual bool NotifyOnArrival(Wakeup* wakeup) = 0;

  // The gradients that a rank has sent last, which Poll gave last, are no good. Where whoever works
  // for the rank can be replaced, it is refused, another sends them again, and the value is true.
  // False: the error is the job's.
  virtual bool RefuseAnswer(int /*from*/, const std::string& /*why*/) { return false; }

  // Ends all ranks of the job at once, this one with `exit_code`.
  [[noreturn]] void Abort(int exit_code) {
    DoAbort(exit_code);
    std::_Exit(exit_code);
  }
  // To be called last in main, after the farewell, with the process's exit code: returns it, or
  // ends the process with it where returning is not safe.
  virtual int Exit(int exit_code) = 0;

 protected:
  Transport() = default;

 private:
  virtual void DoAbort(int exit_code) = 0;
};

}  // namespace lopt
