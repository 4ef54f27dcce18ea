#pragma once

#include <fmt/core.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "lopt/base/error.h"
#include "tests/patience.h"

namespace lopt {

// Looks at `done` until it is true, but not for longer than Patience() minutes. `hopeless`, where
// given, says why it cannot become true any more, which is an error at once; nothing while it can.
inline void WaitUntil(const std::string& what, const std::function<bool()>& done,
                      const std::function<std::string()>& hopeless = {}) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(Patience());
  while (true) {
    const std::string why = hopeless ? hopeless() : "";  // first: what came before it counts
    if (done()) return;
    Require(why.empty(), "waited until {}, but {}", what, why);
    Require(std::chrono::steady_clock::now() < end, "waited until {}, for {} min", what,
            Patience());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// How a child has ended that was not waited for yet, such as "exit code 127"; empty while it runs.
inline std::string EndOf(pid_t child) {
  siginfo_t info = {};
  if (child <= 0 ||
      ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return "";
  }
  return fmt::format("{} {}", info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
}

}  // namespace lopt
