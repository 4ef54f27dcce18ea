#pragma once

#include <doctest/doctest.h>

#include <cstdint>

#include "base/key.h"
#include "estimators/truncation_schedule.h"

namespace lopt::contracts {

// What every TruncationSchedule promises (estimators/truncation_schedule.h).
inline void CheckLengths(const TruncationSchedule& schedule) {
  bool some_end = false;
  for (const int64_t outer_step : {0, 1, 9, 500, 1000, 1000000}) {
    for (const Key key : SplitKey(KeyFromSeed(1), 100)) {
      const int64_t length = schedule.Length(key, {.outer_step = outer_step});
      CHECK(length >= 1);
      CHECK(length == schedule.Length(key, {.outer_step = outer_step}));
      some_end = some_end || length != TruncationSchedule::kNever;
    }
  }
  CHECK(some_end == schedule.EpisodesEnd());
}

}  // namespace lopt::contracts
