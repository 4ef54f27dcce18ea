#include "lopt/base/process_identity.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "lopt/base/platform.h"

namespace lopt {

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

ProcessIdentity ThisProcess() {
  return {.host = HostName(),
          .machine = ProcessSpace(),
          .pid = ::getpid(),
          .start = ReadProcessStat(::getpid()).value_or(ProcessStat()).start};
}

std::optional<bool> StillRuns(const ProcessIdentity& process) {
  if (process.machine.empty() || process.machine != ProcessSpace()) return std::nullopt;
  const std::optional<ProcessStat> stat = ReadProcessStat(process.pid);
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return false;
  if (!stat) return true;  // it is there and cannot be seen
  return stat->state != 'Z' && stat->state != 'X' && stat->start == process.start;
}

}  // namespace lopt
