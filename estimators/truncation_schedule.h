#pragma once

#include <cstdint>
#include <limits>

#include "base/key.h"
#include "estimators/inner_problem.h"

namespace lopt {

// Decides how long an episode of inner training is. Immutable, thread-safe.
class TruncationSchedule {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  virtual ~TruncationSchedule() = default;
  // The length, in inner steps, of an episode that starts now; kNever if it has no end.
  virtual int64_t Length(Key key, const OuterState& outer) const = 0;
  // Whether Length can be anything but kNever.
  virtual bool EpisodesEnd() const { return true; }
};

}  // namespace lopt
