#include "lopt/learner/run/run_end.h"

#include <spdlog/spdlog.h>

#include "lopt/base/error.h"

namespace lopt {

void WriteRunEnd(const RunLock& lock, const std::optional<std::string>& cause,
                 const std::function<void()>& write, std::optional<MetricsLog>* metrics) {
  try {
    lock.RequireHeld();
    write();
  } catch (const Error& error) {
    if (*metrics) (*metrics)->Drop();
    if (lock.Lost()) {
      if (cause) spdlog::error("{}", *cause);
      lock.RequireHeld();
    }
    spdlog::error("{}", error.what());
  }
}

}  // namespace lopt
