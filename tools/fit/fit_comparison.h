#pragma once

#include <vector>

#include "lopt/evaluation/baselines.h"
#include "lopt/tools/fit/fit_context.h"
#include "lopt/tools/fit/fit_verdict.h"

namespace lopt {

// Who is tuned with as much time as fitting took.
const std::vector<Baseline>& FitRivals();

// Judges with every seed, on the split test, what was fitted, unless that is the start, then the
// start, and the rivals, which it tunes. A part of a fit.
bool CompareFit(FitContext* fit);

// Whom the record has, with their losses.
std::vector<FitJudged> ReadFitJudged(const FitDirectory& directory);

}  // namespace lopt
