#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lopt {

// How a process ended: its exit code, or 128 + the signal that ended it.
struct ProcessEnd {
  int exit_code = 0;
  bool by_signal = false;
};

// A child in a process group of its own that is killed when the thread that made it ends, however
// that ends. Standard input is empty; standard output and error are those of this process. All
// signals have their default actions in the child and none is blocked.
class ChildProcess {
 public:
  // Runs `words`; the first is a path, or a name that is looked up in PATH. Throws Error with the
  // system's reason if it cannot be run.
  explicit ChildProcess(const std::vector<std::string>& words);
  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Sends a signal to its process group, if it still runs.
  void Signal(int signal) const;
  // Does not wait; none while it runs.
  std::optional<ProcessEnd> Poll();

 private:
  pid_t pid_ = -1;
  std::optional<ProcessEnd> end_;
};

// Kills what the children of this process leave behind. From its construction on, processes whose
// parent has died become children of this process and not of init (AdoptOrphans of
// base/platform.h), so that a whole tree can be found whatever sessions and process groups it is
// in.
class ProcessReaper {
 public:
  ProcessReaper();

  // As KillAll.
  ~ProcessReaper();
  ProcessReaper(const ProcessReaper&) = delete;
  ProcessReaper& operator=(const ProcessReaper&) = delete;

  // Kills and reaps all descendants but those that were there at the construction and what they
  // start. Returns those that are still there after 10 s: the system cannot end them.
  std::vector<pid_t> KillAll() const;

 private:
  std::set<pid_t> others_;
};

}  // namespace lopt
