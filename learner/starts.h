#pragma once

#include "lopt/evaluation/evaluated_optimizers.h"

namespace lopt {

// Judges after every learned optimizer the same one untrained, under the names that StartOf gives:
// with its steps as they are and, where they can be multiplied, times 0.3. Its theta is drawn with
// the seed of the meta-training, also where that began with a theta file (init_theta). Those that
// do not say how they were meta-trained, such as published weights, have no start: a line in the
// log names them. Throws Error if that leaves none.
void AddStarts(EvaluatedOptimizers* optimizers);

}  // namespace lopt
