#pragma once

#include <array>
#include <cstdint>

#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

struct RNNMLPLOptOptions {
  int64_t hidden_size = 32;
  int64_t hidden_layers = 2;
  int64_t lstm_hidden_size = 64;
  int64_t lstm_to_ff = 17;
  int64_t from_mlp_size = 16;
  int64_t from_lstm_size = 18;
  double exp_mult = 1e-3;
  double step_mult = 1e-3;
  void Visit(FieldVisitor& v);
};

// The learned optimizer of Metz et al. 2020 (arXiv 2009.11243; google/learned_optimization,
// RNNMLPLOpt), as its definition reads and in float32; means are summed in float64. An LSTM with a
// state of its own for each tensor, whose output, averaged over the tensors, is among the inputs of
// all at the next step, tells the tensor's elements lstm_to_ff numbers; a network maps these and
// the features of an element to its step and to from_mlp_size numbers, whose means over the tensor
// the LSTM sees at the next step. So no tensor can be updated without the others. A tensor without
// elements takes no part.
//
// One update, with the n tensors v and their gradients:
//   g  <- gradient, clipped to +-10 s / (1 - .99^(t+1)); t is StepInfo::step
//   s  <- .99 s + .01 sqrt(1e-8 + mean over the tensors of the mean square of g); s starts at .01
//   m_k <- d_k m_k + (1 - d_k) g,  r_k <- d_k r_k + (1 - d_k) g^2
//   loss features: mean and variance with decay .9 of StepInfo::loss l,
//     M <- .9 M + .1 l, V <- .9 V + .1 (M - l)^2, both divided by 1 - .9^(t+1) + 1e-8;
//     (x - M) / sqrt(V + 1e-8) clipped to +-5, for x = l and for x = 0: a validation loss, which
//     the definition has a place for, is none in our trainings
//   LSTM: inputs in the order of LstmInputs (.cc), hidden state behind them; gates i, g, f, o, one
//     is added to f
//   network: kNormalized features, each divided by sqrt(1e-5 + its mean square over the tensor), g,
//     v, log(|v| + 1e-8), m, r, m / sqrt(r + 1e-6), 1 / sqrt(r + 1e-6); then sin(t / (tau pi)) for
//     the time scales of MLPLOpt, log(n) - 1, log(|v|_2 + 1e-8), log of the tensor's size, and what
//     the LSTM says
//   v <- v - o0 exp(o1 exp_mult) step_mult
// A loss that is not finite, or a gradient that is NaN, spoils all tensors for good; infinite
// gradients are clipped.
//
// Theta has the published names, without haiku's "~"; 35,799 numbers with the defaults. State, for
// each tensor of shape [...]: "momenta/<tensor>" and "rms/<tensor>" [..., 5], "from_mlp/<tensor>",
// "hidden/<tensor>" and "cell/<tensor>"; for all: "from_lstm", "gradient_scale" (s), "loss_mean"
// and "loss_variance" (M and V). It starts from theta.
class RNNMLPLOpt : public LearnedOptimizer {
 public:
  static constexpr int kDecayCount = 5;
  static constexpr std::array<float, kDecayCount> kDecays = {0.5f, 0.9f, 0.99f, 0.999f, 0.9999f};
  static constexpr int kNormalized = 3 + 4 * kDecayCount;
  static constexpr int kTensorStatistics = 18;

  explicit RNNMLPLOpt(const RNNMLPLOptOptions& options = {});

  bool needs_loss() const override { return true; }

 private:
  // Weights as those of MLPLOpt, biases 0; the first hidden and cell state 0; what the LSTM and the
  // network first get from each other: n numbers of standard deviation 1 / sqrt(n), normal
  // truncated at two of the distribution's before the truncation.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  RNNMLPLOptOptions options_;
};

}  // namespace lopt
