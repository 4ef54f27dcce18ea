#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "learner/meta_train_config.h"

namespace lopt {

// An update is the mean over all workers; with a deadline over those that are there in time.
struct SyncOptions {
  double deadline_seconds = 0;
  int64_t quorum = 0;
};

// Workers run free, and an update takes gradients as they come.
struct AsyncOptions {
  int64_t batch_size = 1;
  int64_t staleness = 1;
  bool discount = false;
};

using Mode = std::variant<SyncOptions, AsyncOptions>;

Mode ModeOf(const MetaTrainConfig& config);

// Why a run of this mode is not reproducible bit for bit: its updates do not wait for all workers.
// Empty: it is.
std::string WhyNotReproducible(const Mode& mode);

}  // namespace lopt
