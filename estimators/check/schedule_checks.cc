#include <algorithm>
#include <cstdint>

#include "lopt/base/key.h"
#include "lopt/estimators/check/checks.h"

namespace lopt::checks {
namespace {

constexpr const char* kScheduleHeader = "lopt/estimators/truncation_schedule.h";

// Calls visit(length, outer step, key) for lengths of many episodes.
template <class Visit>
void ForEachLength(const TruncationSchedule& schedule, const Visit& visit) {
  for (const int64_t outer_step : {0, 1, 9, 500, 1000, 1000000}) {
    for (const Key key : SplitKey(KeyFromSeed(1), 100)) {
      visit(schedule.Length(key, {.outer_step = outer_step}), outer_step, key);
    }
  }
}

void CheckLengths(const TruncationSchedule& schedule, Findings* findings) {
  int64_t shortest = TruncationSchedule::kNever;
  int64_t longest = 0;
  ForEachLength(schedule, [&](int64_t length, int64_t outer_step, Key key) {
    findings->Expect(length >= 1, "at outer step {} an episode has length {}, wanted at least 1",
                     outer_step, length);
    const int64_t again = schedule.Length(key, {.outer_step = outer_step});
    findings->Expect(length == again, "at outer step {} the same key gives the lengths {} and {}",
                     outer_step, length, again);
    shortest = std::min(shortest, length);
    if (length != TruncationSchedule::kNever) longest = std::max(longest, length);
  });
  if (longest > 0) findings->Measure("lengths from {} to {}", shortest, longest);
}

void CheckEpisodesEnd(const TruncationSchedule& schedule, Findings* findings) {
  bool some_end = false;
  ForEachLength(schedule, [&](int64_t length, int64_t, Key) {
    some_end = some_end || length != TruncationSchedule::kNever;
  });
  findings->Expect(some_end == schedule.EpisodesEnd(),
                   "EpisodesEnd() is {}, but {} of the episodes ends", schedule.EpisodesEnd(),
                   some_end ? "one" : "none");
}

void CheckBounds(const TruncationSchedule& schedule, Findings* findings) {
  ForEachLength(schedule, [&](int64_t length, int64_t outer_step, Key) {
    const int64_t longest = schedule.Longest(outer_step + 1);
    findings->Expect(length <= longest, "at outer step {} an episode has length {}, Longest is {}",
                     outer_step, length, longest);
    const int64_t shortest = schedule.Shortest(outer_step + 1);
    findings->Expect(length >= shortest,
                     "at outer step {} an episode has length {}, Shortest is {}", outer_step,
                     length, shortest);
  });
}

}  // namespace

const std::vector<Check<TruncationSchedule>>& ScheduleChecks() {
  static const std::vector<Check<TruncationSchedule>> checks = {
      {"lengths", "Lengths are at least 1 and functions of key and outer step.", kScheduleHeader,
       CheckLengths},
      {"ends", "EpisodesEnd() says whether any episode ends.", kScheduleHeader, CheckEpisodesEnd},
      {"bounds", "No episode is longer than Longest() or shorter than Shortest().", kScheduleHeader,
       CheckBounds},
  };
  return checks;
}

}  // namespace lopt::checks
