#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>

#include "lopt/base/error.h"

namespace lopt {

// How a forked child ended.
struct ChildEnd {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;      // 0 if none did
};

// Runs `work` in a forked child, which exits with 0, or with 1 if it throws. Not to be called once
// this process has threads.
inline ChildEnd RunInChild(const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  Require(child >= 0, "cannot fork");
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  Require(::waitpid(child, &status, 0) == child, "cannot wait for the child");
  return WIFSIGNALED(status) ? ChildEnd{.exit_code = -1, .signal = WTERMSIG(status)}
                             : ChildEnd{.exit_code = WEXITSTATUS(status), .signal = 0};
}

}  // namespace lopt
