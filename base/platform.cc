#include "lopt/base/platform.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <linux/bpf.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace lopt {

namespace {

// Receive buffers as SO_RCVBUF takes them; the second is what connections begin with.
constexpr int kNarrowBytes = 4 << 10;
constexpr int kWideBytes = 64 << 10;

constexpr char kInThisObject = 0;

// Where a symbolic link leads; empty if it cannot be read.
std::string LinkTarget(const char* link) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(link, error);
  return error ? std::string() : target.string();
}

// What follows `key` on the first line of a file that begins with it; empty if none does.
std::string LineOf(const char* file, std::string_view key) {
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return "";
}

// A limit of processor time as cores, rounded up: so much of it in a period. None for a file that
// is not there, and for "max" or -1, which is no limit.
std::optional<int64_t> CoresOfLimit(std::istream& quota, std::istream& period) {
  int64_t time = 0;
  int64_t each = 0;
  if (!(quota >> time) || !(period >> each) || time <= 0 || each <= 0) return std::nullopt;
  return (time - 1) / each + 1;
}

// The limit of one control group, whichever version its directory is of.
std::optional<int64_t> CoresOfGroup(const std::string& directory) {
  std::ifstream both(directory + "/cpu.max");
  if (both) return CoresOfLimit(both, both);
  std::ifstream quota(directory + "/cpu.cfs_quota_us");
  std::ifstream period(directory + "/cpu.cfs_period_us");
  return CoresOfLimit(quota, period);
}

// Where the groups of a line of /proc/PID/cgroup, "4:cpu,cpuacct:/a/b" or "0::/a/b", are; none for
// groups that say nothing of processor time.
std::vector<std::string> PlacesOfGroups(std::string_view controllers, const std::string& root) {
  if (controllers.empty()) return {root};
  const std::string listed = fmt::format(",{},", controllers);
  if (listed.find(",cpu,") == std::string::npos) return {};
  return {fmt::format("{}/{}", root, controllers), root + "/cpu"};
}

bool SetOption(int socket, int option, int value) {
  return ::setsockopt(socket, SOL_SOCKET, option, &value, sizeof value) == 0;
}

// Lets the system choose the size of the receive buffer. Returns whether it can be asked to (Linux
// 5.14 can).
bool ChooseReceiveBuffer(int socket) { return SetOption(socket, SO_BUF_LOCK, 0); }

epoll_event EventOf(int64_t name, bool input) {
  epoll_event event = {};
  event.events = EPOLLET | EPOLLRDHUP | (input ? uint32_t{EPOLLIN} : 0U);
  event.data.u64 = static_cast<uint64_t>(name);
  return event;
}

}  // namespace

bool NamesDescriptor(std::string_view path) {
  return path == "/dev/stdin" || path == "/dev/stdout" || path == "/dev/stderr" ||
         path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

std::string ProgramPath() { return LinkTarget("/proc/self/exe"); }

std::string OwnLibraryPath() {
  Dl_info info;
  link_map* map = nullptr;
  if (::dladdr1(&kInThisObject, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr) {
    return "";
  }
  // The program's own name is empty there. `info` has the first word of its command line for it,
  // which is whatever the caller says.
  const std::string path = map->l_name;
  return path.starts_with('/') ? path : "";
}

std::string ProcessSpace() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return ProcessSpaceOf(boot, LinkTarget("/proc/self/ns/pid"));
}

std::string ProcessSpaceOf(const std::string& boot, const std::string& pid_namespace) {
  return boot.empty() || pid_namespace.empty() ? "" : boot + " " + pid_namespace;
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

std::vector<int64_t> VisibleProcesses() {
  std::vector<int64_t> processes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    int64_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc()) {
      processes.push_back(pid);
    }
  }
  return processes;
}

void DieWithParent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

void AdoptOrphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::optional<int64_t> ControlGroupCores() {
  std::ifstream file("/proc/self/cgroup");
  std::string groups;
  std::getline(file, groups, '\0');
  return ControlGroupCoresOf(groups, "/sys/fs/cgroup");
}

std::optional<int64_t> ControlGroupCoresOf(const std::string& groups, const std::string& root) {
  std::optional<int64_t> cores;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    for (const std::string& place :
         PlacesOfGroups(line.substr(first + 1, second - first - 1), root)) {
      // A container may see its own group as the root, under whatever name the host has for it.
      for (std::string group = line.substr(second + 1);; group.resize(group.rfind('/'))) {
        const std::optional<int64_t> limit = CoresOfGroup(place + group);
        if (limit) cores = std::min(cores.value_or(*limit), *limit);
        if (group.empty() || group.front() != '/') break;
      }
    }
  }
  return cores;
}

int AffinityCores() {
  constexpr size_t kMostSets = 1024;  // a million cores
  // The system refuses a set that is too small for all cores that the machine could have.
  for (size_t sets = 1; sets <= kMostSets; sets *= 2) {
    std::vector<cpu_set_t> cores(sets);
    const size_t bytes = sets * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, cores.data()) == 0) {
      return CPU_COUNT_S(bytes, cores.data());
    }
    if (errno != EINVAL) break;
  }
  return 1;
}

void SleepPrecisely() { ::prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); }

std::string ProcessorName() {
  const std::string name = LineOf("/proc/cpuinfo", "model name\t: ");
  return name.empty() ? "unknown" : name;
}

bool AllowMatrixTiles() {
#if defined(__x86_64__)
  constexpr int64_t kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, Linux 5.16
  constexpr int64_t kTileData = 18;               // XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void ResetPeakMemory() {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // the high-water mark of resident memory
}

int64_t PeakMemoryBytes() {
  int64_t kilobytes = 0;
  std::istringstream(LineOf("/proc/self/status", "VmHWM:")) >> kilobytes;
  return kilobytes * 1024;
}

timespec ModifiedAt(const struct stat& file) { return file.st_mtim; }

int OpenSignals(const sigset_t& signals) {
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

int NextSignal(int descriptor) {
  signalfd_siginfo signal;
  const bool taken = ::read(descriptor, &signal, sizeof signal) == sizeof signal;
  return taken ? static_cast<int>(signal.ssi_signo) : 0;
}

int OpenEvent() { return ::eventfd(0, EFD_CLOEXEC); }

void RaiseEvent(int descriptor) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &one, sizeof one);
}

int OpenMemoryFile(const char* purpose) { return ::memfd_create(purpose, MFD_CLOEXEC); }

bool OpenPipe(int* from, int* to) {
  std::array<int, 2> ends = {};
  const bool open = ::pipe2(ends.data(), O_CLOEXEC) == 0;
  *from = ends[0];
  *to = ends[1];
  return open;
}

int OpenStreamSocket(int family) {
  return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

int AcceptConnection(int socket) {
  return ::accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

TcpStatus ReadTcpStatus(int socket) {
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {.open = false};
  return {.open = info.tcpi_state == BPF_TCP_ESTABLISHED || info.tcpi_state == BPF_TCP_CLOSE_WAIT,
          .received = static_cast<int64_t>(info.tcpi_bytes_received)};
}

void NarrowReceiving(int socket) {
  if (ChooseReceiveBuffer(socket)) SetOption(socket, SO_RCVBUF, kNarrowBytes);
}

void WidenReceiving(int socket) {
  SetOption(socket, SO_RCVBUF, kWideBytes);
  ChooseReceiveBuffer(socket);
}

void BreakConnection(int socket) {
  ::shutdown(socket, SHUT_RDWR);  // whoever waits for it knows
  const sockaddr nowhere = {.sa_family = AF_UNSPEC, .sa_data = {}};
  [[maybe_unused]] const int ended = ::connect(socket, &nowhere, sizeof nowhere);
}

int OpenWatch() { return ::epoll_create1(EPOLL_CLOEXEC); }

bool Watch(int watch, int descriptor, int64_t name, bool input) {
  epoll_event event = EventOf(name, input);
  return ::epoll_ctl(watch, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void WatchEndOnly(int watch, int descriptor, int64_t name) {
  epoll_event event = EventOf(name, false);
  ::epoll_ctl(watch, EPOLL_CTL_MOD, descriptor, &event);
}

void Unwatch(int watch, int descriptor) { ::epoll_ctl(watch, EPOLL_CTL_DEL, descriptor, nullptr); }

size_t WaitForNews(int watch, int milliseconds, std::span<int64_t> names) {
  std::array<epoll_event, 64> events = {};
  const size_t most = std::min(events.size(), names.size());
  const int count = ::epoll_wait(watch, events.data(), static_cast<int>(most), milliseconds);
  for (int i = 0; i < count; ++i) {
    names[static_cast<size_t>(i)] = static_cast<int64_t>(events[static_cast<size_t>(i)].data.u64);
  }
  return static_cast<size_t>(std::max(count, 0));
}

}  // namespace lopt
