#pragma once

#include "lopt/evaluation/evaluated_optimizers.h"

namespace lopt {

// Judges after every learned optimizer the same one untrained, under the names that StartOf gives:
// with its steps as they are, and times 0.3. It is the theta that is drawn with the seed of the
// meta-training, which a first phase began with where this was the second (init_theta). Throws
// Error if there is no learned optimizer or one does not say how it was meta-trained.
void AddStarts(EvaluatedOptimizers* optimizers);

}  // namespace lopt
