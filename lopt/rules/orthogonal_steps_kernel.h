#pragma once

#include <cstdint>

#include "lopt/base/workspace.h"

namespace lopt {

// Makes a step of a matrix [rows, columns] orthogonal, as OrthogonalSteps says: from `before` to
// `params`, which becomes what the matrix is after it.
void MakeStepOrthogonal(int64_t rows, int64_t columns, const float* before, float* params,
                        Workspace& scratch);

}  // namespace lopt
