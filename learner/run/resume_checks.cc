#include "lopt/learner/run/resume_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/option_words.h"

namespace lopt {

void RequireSameConfig(const std::string& checkpoint, const Config& then, const Config& now,
                       const std::vector<std::string>& free) {
  const std::vector<std::string> differences =
      then.Differences(now, free, "in the checkpoint", "now");
  Require(differences.empty(),
          "cannot resume from {}: the config has changed: {}. On resume only these keys may "
          "change: {}",
          checkpoint, fmt::join(differences, "; "), fmt::join(free, ", "));
}

void RequireSameIsa(const std::string& checkpoint, const std::string& isa, bool allow_change) {
  if (isa == CurrentIsa()) return;
  Require(allow_change,
          "cannot resume from {}: it was computed on instruction set {}, this process uses {}, "
          "so the result would have other bits; pin it ({}), or allow the change ({})",
          checkpoint, isa, CurrentIsa(), KeyWords("isa"), FlagWords("allow-isa-change"));
  spdlog::warn("the instruction set changes from {} to {}: the result has other bits", isa,
               CurrentIsa());
}

void RequireSameDevice(const std::string& checkpoint, const std::string& then,
                       const std::string& now, bool allow_change) {
  if (then == now) return;
  Require(allow_change,
          "cannot resume from {}: its windows ran on the device {}, those of this run now on {}, "
          "so the result would have other bits; choose the same ({}), or allow the change ({})",
          checkpoint, then, now, KeyWords("device"), FlagWords("allow-isa-change"));
  spdlog::warn("the device changes from {} to {}: the result has other bits", then, now);
}

void RequireNoCheckpointLost(const RunDirectory& directory) {
  const std::string remedy = fmt::format("put its checkpoints back into {}, or begin anew ({})",
                                         directory.CheckpointPath(), FlagWords("overwrite"));
  RunManifest manifest;
  try {
    manifest = directory.ReadManifest();
  } catch (const Error& error) {
    Fail("cannot resume without a checkpoint: {}; {}", error.what(), remedy);
  }
  Require(manifest.updates == 0 && manifest.status != RunManifest::kRunning,
          "cannot resume: the run in {} has had checkpoints, but they are gone; {}",
          directory.path(), remedy);
}

}  // namespace lopt
