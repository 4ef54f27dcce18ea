#pragma once

#include "lopt/tools/fit/fit_context.h"

namespace lopt {

// Parts of a fit.

// How fast the task is trained, and how much of it there is time for.
bool MeasureFit(FitContext* fit);

// Seven multipliers of the steps of each kind of candidates, in short trainings.
bool TryStepSizes(FitContext* fit);

// Each kind with the best of these, and the start, in a whole training each.
bool TryKinds(FitContext* fit);

// Candidates in a whole training each, by rounds of multipliers of steps and of decay and momenta:
// one round for each of the two kinds that were best, then rounds for the better.
bool SearchCandidates(FitContext* fit);

// The start and the best of these, in more whole trainings.
bool TryBases(FitContext* fit);

// Meta-trains from the best of them.
bool MetaTrainBase(FitContext* fit);

// What that made, in whole trainings.
bool TryMetaTrained(FitContext* fit);

}  // namespace lopt
