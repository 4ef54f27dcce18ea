#pragma once

#include <cstdint>

namespace lopt {

// What the key of an inner training (inner_training.h) is folded with, for each purpose: the task
// and its initial params; the batches, once more with the inner step; what it is judged on; the
// order of its epochs.
struct TrainingDraw {
  enum : uint64_t { kTask = 0, kParams = 1, kData = 2, kJudge = 4, kOrder = 5 };
};

}  // namespace lopt
