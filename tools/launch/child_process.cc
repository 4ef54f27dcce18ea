#include "lopt/tools/launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <map>

#include "lopt/base/error.h"
#include "lopt/base/platform.h"

namespace lopt {

namespace {

constexpr std::chrono::seconds kKillTime(10);  // for the system to end killed processes

// Becomes the program. Only calls that are allowed between fork and exec. Returns if that fails.
void Exec(char* const* arguments, pid_t parent) {
  ::setpgid(0, 0);
  DieWithParent();
  if (::getppid() != parent) return;  // it died before the line above
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int empty = ::open("/dev/null", O_RDONLY);
  ::dup2(empty, STDIN_FILENO);
  ::close(empty);
  ::execvp(arguments[0], arguments);
}

// The parent of every process that can be seen, zombies included.
std::map<pid_t, pid_t> Parents() {
  std::map<pid_t, pid_t> parents;
  for (const int64_t pid : VisibleProcesses()) {
    if (const auto stat = ReadProcessStat(pid)) {
      parents[static_cast<pid_t>(pid)] = static_cast<pid_t>(stat->parent);
    }
  }
  return parents;
}

// All descendants of this process but those in `others` and their own.
std::vector<pid_t> Descendants(const std::set<pid_t>& others) {
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, parent] : Parents()) children.emplace(parent, pid);
  std::vector<pid_t> found = {::getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    for (auto child = first; child != last; ++child) {
      if (!others.contains(child->second)) found.push_back(child->second);
    }
  }
  found.erase(found.begin());
  return found;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // A failed exec is told through a pipe that a successful one closes.
  int read_end = -1, write_end = -1;
  const bool piped = OpenPipe(&read_end, &write_end);
  Require(piped, "cannot make a pipe: {}", SystemReason(errno));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    Exec(arguments.data(), parent);
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(write_end, &error, sizeof error);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(write_end);
  int error = 0;
  const auto count = pid_ < 0 ? 0 : ::read(read_end, &error, sizeof error);
  ::close(read_end);
  Require(pid_ > 0, "cannot start a process: {}", SystemReason(fork_error));
  if (count != sizeof error) return;
  ::waitpid(pid_, nullptr, 0);
  Fail("cannot run '{}': {}", words[0], SystemReason(error));
}

ChildProcess::~ChildProcess() {
  if (Poll()) return;
  Signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) const {
  // The group is there from the child's exec on, and until it has been waited for.
  if (!end_) ::kill(-pid_, signal);
}

std::optional<ProcessEnd> ChildProcess::Poll() {
  int status = 0;
  if (!end_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    end_ = WIFEXITED(status) ? ProcessEnd{.exit_code = WEXITSTATUS(status), .by_signal = false}
                             : ProcessEnd{.exit_code = 128 + WTERMSIG(status), .by_signal = true};
  }
  return end_;
}

ProcessReaper::ProcessReaper() {
  const std::vector<pid_t> present = Descendants({});
  others_ = {present.begin(), present.end()};
  AdoptOrphans();
}

ProcessReaper::~ProcessReaper() { KillAll(); }

std::vector<pid_t> ProcessReaper::KillAll() const {
  const auto end = std::chrono::steady_clock::now() + kKillTime;
  for (;;) {
    // What is forked meanwhile is found the next time.
    std::vector<pid_t> left = Descendants(others_);
    if (left.empty() || std::chrono::steady_clock::now() > end) return left;
    for (const pid_t pid : left) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, WNOHANG);  // of no effect on other than children
    }
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace lopt
