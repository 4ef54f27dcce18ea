#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "tests/wait_until.h"

namespace lopt {

// Work in a forked child together with all processes that come of it, in whatever session, found by
// a mark in their environment. All are killed at the end, and what they have written is shown.
class MarkedJob {
 public:
  // `mark`: of this job alone. The child exits with what `work` returns, or with 1 if it throws.
  // Not to be constructed once this process has threads.
  MarkedJob(std::string mark, const std::function<int()>& work) : mark_("LOPT_TEST_JOB=" + mark) {
    Require(output_ != nullptr, "cannot make a temporary file");
    ::fcntl(::fileno(output_), F_SETFL, O_APPEND);
    ::fcntl(::fileno(output_), F_SETFD, FD_CLOEXEC);
    std::fflush(nullptr);
    child_ = ::fork();
    Require(child_ >= 0, "cannot fork");
    if (child_ > 0) return;
    ::dup2(::fileno(output_), STDOUT_FILENO);
    ::dup2(::fileno(output_), STDERR_FILENO);
    ::setenv("LOPT_TEST_JOB", mark.c_str(), 1);
    int code = 1;
    try {
      code = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
    }
    std::fflush(nullptr);
    ::_exit(code);
  }
  ~MarkedJob() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    for (const pid_t pid : Processes()) ::kill(pid, SIGKILL);
    std::fputs(Output().c_str(), stdout);
    std::fclose(output_);
  }
  MarkedJob(const MarkedJob&) = delete;
  MarkedJob& operator=(const MarkedJob&) = delete;

  pid_t child() const { return child_; }
  // What the job has written to standard output and standard error.
  std::string Output() const {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = ::pread(::fileno(output_), buffer, sizeof buffer,
                                         static_cast<off_t>(text.size()))) > 0;) {
      text.append(buffer, static_cast<size_t>(count));
    }
    return text;
  }
  // Waits until `done`, which must be while the child runs.
  void WaitUntil(const std::string& what, const std::function<bool()>& done) const {
    lopt::WaitUntil(what, done, [&] {
      const std::string end = EndOf(child_);
      return end.empty() ? end : "the job has ended with " + end + "; it wrote: " + Output();
    });
  }
  // Waits for the child; 128 + the signal if one ended it.
  int Wait() {
    int status = 0;
    lopt::WaitUntil("the job ended", [&] { return ::waitpid(child_, &status, WNOHANG) == child_; });
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // All processes of the job but the child itself, whose mark came after its start; no zombies.
  std::vector<pid_t> Processes() const {
    std::vector<pid_t> found;
    Visit([&](pid_t pid, const std::string&) { found.push_back(pid); });
    return found;
  }
  // Those that run `lopt meta-train` under mpiexec, by rank.
  std::map<int, pid_t> Ranks() const {
    std::map<int, pid_t> ranks;
    Visit([&](pid_t pid, const std::string& environment) {
      const std::string name = std::string("PMI_RANK=");
      const size_t at = environment.find('\0' + name);
      if (at == std::string::npos || !IsMetaTraining(pid)) return;
      ranks[std::atoi(environment.c_str() + at + 1 + name.size())] = pid;
    });
    return ranks;
  }
  // The process whose program's name starts so; 0 if there is none.
  pid_t Named(std::string_view name) const {
    pid_t found = 0;
    Visit([&](pid_t pid, const std::string&) {
      if (CommandName(pid).starts_with(name)) found = pid;
    });
    return found;
  }

 private:
  // A file of /proc; empty if the process has gone.
  static std::string ProcFile(pid_t pid, const char* name) {
    try {
      return ReadTextFile("/proc/" + std::to_string(pid) + "/" + name);
    } catch (const Error&) {
      return "";
    }
  }
  // "<path>", "meta-train", ...
  static bool IsMetaTraining(pid_t pid) {
    const std::string words = ProcFile(pid, "cmdline");
    return std::string_view(words.c_str() + std::min(words.find('\0') + 1, words.size())) ==
           "meta-train";
  }
  static std::string CommandName(pid_t pid) {
    std::string name = ProcFile(pid, "comm");
    if (!name.empty()) name.pop_back();
    return name;
  }
  // Whether a process that has given up its memory, and with it its environment, still holds files.
  static bool IsEnding(pid_t pid) {
    const std::string stat = ProcFile(pid, "stat");
    const size_t name_end = stat.rfind(')');
    return name_end != std::string::npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'Z';
  }
  void Visit(const std::function<void(pid_t, const std::string& environment)>& visit) const {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename();
      pid_t pid = 0;
      if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
      const std::string environment = ProcFile(pid, "environ");
      const size_t at = environment.find(mark_);
      const bool marked = at != std::string::npos && environment[at + mark_.size()] == '\0';
      if (marked) seen_.insert(pid);
      if (marked || (environment.empty() && seen_.contains(pid) && IsEnding(pid))) {
        visit(pid, environment);
      }
    }
  }

  std::string mark_;
  std::FILE* output_ = std::tmpfile();
  mutable std::set<pid_t> seen_;
  pid_t child_ = -1;
};

}  // namespace lopt
