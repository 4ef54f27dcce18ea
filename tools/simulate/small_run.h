#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "lopt/base/file_system.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/tools/simulate/run_files.h"

namespace lopt {

// Where simulated runs write.
inline constexpr const char* kSimulatedRun = "/runs/simulated";

// What a simulated job computes.
struct SmallRunKind {
  GradientSum sum = GradientSum::kInOrder;
  bool async = false;   // mode Async, whose theta depends on what comes first
  bool judged = false;  // by held-out tasks on the way
  // Some order of all kinds.
  bool operator<(const SmallRunKind& other) const {
    return std::tie(sum, async, judged) < std::tie(other.sum, other.async, other.judged);
  }
};

// The experiment of a simulated job: as small as one can be that has all parts. Only keys that are
// free on resume may be changed in it.
MetaTrainConfig SmallRun(const SmallRunKind& kind);
// Windows that an update of it uses.
int64_t WindowsPerUpdate(const SmallRunKind& kind);

// What the run is without any fault, on one rank: its checkpoints after 0, 1, ... updates, and its
// files with all of these. Made at the first call of a thread.
struct UndisturbedRun {
  std::vector<Checkpoint> checkpoints;
  RunFiles files;
  int64_t steps_per_window = 0;  // inner steps
};
const UndisturbedRun& Undisturbed(SmallRunKind kind);

}  // namespace lopt
