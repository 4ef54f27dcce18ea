#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/celo2/celo2_step_device.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_schedule.h"

namespace lopt {

// How Celo2 steps biases and the like, its "one-dimensional" params:
//   adam     tensors whose name is "b" or ends in "/b" by the Adam of its meta-training, without
//            bias correction: p <- p - lr_1d (m / sqrt(v + 1e-8) + weight_decay p);
//   adamw    tensors of less than two dimensions by the AdamW of its use:
//            p <- p - lr_1d (mhat / (sqrt(vhat) + 1e-8) + weight_decay p);
//   learned  no tensor; the network steps all.
// Adam and AdamW also step tensors with "embed" in their names. Their decays are 0.9 and 0.95,
// their learning rate lr_1d = mult_1d lr. The network steps all other tensors.
enum class OneD { kAdam, kAdamW, kLearned };
inline constexpr Named<OneD> kOneDs[] = {
    {OneD::kAdam, "adam"}, {OneD::kAdamW, "adamw"}, {OneD::kLearned, "learned"}};

struct Celo2BaseOptions {
  double learning_rate = 1e-3;
  double weight_decay = 0;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

struct Celo2Options {
  double learning_rate = 1e-3;
  double weight_decay = 0;
  RateSchedule schedule = RateSchedule::kConstant;
  OneD one_d = OneD::kAdam;
  double mult_1d = 20;
  void Visit(FieldVisitor& v);
};

// Celo2Base is Celo2 without Newton-Schulz and with these options.
Celo2Options AsCelo2(const Celo2BaseOptions& options);

// Celo2-base (amoudgl/celo; paper 2602.19142). A network with ReLU between its layers, 30-8-8-3,
// maps the features of each parameter to a direction, its first output; of the other two the
// published rule makes no use. For a tensor p and its gradient g, clipped to [-1000, 1000]:
//   m_k <- d_k m_k + (1 - d_k) g, r <- .95 r + .05 g^2, q = 1 / sqrt(r + 1e-8);
//   two dimensions or more: second moments row_k and col_k of g (lopt/network/factored.h), F_k =
//   the
//     product of their factors; fewer: v_k <- d_k v_k + (1 - d_k)(g^2 + 1e-30),
//     F_k = 1 / sqrt(v_k + 1e-9);
//   features g, g clipped to [-.1, .1], p, m_k, r, m_k q, q, g F_k, g q and, of two dimensions or
//     more, row_k, col_k, 1 / sqrt(row_k + 1e-8), 1 / sqrt(col_k + 1e-8), m_k F_k (fewer: their
//     weights are not used), each divided by sqrt(1e-9 + its mean square);
//   p <- p - lr (x / sqrt(1e-9 + its mean square) + weight_decay p), where x is the direction and
//     lr the learning rate times its schedule.
// Means are over the last two axes, for each place in the others by itself; a vector has one axis,
// and a scalar is a vector of one element. There is no bias correction and no sense of time.
//
// Theta: "w0__0" .. "w0__13" [rows, 8], the first layer's weights by blocks of features, "b0",
// "w1", "b1", "w2", "b2", under the names of the published files.
// State of each tensor T: "m/T" [3, shape], "r/T" [shape], then "row/T" [3, shape without the
// largest axis] and "col/T" [3, shape without the second largest], or "v/T" [3, shape]. Where Adam
// steps it: "m/T" [shape], "v/T" [shape].
class Celo2Base : public LearnedOptimizer, public Celo2Numbers {
 public:
  explicit Celo2Base(const Celo2BaseOptions& options = {});

  bool sees_shapes() const override { return true; }
  const Celo2Options& options() const { return options_; }
  // Whether Newton-Schulz makes directions orthogonal.
  bool orthogonal() const { return orthogonal_; }

 protected:
  Celo2Base(const char* type, const Celo2Options& options, bool orthogonal);

 private:
  // Weights: normal truncated at two standard deviations, times 1 / sqrt(in). Biases: 0.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  Celo2Options options_;
  bool orthogonal_;
};

// Celo2: as Celo2Base, but the direction of a tensor of two dimensions or more, as the matrices of
// its last two axes, is made nearly orthogonal before it is normalised (Newton-Schulz): X, with no
// more rows than columns (else transposed), over its norm plus 1e-8, then five times
//   A = X X^T, X <- 3.4445 X + (-4.775 A + 2.0315 A A) X;
// and biases are stepped by Adam, as `one_d` says.
class Celo2 : public Celo2Base {
 public:
  explicit Celo2(const Celo2Options& options = {});
};

}  // namespace lopt
