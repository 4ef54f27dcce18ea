#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lopt {

std::string HostName();

// Which process it is, among all processes of all hosts and of all times.
struct ProcessIdentity {
  std::string host = {};  // for people; containers may share one
  // What process ids belong to, a boot of a kernel and a pid namespace; empty if the system does
  // not say.
  std::string machine = {};
  int64_t pid = 0;
  int64_t start = 0;  // in clock ticks since that boot; a later process with this pid has another

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("host", host);
    visit("machine", machine);
    visit("pid", pid);
    visit("start", start);
  }
};

ProcessIdentity ThisProcess();

// Whether the process still runs, a zombie does not; none if it is of another machine, whose
// processes cannot be seen from here, or of one that is not known.
std::optional<bool> StillRuns(const ProcessIdentity& process);

}  // namespace lopt
