#pragma once

#include "lopt/evaluation/evaluated_optimizers.h"

namespace lopt {

// Judges after every learned optimizer what its meta-training began with, under the names that
// StartOf gives: with its steps as they are, and times 0.3. It is the theta that `lopt meta-train
// --steps 0` writes. Throws Error if there is no learned optimizer, if one does not say how it was
// meta-trained, or if that began with a theta file.
void AddStarts(EvaluatedOptimizers* optimizers);

}  // namespace lopt
