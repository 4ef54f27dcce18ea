#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

// What has a scale of its own: nothing (the scale is 1), all params together, each tensor, each
// number. From coarse to fine.
enum class ReparamLevel { kNone, kGlobal, kTensor, kParameter };
inline constexpr Named<ReparamLevel> kReparamLevels[] = {{ReparamLevel::kNone, "none"},
                                                         {ReparamLevel::kGlobal, "global"},
                                                         {ReparamLevel::kTensor, "tensor"},
                                                         {ReparamLevel::kParameter, "parameter"}};

struct ReparamWeightsOptions {
  std::vector<ReparamLevel> levels = {ReparamLevel::kGlobal};
  std::vector<double> ranges = {0.01, 100};  // lo, hi, lo, hi, ...
  void Visit(FieldVisitor& v);
};

// The same tasks in other units: the loss at params w is the task's at s w, so params start at
// w0 / s and gradients are s times the task's at s w. SGD of learning rate r here is SGD of r s^2
// on the task, Adam of r is Adam of r s (Metz et al. 2022, "VeLO").
//
// A task of the family draws one of the levels and one of the ranges [lo, hi], each with equal
// probability, and its scales: ln s is uniform on [ln lo, ln hi]. Config "scale" holds as many
// scales as the finest of the levels has ([1], [tensors] or [params]; coarser levels repeat
// theirs).
class ReparamWeights : public TaskWrapper {
 public:
  // Throws Error as CheckOptions does, and unless there are levels and `ranges` are pairs of
  // ascending or equal numbers.
  ReparamWeights(const std::shared_ptr<const TaskFamily>& task,
                 const ReparamWeightsOptions& options);

 private:
  void DoSample(Key key, std::span<float> config) const override;
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  // Multiplies rows of params by the scales of the configs.
  void Scale(std::span<const float> config, int64_t rows, std::span<float> params) const;
  // `e` at the scaled params, which are in scratch.
  TaskEvaluation AtScaled(const TaskEvaluation& e, Workspace& scratch) const;

  ReparamWeightsOptions options_;
  ReparamLevel finest_;
};

}  // namespace lopt
