#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/layout.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// Tensors that a learned scheduler may step differently.
enum class TensorKind {
  kFirstMatrix,
  kMatrix,       // neither the first nor the last
  kLastMatrix,   // also the only one
  kConvolution,  // of more than two axes
  kVector        // of fewer than two axes
};

// The words of tables and plots.
inline constexpr Named<TensorKind> kTensorKinds[] = {{TensorKind::kFirstMatrix, "first matrix"},
                                                     {TensorKind::kMatrix, "hidden matrix"},
                                                     {TensorKind::kLastMatrix, "last matrix"},
                                                     {TensorKind::kConvolution, "convolution"},
                                                     {TensorKind::kVector, "vector"}};

// [tensors] of the params, in their order.
std::vector<TensorKind> KindsOf(const Layout& params);

// How a LearnedScheduler (lopt/rules/learned_scheduler.h) stepped one tensor in one update.
struct SchedulerRecord {
  TensorKind kind = TensorKind::kVector;  // of the tensor
  int64_t step = 0;                       // updates made before
  int64_t num_steps = 0;                  // length of the training
  // Of the step, a sqrt(max(r, c)) in the header's words: the length of a vector's step, the
  // spectral norm of an orthogonal matrix'. 0 where the optimizer made no step.
  double size = 0;
  // The fraction of the params that the update took away beside it; none of params that were 0.
  std::optional<double> decay = {};
};

// The rule itself, with `tell` called after every update for every tensor that has elements. It
// must be a LearnedScheduler's.
std::unique_ptr<UpdateRule> RecordSchedulerSteps(std::unique_ptr<UpdateRule> rule,
                                                 std::function<void(const SchedulerRecord&)> tell);

}  // namespace lopt
