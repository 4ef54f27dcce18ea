#include "learner/mode.h"

#include <fmt/core.h>

namespace lopt {

Mode ModeOf(const MetaTrainConfig& config) {
  if (config.mode == "async") {
    return AsyncOptions{.batch_size = config.batch_size,
                        .staleness = config.staleness,
                        .discount = config.staleness_policy == "discount"};
  }
  return SyncOptions{.deadline_seconds = config.deadline_seconds, .quorum = config.quorum};
}

std::string WhyNotReproducible(const Mode& mode) {
  if (std::holds_alternative<AsyncOptions>(mode)) {
    return "mode async: the result depends on timing, so it is not reproducible bit for bit";
  }
  const double deadline = std::get<SyncOptions>(mode).deadline_seconds;
  return deadline > 0
             ? fmt::format(
                   "deadline_seconds is {}: updates may go ahead without late workers, so the "
                   "result is not reproducible bit for bit",
                   deadline)
             : "";
}

}  // namespace lopt
