#pragma once

#include <cstdint>
#include <optional>

namespace lopt {

struct RestartOptions {
  int ranks = 1;         // of the first attempt
  int min_ranks = 1;     // of any attempt
  int max_restarts = 5;  // in a row without progress
  double first_delay_seconds = 1;
  double max_delay_seconds = 60;
};

// How far a run had come when an attempt to run it failed.
struct AttemptProgress {
  bool started = false;     // the learner has reported
  int64_t checkpoint = -1;  // step of the newest; -1: none
  int64_t updates = 0;
};

// Decides whether, when and on how many ranks a failed job is started again:
// - An attempt has made progress if it left a newer checkpoint or more updates than all before.
// - After one that has, the next begins at once. After the k-th in a row that has not, it begins
//   after first_delay * 2^(k - 1) seconds, at most max_delay; after more than max_restarts in a row
//   there is none.
// - After two attempts in a row in which the learner has not reported, the next is on half the
// ranks
//   (rounded up), not below min_ranks. Later attempts stay there.
class RestartPolicy {
 public:
  // `checkpoint`: that which the first attempt resumes from; -1: none.
  RestartPolicy(const RestartOptions& options, int64_t checkpoint);

  // Of the next attempt.
  int ranks() const { return ranks_; }
  // Seconds to wait before the next attempt; none: give up.
  std::optional<double> AfterFailure(const AttemptProgress& progress);

 private:
  RestartOptions options_;
  int ranks_;
  int64_t checkpoint_;
  int64_t updates_;
  int failures_ = 0;       // in a row without progress
  int failed_starts_ = 0;  // in a row on this many ranks
};

}  // namespace lopt
