#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lopt/base/run_lock.h"
#include "lopt/learner/run/metrics_log.h"

namespace lopt {

// Calls `write`, which notes how a run ends, with the lock held. If that fails, what `metrics`
// holds is dropped and the Error is logged: `cause`, why the run has failed, matters more. Throws
// Error, and logs the cause, if another process has taken the directory over, of which the cause
// may be a consequence.
void WriteRunEnd(const RunLock& lock, const std::optional<std::string>& cause,
                 const std::function<void()>& write, std::optional<MetricsLog>* metrics);

}  // namespace lopt
