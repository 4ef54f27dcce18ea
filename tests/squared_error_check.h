#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "lopt/base/workspace.h"
#include "lopt/tasks/image/squared_error_kernel.h"
#include "tests/farthest.h"
#include "tests/on_every_isa.h"
#include "tests/reference/squared_error_reference.h"

namespace lopt {

// Checks on every instruction set that the kernel has the loss of the plain loops to a relative
// 1e-6, the running statistics, which start at `statistics`, to 1e-6, and the gradient to this
// share of its largest number.
inline void CheckSquaredError(const MlpShape& shape, MlpEvaluation evaluation,
                              const std::vector<float>& statistics, float tolerance) {
  Workspace scratch;
  std::vector<float> wanted(evaluation.params.size());
  std::vector<float> wanted_statistics = statistics;
  evaluation.gradient = wanted;
  evaluation.statistics = wanted_statistics;
  const float loss = SquaredErrorLossReference(shape, evaluation, scratch);
  const double largest = Farthest(wanted, std::vector<float>(wanted.size()));
  OnEveryIsa([&] {
    std::vector<float> gradient(wanted.size());
    std::vector<float> moved = statistics;
    evaluation.gradient = gradient;
    evaluation.statistics = moved;
    CHECK(SquaredErrorLoss(shape, evaluation, scratch) == doctest::Approx(loss).epsilon(1e-6));
    CHECK(Farthest(gradient, wanted) <= tolerance * largest);
    CHECK(Farthest(moved, wanted_statistics) <= 1e-6F);
    moved = statistics;
    evaluation.gradient = {};
    CHECK(SquaredErrorLoss(shape, evaluation, scratch) == doctest::Approx(loss).epsilon(1e-6));
    CHECK(Farthest(moved, wanted_statistics) <= 1e-6F);
  });
}

}  // namespace lopt
