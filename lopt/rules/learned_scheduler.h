#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/config.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_schedule.h"
#include "lopt/lopt/rules/of_another.h"

namespace lopt {

struct LearnedSchedulerOptions {
  Config optimizer;
  int64_t hidden_size = 8;
  double step_size = 0.15;
  double weight_decay = 5e-4;
  RateSchedule schedule = RateSchedule::kCosine;
  void Visit(FieldVisitor& v);
};

// Another optimizer, of whose steps only the directions are kept: a small network says for each
// tensor how large the step is and how much the tensor decays. It sees how the training of the
// tensor goes, not the tensor's elements (controllers of step sizes: Daniel, Taylor and Nowozin
// 2016; Almeida, Winter, Tang and Zaremba 2021, arXiv 2106.00958).
//
// With p a tensor of n elements, s the step p - u that the optimizer would make of it to u, c its
// columns (its last axis; 1 if it has no axes), r = n / c its rows and o the network's two outputs,
//   p <- p - a s / rms(s) - b p,   a = step_size schedule exp(min(o0, 10)) / sqrt(max(r, c)),
//                                  b = min(1, weight_decay schedule exp(min(2 o1, 10))),
// where a step s of zeros stays one. A vector's step has the length step_size and an orthogonal
// matrix' step the spectral norm step_size, where o0 and the schedule leave them so.
//
// The network has one layer of `hidden_size` tanh units h and is linear beside it,
//   o = [f, h] W + b,   h = tanh(f V + d),
// and its features f, with t = StepInfo::step, T = StepInfo::num_steps, g the gradient, l the last
// step that was made with all its factors but without decay, cos(x, y) 0 where x or y is 0, and
// M_k(x) the mean of x so far by m <- k m + (1 - k) x, divided by 1 - k^(t + 1), are
//    0  2 t / T - 1
//    1  (ln T - 5.5) / 2
//    2  exp(-t / 10)
//    3  3 M_.9(cos(g, l))             whether steps are too small or too large
//    4  5 M_.99(cos(g, l))
//    5  3 M_.9(cos(g, s)) - 1         how much of the direction is this batch's
//    6  ln(M_.9(q) / M_.999(q)) / 2 in [-20, 3], q = min(mean square of g, 1e30); -20 where one of
//       the means is 0
//    7  (ln(max(mean square of p, 1e-8)) / 2 + 2) / 2
//    8  (ln r - 3) / 2
//    9  (ln c - 3) / 2
//   10  1 for tensors of two axes or more, -1 for others.
// All are formed in float64. None depends on the scale of the gradient.
//
// The step is formed as the difference of params in float32, so an optimizer whose steps are small
// beside the params loses digits of its direction: give it a large learning rate, which
// changes nothing else.
//
// Theta: the optimizer's under "optimizer/", "scheduler/hidden/w" [11, hidden_size] V,
// "scheduler/hidden/b" [hidden_size] d, "scheduler/out/w" [11 + hidden_size, 2] W, the rows of f
// first, "scheduler/out/b" [2] b.
// State: the optimizer's under "optimizer/", l of each tensor, "step/<tensor>", and its five means
// in the order of the features, "means/<tensor>" [5]: M of cos(g, l) twice, cos(g, s), q by .999
// and by .9, all before their division.
class LearnedScheduler : public OfAnotherOptimizer {
 public:
  static constexpr int64_t kFeatures = 11;
  static constexpr int64_t kOutputs = 2;

  // Makes the optimizer by OptimizerRegistry().
  explicit LearnedScheduler(const LearnedSchedulerOptions& options);
  // Of an optimizer that is there, in place of the options' one.
  LearnedScheduler(const LearnedSchedulerOptions& options,
                   const std::shared_ptr<const LearnedOptimizer>& optimizer);

  bool sees_shapes() const override { return true; }

 private:
  // The optimizer's; V as InitLayer draws it; W is 0 but for o0's of the features 1, which is -1,
  // 3, which is .3, and 6, which is .5; biases 0. So steps begin as step_size / sqrt(T / e^5.5),
  // larger while gradients agree with the last step and smaller as they shrink.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  // Throws Error where the params that a training stands for are in the optimizer's state.
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  LearnedSchedulerOptions options_;
};

}  // namespace lopt
