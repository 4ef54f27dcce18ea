#include "lopt/tools/launch/restart_policy.h"

#include <algorithm>
#include <cmath>

namespace lopt {

RestartPolicy::RestartPolicy(const RestartOptions& options, int64_t checkpoint)
    : options_(options),
      ranks_(options.ranks),
      checkpoint_(checkpoint),
      updates_(std::max<int64_t>(checkpoint, 0)) {}

std::optional<double> RestartPolicy::AfterFailure(const AttemptProgress& progress) {
  const bool further = progress.checkpoint > checkpoint_ || progress.updates > updates_;
  checkpoint_ = std::max(checkpoint_, progress.checkpoint);
  updates_ = std::max(updates_, progress.updates);
  failures_ = further ? 0 : failures_ + 1;
  if (failures_ > options_.max_restarts) return std::nullopt;

  failed_starts_ = progress.started ? 0 : failed_starts_ + 1;
  if (failed_starts_ == 2) {
    ranks_ = std::max((ranks_ + 1) / 2, options_.min_ranks);
    failed_starts_ = 0;
  }
  if (further) return 0;
  return std::min(options_.first_delay_seconds * std::exp2(failures_ - 1),
                  options_.max_delay_seconds);
}

}  // namespace lopt
