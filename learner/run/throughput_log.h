#pragma once

#include <cstdint>
#include <string>

#include "lopt/base/environment.h"
#include "lopt/base/metrics_writer.h"

namespace lopt {

// `<dir>/throughput.jsonl`, how fast a run goes: a line every second and one at the end, in the
// format of metrics.jsonl. It is a file of its own because, unlike metrics.jsonl, no two runs write
// the same numbers.
//   step                    updates so far, those before a resume included
//   seconds                 of meta-training so far, those before a resume included
//   updates_per_second, inner_steps_per_second   since the line before (or the start of the
//                           process); inner steps of all estimators, both of a pair counted
class ThroughputLog {
 public:
  // Goes on after `updates` updates that took `seconds`. Throws Error if the file cannot be opened.
  ThroughputLog(const std::string& directory, int64_t updates, double seconds);

  // After an update; `inner_steps` are those of this process.
  void Note(int64_t updates, int64_t inner_steps);
  // Writes what was noted last, if it is not written yet.
  void Finish();
  // Of meta-training up to what was noted last.
  double seconds() const;

 private:
  using Clock = SteadyClock;
  struct Moment {
    int64_t updates = 0;
    int64_t inner_steps = 0;
    Clock::time_point time;
  };

  void Write();

  double seconds_;  // up to the last line
  MetricsWriter lines_;
  Moment written_;
  Moment now_;
};

}  // namespace lopt
