#include "base/process_identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace lopt {
namespace {

std::string Machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

}  // namespace

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::optional<ProcessStat> ReadProcessStat(int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  // All of it. Where the process ends meanwhile, this reads nothing; the stream's buffer would
  // throw.
  std::string text;
  std::getline(file, text, '\0');
  // pid (name) state parent ..., the 20th after the name is the start; the name may hold anything.
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(close + 1));
  ProcessStat stat;
  fields >> stat.state >> stat.parent;
  std::string skipped;
  for (int i = 0; i < 17; ++i) fields >> skipped;
  fields >> stat.start;
  return fields ? std::optional(stat) : std::nullopt;
}

ProcessIdentity ThisProcess() {
  return {.host = HostName(),
          .machine = Machine(),
          .pid = ::getpid(),
          .start = ReadProcessStat(::getpid()).value_or(ProcessStat()).start};
}

std::optional<bool> StillRuns(const ProcessIdentity& process) {
  if (process.machine != Machine()) return std::nullopt;
  const std::optional<ProcessStat> stat = ReadProcessStat(process.pid);
  if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return false;
  if (!stat) return true;  // it is there and cannot be seen
  return stat->state != 'Z' && stat->state != 'X' && stat->start == process.start;
}

}  // namespace lopt
