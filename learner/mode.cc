#include "lopt/learner/mode.h"

#include <fmt/core.h>

#include <memory>

#include "lopt/base/error.h"

namespace lopt {

void SyncOptions::Visit(FieldVisitor& v) {
  v.Field("deadline_seconds", &deadline_seconds, AtLeast(0),
          "An update goes ahead after this time without the workers that are late; 0: it waits for "
          "all. Runs with it are not reproducible bit for bit.");
  v.Field("quorum", &quorum, AtLeast(0),
          "The fewest workers of an update whose deadline has passed.");
}

void AsyncOptions::Visit(FieldVisitor& v) {
  v.Field("batch_size", &batch_size, Between(1, 1e6), "Gradients of an update.");
  v.Field("staleness", &staleness, AtLeast(0),
          "Updates that a gradient's weights may be behind when it is used.");
  v.Choice("staleness_policy", &staleness_policy, kStalenessPolicies,
           "What becomes of gradients that are behind further: dropped and counted, or used with "
           "weight 1 / (1 + updates behind) (discount) or 1 / updates behind (divide).");
}

Registry<Mode>& ModeRegistry() {
  static Registry<Mode> registry = [] {
    Registry<Mode> modes("mode");
    modes.Add<SyncOptions>(
        "Sync", "An update is the mean over all workers: the same bits on any number of processes.",
        [](const SyncOptions& options) {
          Require((options.deadline_seconds > 0) == (options.quorum > 0),
                  "deadline_seconds and quorum go together: the time after which an update goes "
                  "ahead and the workers that it needs at least; got {} and {}",
                  options.deadline_seconds, options.quorum);
          return std::make_shared<Mode>(options);
        });
    modes.Add<AsyncOptions>(
        "Async",
        "Workers do not wait; an update takes batch_size gradients as they come. Not reproducible "
        "bit for bit.",
        [](const AsyncOptions& options) { return std::make_shared<Mode>(options); });
    return modes;
  }();
  return registry;
}

std::string WhyNotReproducible(const Mode& mode) {
  if (std::holds_alternative<AsyncOptions>(mode)) {
    return "mode Async: the result depends on timing, so it is not reproducible bit for bit";
  }
  const double deadline = std::get<SyncOptions>(mode).deadline_seconds;
  return deadline > 0
             ? fmt::format(
                   "deadline_seconds is {}: updates may go ahead without late workers, so the "
                   "result is not reproducible bit for bit",
                   deadline)
             : "";
}

}  // namespace lopt
