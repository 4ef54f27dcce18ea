#pragma once

#include <span>

#include "lopt/lopt/network/factored.h"

namespace lopt {

// The arithmetic of lopt/network/factored.h in plain loops, in float32. Nothing of a tensor without
// elements.

// The means over the largest axis (row) and over the second largest (col).
void FactoredMeanSquares(const FactoredShape& shape, std::span<const float> gradient,
                         std::span<float> row, std::span<float> col);

// average <- decay average + (1 - decay) x.
void DecayAverage(float decay, std::span<const float> x, std::span<float> average);

void FactoredRsqrt(const FactoredShape& shape, std::span<const float> v_row,
                   std::span<const float> v_col, std::span<float> row_factors,
                   std::span<float> col_factors);

}  // namespace lopt
