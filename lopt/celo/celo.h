#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// Celo, CeloAdam and Sinv6: the learned optimizers of Moudgil et al. 2025 (amoudgl/celo; arXiv
// 2501.12670) and of two AlgoPerf submissions (mlcommons/submissions_algorithms). All need the
// loss of the batch before its update, StepInfo::loss, and the length of the run. A scheduler,
// one network for the whole run (lopt/celo/celo_scheduler.h), makes a number o of them; what
// steps a tensor differs. Gradients are clipped to [-1000, 1000] first. A NaN among the losses
// spoils all tensors for good.
//
// Theta has the names and shapes of the published files, without haiku's "~".

struct CeloOptions {
  bool scheduled = true;
  int64_t lstm_size = 64;
  void Visit(FieldVisitor& v);
};

// Of CeloAdam and Sinv6.
struct ScheduledMomentsOptions {
  int64_t lstm_size = 64;
  void Visit(FieldVisitor& v);
};

// A network with ReLU between its layers, 30-4-4-3, maps the features of each parameter to o0 and
// o1 (the third output has no effect), and of a tensor p
//   p <- p - s .001 o0 exp(.001 o1) sqrt(mean of p^2 + 1e-9),   s = .1 exp(o),
// or s = 1 unless `scheduled`, which needs neither losses nor the run's length: the first phase of
// its meta-training. With m_k (decays .9, .99, .999), r (.999) and the factored second moments
// row_k and col_k (.9, .99, .999; lopt/network/factored.h) of the clipped gradient g, all already
// updated, F_k the product of the moments' factors and q = 1 / sqrt(r + 1e-6), the features are
//   g, g clipped to [-.1, .1], p, m_k, r, m_k q, q, g F_k, g q, row_k, col_k,
//   1 / sqrt(row_k + 1e-8), 1 / sqrt(col_k + 1e-8), m_k F_k.
// A tensor of fewer than two axes has v_k <- d_k v_k + (1 - d_k)(g^2 + 1e-30) for row_k and col_k,
// F_k = 1 / sqrt(v_k + 1e-9), and m_k / sqrt(v_k) for m_k F_k. Each feature is divided by
// sqrt(1e-5 + its mean square over the tensor). A NaN gradient spoils its tensor for good.
//
// Theta: below ff_mod_stack/ "w0__0" .. "w0__13" [1, rows, 4], the first layer's weights by blocks
// of features, "b0" [1, 4], "w1" [1, 4, 4], "b1", "w2" [1, 4, 3], "b2", then the scheduler's:
// 37,089 numbers. State: for each tensor T "momenta/T" [3, shape], "rms/T" [1, shape] and "v_row/T"
// [3, row] and "v_col/T" [3, col], or "v/T" [3, shape], behind the scheduler's.
class Celo : public LearnedOptimizer {
 public:
  static constexpr int64_t kHidden = 4;
  static constexpr int64_t kFeatures = 30;
  static constexpr int64_t kOutputs = 3;
  static constexpr float kMultiplier = 1e-3f;  // of the step, and of o1

  explicit Celo(const CeloOptions& options = {});

  bool sees_shapes() const override { return true; }
  int64_t run_state_size() const override;
  bool needs_loss() const override { return options_.scheduled; }
  const CeloOptions& options() const { return options_; }

 private:
  // Weights: normal truncated at two standard deviations, times 1 / sqrt(in). All else: 0.
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  CeloOptions options_;
};

// What CeloAdam and Sinv6 share. Theta: the scheduler's, 36,865 numbers. State: the scheduler's,
// then "m/T" and "r/T" of each tensor T.
class ScheduledMomentsLOpt : public LearnedOptimizer {
 public:
  int64_t run_state_size() const override;
  bool needs_loss() const override { return true; }

 protected:
  ScheduledMomentsLOpt(const char* type, const ScheduledMomentsOptions& options);

  ScheduledMomentsOptions options_;

 private:
  // As Celo's.
  void DoInitTheta(Key key, std::span<float> theta) const override;
};

// Adam with the scheduler's learning rate:
//   m <- .9 m + .1 g, r <- .999 r + .001 g^2,
//   p <- p - .0001 exp(o) mh / (1e-8 + sqrt(rh + 1e-10)),
// where mh and rh are m and r without their bias, m / (1 - .9^(t+1)) and r / (1 - .999^(t+1)).
class CeloAdam : public ScheduledMomentsLOpt {
 public:
  explicit CeloAdam(const ScheduledMomentsOptions& options = {})
      : ScheduledMomentsLOpt("CeloAdam", options) {}

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

// The same without bias corrections, with steps in proportion to the params' size, and a rate that
// is linear in o:
//   p <- p - .001 clip(o, 1e-5, 1000) m / (1e-8 + sqrt(r + 1e-10)) sqrt(mean of p^2 + 1e-9).
// A fresh theta's rate is at its least, where theta has no effect, in half of all steps. Of a file
// of weights, nothing but its name tells whether they are CeloAdam's or Sinv6's.
class Sinv6 : public ScheduledMomentsLOpt {
 public:
  explicit Sinv6(const ScheduledMomentsOptions& options = {})
      : ScheduledMomentsLOpt("Sinv6", options) {}

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

}  // namespace lopt
