#pragma once

#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/learner/run/run_directory.h"

namespace lopt {

// What a run may go on from. `checkpoint` is the path of the one that it is to go on from, for
// messages.

// The checkpoint's config with every key of this version: an earlier one did not have all of them.
// Throws Error if this version does not know a key or a type of it.
template <class Options>
Config ResolvedAgain(const std::string& checkpoint, const Config& config) {
  try {
    return WriteOptions("", ReadOptions<Options>(config));
  } catch (const Error& error) {
    Fail("cannot resume from {}: {}", checkpoint, error.what());
  }
}
// Throws Error that lists the differences unless only the keys in `free` differ.
void RequireSameConfig(const std::string& checkpoint, const Config& then, const Config& now,
                       const std::vector<std::string>& free);
// Throws Error unless this process computes on the instruction set `isa`, or may change it, which
// is then a warning.
void RequireSameIsa(const std::string& checkpoint, const std::string& isa, bool allow_change);
// The same for the device that windows ran on, `then`, and that they run on `now`.
void RequireSameDevice(const std::string& checkpoint, const std::string& then,
                       const std::string& now, bool allow_change);
// Throws Error if a run that has no checkpoint has had one: it may only begin anew if it died
// before its first.
void RequireNoCheckpointLost(const RunDirectory& directory);

}  // namespace lopt
