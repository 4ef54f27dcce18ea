#pragma once

#include <memory>
#include <span>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/rules/of_another.h"

namespace lopt {

struct OrthogonalStepsOptions {
  Config optimizer;
  void Visit(FieldVisitor& v);
};

// Another optimizer whose steps of matrices are made orthogonal, as Muon's are, and keep their
// size. With p - s what the optimizer makes of a tensor p of two axes or more, a matrix of its last
// axis and all others, it becomes
//   p - |s| x / |x|, x = NewtonSchulz(s / |s|),
// with Frobenius norms and five iterations of x <- a x + (b X X^T + c (X X^T)^2) x with Celo2's
// numbers, after which all singular values of x lie about 1. Other tensors, and steps of
// zeros, stay as they are.
//
// Theta and state are the optimizer's own.
class OrthogonalSteps : public OfAnotherOptimizer {
 public:
  // Makes the optimizer by OptimizerRegistry().
  explicit OrthogonalSteps(const OrthogonalStepsOptions& options);
  // Of an optimizer that is there.
  explicit OrthogonalSteps(const std::shared_ptr<const LearnedOptimizer>& optimizer);

  bool sees_shapes() const override { return true; }

 private:
  // Throws Error where the params that a training stands for are in the optimizer's state.
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

}  // namespace lopt
