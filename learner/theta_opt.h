#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/base/layout.h"
#include "lopt/base/type_table.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// What the config of theta_opt has beside the optimizer's own keys.
struct ClippingOptions {
  std::optional<double> clip_by_value;        // each element to [-c, c]
  std::optional<double> clip_by_global_norm;  // then the whole gradient to norm <= c

  void Visit(FieldVisitor& v);
};

// The optimizer of theta ("theta_opt", the outer or meta optimizer): an optimizer of
// OptimizerRegistry(), bound to theta's tensors, whose gradients are clipped first. Immutable,
// thread-safe; its state is passed in.
class ThetaOpt {
 public:
  // Throws Error as ReadFields and the optimizer's maker do, and for an optimizer that begins with
  // drawn weights, which would have to be trained first, or that needs the length of the run
  // although its schedule, if it has one, is resolved (ResolveThetaOpt).
  ThetaOpt(const Config& config, const Layout& theta);

  // The state before the first update of such a theta: "count" (int64 scalar, updates so far) and
  // the tensors of the optimizer's state.
  NamedArrays InitState(std::span<const float> theta) const;
  // One update in place. Throws Error if sizes disagree or the state is not one of this optimizer.
  void Update(std::span<const float> gradient, std::span<float> theta, NamedArrays* state) const;
  // The learning rate that the next update of a theta with this state has; 0 if the optimizer has
  // none.
  double LearningRate(const NamedArrays& state) const;
  // The updates after which the schedule has brought the learning rate to 0, if all further ones up
  // to `updates` have that. None if one has another, if the learning rate was always 0, and of
  // MatricesAndVectors, which has two schedules.
  std::optional<int64_t> EndOfSchedule(const NamedArrays& state, int64_t updates) const;
  // The theta that a training stands for (UpdateRule::EvalParams). Throws Error as Update does.
  std::vector<float> EvalTheta(std::span<const float> theta, const NamedArrays& state) const;

 private:
  std::vector<double> Clipped(std::span<const float> gradient) const;
  std::vector<float> RowOf(const NamedArrays& state) const;
  void RequireOwnState(const NamedArrays& state) const;

  ClippingOptions clipping_;
  std::string type_;
  std::shared_ptr<const UpdateRule> rule_;
};

// The types of OptimizerRegistry() with the keys of ClippingOptions.
const TypeTable& ThetaOptTypes();

// The config of theta_opt for a run of `updates` updates: what its schedule leaves to the length of
// the run is filled in (ResolvedSchedule), and so is total_steps of the schedules of optimizers in
// it, but for those of an UnknownLength.
Config ResolveThetaOpt(const Config& theta_opt, int64_t updates);

}  // namespace lopt
