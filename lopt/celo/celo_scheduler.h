#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/celo/celo_kernel.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// What the losses of a training say to the scheduler of Celo.
struct CeloLosses {
  static constexpr int kScales = 10;
  static constexpr int kFeatures = kScales - 1;

  std::array<double, kScales> means = {};   // running means, which start at 0
  std::array<double, kScales> minima = {};  // the least of the corrected means so far

  // The decays of the means in a run of so many steps: exp(-1 / h_k), rounded to float32, with ten
  // time scales h_k from 10 to num_steps, evenly spaced in their logarithms. They fall where
  // num_steps is below 10.
  static std::array<double, kScales> Decays(int64_t num_steps);

  // Takes the loss of step `step`, 0 at the first, and returns the features after it. With d the
  // decays, n = step + 1 and the corrected means c_k = M_k / (1 - d_k^n), first of the means as
  // they are and then of the new ones:
  //   l <- min(loss, 2 |max_k c_k|), but the loss itself at step 0;
  //   M_k <- d_k M_k + (1 - d_k) l,  R_k <- min(R_k, c_k);
  //   f_k = (c_k - R_k) / max(1e-8, c_{k+1} - R_k) - 1, clipped to [-1, 1]; all 0 at steps 0 and 1.
  // A mean that has never been lower has f_k = -1. NaN stays.
  std::array<float, kFeatures> Take(double loss, int64_t step, int64_t num_steps);
};

// The scheduler that Celo, CeloAdam and Sinv6 share: a network with one LSTM for the whole run,
// which maps the progress of a training and its losses to one number o(t) for a step. No tensor has
// a part in it.
//
// Its inputs u [18] are tanh(10 (x - c)) with x = step / num_steps, for c = .03, .1, .2, .4, .6,
// .8, .9, 1, 1.1, and the nine features of CeloLosses. With the layers below rnn_params/,
//   y = linear_2(u) + relu(linear_1(u));
//   gates i, g, f, o = rnn/linear([y, h]); c <- sigmoid(f + 1) c + sigmoid(i) tanh(g),
//   h <- sigmoid(o) tanh(c); the output is step_size(h).
// The published code has an LSTM for each tensor, all of which compute the same for ever, and two
// layers without an effect, rnn_params/linear and Celo's rnn_params/rnn_to_controls: they are in
// theta, and nothing reads them.
//
// State: "hidden" and "cell" [lstm_size] (h and c), "loss_means" and "loss_minima" [10, 2], each
// number as the float32 nearest to it and the float32 nearest to the rest: in float32 alone,
// features of a constant loss would be noise. Step 0 does not read the state: h and c begin as
// theta's lstm_init_state, means as 0, minima as 1e12.
class CeloScheduler {
 public:
  static constexpr int kProgress = 9;
  static constexpr int kInputs = kProgress + CeloLosses::kFeatures;

  using Tensors = std::vector<std::pair<std::string, Shape>>;

  // Theta's tensors under their published names, with those of rnn_to_controls if `controls`.
  static Tensors ThetaTensors(int64_t lstm_size, bool controls);
  static Tensors StateTensors(int64_t lstm_size);
  static int64_t StateSize(int64_t lstm_size);  // numbers of these
  // Weights as those of MLPLOpt; biases and the LSTM's first state are 0.
  static void InitTheta(Key key, const Layout& layout, std::span<float> theta);

  // Of a theta of this layout.
  CeloScheduler(int64_t lstm_size, const Layout& layout, std::span<const float> theta);

  int64_t state_size() const { return StateSize(static_cast<int64_t>(size_)); }
  // One step: advances `state` [state_size], and returns the output. The step need not be below
  // num_steps.
  float Step(const StepInfo& info, std::span<float> state, Workspace& scratch) const;
  // The inputs [18] of that step. Advances the losses of the state alone, and at step 0 begins all.
  std::array<float, kInputs> Inputs(const StepInfo& info, std::span<float> state) const;

 private:
  void Begin(std::span<float> state) const;

  size_t size_;
  std::vector<float> hidden_;  // at the start
  std::vector<float> cell_;
  SchedulerLayers layers_;
};

}  // namespace lopt
