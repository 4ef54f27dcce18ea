#pragma once

#include <cstdint>
#include <functional>

#include "lopt/base/environment.h"
#include "lopt/base/key.h"
#include "lopt/tools/fit/fit.h"
#include "lopt/tools/fit/fit_directory.h"
#include "lopt/tools/fit/fit_phase.h"
#include "lopt/tools/fit/fit_trainings.h"

namespace lopt {

// What the parts of a fit work with. Each part is a function of it, which does nothing where the
// record has the part's result already, notes the result in the record, and returns false if it was
// stopped.
struct FitContext {
  const FitOptions& options;
  std::function<void(const FitStage&, double)> tell;  // that a share of a stage, in [0, 1], is done
  FitDirectory& directory;
  FitTrainings& trainings;
  Key key;  // of its draws, each by one of FitDraw

  FitRecord& record() { return directory.record(); }
  const FitRequest& request() const { return directory.request(); }
  bool stopped() const { return options.stop != nullptr && *options.stop; }
};

// What FitContext::key is folded with, for each purpose.
enum class FitDraw : uint64_t { kMeasure = 0, kMultiplier = 1, kCandidate = 2, kSearch = 3 };

inline Key FitKey(const FitContext& fit, FitDraw draw) {
  return FoldIn(fit.key, static_cast<uint64_t>(draw));
}

inline double FitSecondsSince(SteadyClock::time_point start) {
  return SecondsBetween(start, SteadyClock::now());
}

}  // namespace lopt
