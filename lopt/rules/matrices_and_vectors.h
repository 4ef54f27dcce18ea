#pragma once

#include <memory>
#include <span>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

struct MatricesAndVectorsOptions {
  Config matrices;
  Config vectors;
  void Visit(FieldVisitor& v);
};

// Two optimizers: one steps the tensors of two axes or more, the other the rest, biases and scales,
// each as if it had no others. So matrices may have orthogonal steps and vectors those of Adam.
// The length of the run and the loss are needed where one of the two needs them, and the learning
// rate that rules report is that of matrices, if there are any.
//
// Theta: that of `matrices` under "matrices/", then that of `vectors` under "vectors/".
// State: what each keeps for its tensors, with the same prefixes.
class MatricesAndVectors : public LearnedOptimizer {
 public:
  // Makes both by OptimizerRegistry(). Throws Error if one of them has numbers of the run in its
  // state (LearnedOptimizer::run_state_size), as Celo has.
  explicit MatricesAndVectors(const MatricesAndVectorsOptions& options);
  // Of optimizers that are there. Throws Error likewise.
  MatricesAndVectors(std::shared_ptr<const LearnedOptimizer> matrices,
                     std::shared_ptr<const LearnedOptimizer> vectors);

  bool sees_shapes() const override { return true; }
  bool needs_loss() const override { return matrices_->needs_loss() || vectors_->needs_loss(); }
  Precision precision() const override;

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override;
  // Throws Error where the params that a training stands for are in the state of one that has
  // tensors.
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  std::shared_ptr<const LearnedOptimizer> matrices_;
  std::shared_ptr<const LearnedOptimizer> vectors_;
};

}  // namespace lopt
