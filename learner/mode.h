#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/base/registry.h"

namespace lopt {

// How a run's updates of theta are made of its workers' gradients: the key "mode" of a config. In
// C++, config.mode = WriteOptions("Async", AsyncOptions{.batch_size = 3}).

// An update is the mean over all workers; with a deadline, over those that are there in time.
struct SyncOptions {
  double deadline_seconds = 0;
  int64_t quorum = 0;
  void Visit(FieldVisitor& v);
};

// What becomes of a gradient of weights that are too old: it is thrown away, or counts less: by 1 +
// its age, or by its age.
enum class StalenessPolicy { kDrop, kDiscount, kDivide };
inline constexpr Named<StalenessPolicy> kStalenessPolicies[] = {
    {StalenessPolicy::kDrop, "drop"},
    {StalenessPolicy::kDiscount, "discount"},
    {StalenessPolicy::kDivide, "divide"}};

// Workers run free, and an update takes gradients as they come.
struct AsyncOptions {
  int64_t batch_size = 1;
  int64_t staleness = 1;
  StalenessPolicy staleness_policy = StalenessPolicy::kDrop;
  void Visit(FieldVisitor& v);
};

// One of the two.
using Mode = std::variant<SyncOptions, AsyncOptions>;

// "Sync" and "Async". Making one throws Error as well if its keys do not go together.
Registry<Mode>& ModeRegistry();

// Why a run of this mode is not reproducible bit for bit: its updates do not wait for all workers.
// Empty: it is.
std::string WhyNotReproducible(const Mode& mode);

}  // namespace lopt
