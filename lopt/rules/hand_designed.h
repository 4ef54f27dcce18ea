#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "lopt/base/choices.h"
#include "lopt/base/fields.h"
#include "lopt/lopt/learned_optimizer.h"
#include "lopt/lopt/rate_schedule.h"

namespace lopt {

// Hand-designed optimizers of the literature, to compare learned ones with. Theta is the logarithm
// of the learning rate, log_lr [1]; all else are options. lr below is the learning rate times its
// schedule, t = 1, 2, ... counts updates, and every tensor has state of its own, named
// "<what>/<tensor>". Decays (momentum, beta1, beta2) are at most the largest float32 below 1.

// Gradient descent with Nesterov's momentum as in PyTorch (Sutskever et al. 2013):
//   g' = g + weight_decay p, b <- momentum b + g', p <- p - lr (g' + momentum b).
// State: "momentum/<tensor>".
struct NesterovOptions {
  static constexpr const char* kType = "Nesterov";
  static constexpr bool kSeesShapes = false;
  double learning_rate = 0.01;
  double momentum = 0.9;
  double weight_decay = 0;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// Adam with Nesterov's momentum (Dozat 2016) and decoupled weight decay:
//   mhat = beta1 m / (1 - beta1^(t+1)) + (1 - beta1) g / (1 - beta1^t),
//   p <- p - lr (mhat / (sqrt(vhat) + epsilon) + weight_decay p), with m, v and vhat as Adam's.
// State: "m/<tensor>" of all tensors, then "v/<tensor>".
struct NAdamWOptions {
  static constexpr const char* kType = "NAdamW";
  static constexpr bool kSeesShapes = false;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// Lion (Chen et al. 2023):
//   p <- p - lr (sign(beta1 m + (1 - beta1) g) + weight_decay p), m <- beta2 m + (1 - beta2) g.
// State: "m/<tensor>".
struct LionOptions {
  static constexpr const char* kType = "Lion";
  static constexpr bool kSeesShapes = false;
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// Schedule-Free AdamW (Defazio et al. 2024). Gradients are taken at the params y, between the
// params z that are stepped and their average x, which the run stands for
// (UpdateRule::EvalParams):
//   v <- beta2 v + (1 - beta2) g^2,
//   z <- z - lr (g / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay y),
//   x <- (1 - c) x + c z with c = lr_t^2 / (lr_1^2 + ... + lr_t^2), y <- beta1 x + (1 - beta1) z,
// where lr_t rises over the first w = round(warmup_fraction T) of T updates: lr min(1, t / w). So
// it is in the authors' package since that corrects v; the paper's lr_t, and so its c, has
// sqrt(1 - beta2^t) in it instead.
// State: "x/<tensor>" of all tensors, then "z/<tensor>", then "v/<tensor>".
struct ScheduleFreeAdamWOptions {
  static constexpr const char* kType = "ScheduleFreeAdamW";
  static constexpr bool kSeesShapes = false;
  double learning_rate = 2.5e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double warmup_fraction = 0;
  void Visit(FieldVisitor& v);
};

// Prodigy (Mishchenko and Defazio 2023, algorithm 4), Adam that estimates its learning rate as the
// distance d from the initial params x_0 to a solution:
//   m <- beta1 m + (1 - beta1) d g, v <- beta2 v + (1 - beta2) d^2 g^2,
//   r <- b r + (1 - b) lr d^2 <g, x_0 - p>, s <- b s + (1 - b) lr d^2 g with b = sqrt(beta2),
//   p <- p - lr d (m / (sqrt(v) + d epsilon) + weight_decay p), then d <- max(d, r / |s|_1),
// where the product and the norm are over all tensors. Where the norm is 0, p and d stay.
// State: "d" [1], which begins with initial_distance, "r" [1], then "x0/<tensor>" of all tensors,
// "m/<tensor>", "v/<tensor>" and "s/<tensor>"; r and s are in units of initial_distance^2.
struct ProdigyOptions {
  static constexpr const char* kType = "Prodigy";
  static constexpr bool kSeesShapes = false;
  double learning_rate = 1;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double initial_distance = 1e-6;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// What Muon's step of a matrix of R rows and C columns is multiplied by, [in, out]:
//   original         sqrt(max(1, C / R)), as its authors have it;
//   match_rms_adamw  0.2 sqrt(max(R, C)), which gives steps the size of AdamW's (Liu et al. 2025).
enum class MuonScale { kOriginal, kMatchRmsAdamW };
inline constexpr Named<MuonScale> kMuonScales[] = {{MuonScale::kOriginal, "original"},
                                                   {MuonScale::kMatchRmsAdamW, "match_rms_adamw"}};

// Muon (Jordan et al. 2024). Of a tensor of two dimensions or more, as the matrix of its last axis
// and all others:
//   b <- momentum b + (1 - momentum) g, u = momentum b + (1 - momentum) g,
//   p <- p - lr (scale O(u) + weight_decay p),
// where O makes u nearly orthogonal: X = u over its Frobenius norm, at least 1e-7, with no more
// rows than columns (else transposed), then five times
//   A = X X^T, X <- 3.4445 X + (-4.775 A + 2.0315 A A) X.
// Other tensors are stepped by AdamW with adamw_rate times lr and the same weight_decay, decays .9
// and .95 and epsilon 1e-8.
// State: "momentum/<tensor>", or "m/<tensor>" and "v/<tensor>".
struct MuonOptions {
  static constexpr const char* kType = "Muon";
  static constexpr bool kSeesShapes = true;
  double learning_rate = 1e-3;
  double momentum = 0.95;
  double weight_decay = 0;
  double adamw_rate = 1;
  MuonScale scale = MuonScale::kMatchRmsAdamW;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// SOAP (Vyas et al. 2024): Adam in the eigenbases of Shampoo's statistics. Of a tensor of two
// dimensions or more, as the matrix G of its last axis and all others:
//   L <- beta2 L + (1 - beta2) G G^T, R <- beta2 R + (1 - beta2) G^T G after each update;
//   QL and QR are the eigenvectors of L and R after the first update, which steps no param, and
//   after every `frequency` updates from then on the QR decomposition's Q of L QL and R QR, columns
//   (and v with them) in falling order of the diagonals of QL^T L QL and QR^T R QR;
//   m <- beta1 m + (1 - beta1) G, v <- beta2 v + (1 - beta2) (QL^T G QR)^2,
//   u = QL ((QL^T m QR) / (sqrt(v) + epsilon)) QR^T,
//   p <- (1 - lr weight_decay) (p - lr sqrt(1 - beta2^(t-1)) / (1 - beta1^(t-1)) u).
// A side longer than max_side has no basis (Q is the identity), nor have the other tensors.
// State: "m/<tensor>", "v/<tensor>" and, where they are, "L/<tensor>", "QL/<tensor>" [rows, rows],
// "R/<tensor>", "QR/<tensor>" [columns, columns]. New bases take memory beside the scratch memory.
struct SOAPOptions {
  static constexpr const char* kType = "SOAP";
  static constexpr bool kSeesShapes = true;
  double learning_rate = 3e-3;
  double beta1 = 0.95;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  int64_t frequency = 10;
  int64_t max_side = 1024;
  RateSchedule schedule = RateSchedule::kConstant;
  void Visit(FieldVisitor& v);
};

// The optimizer of such options. The constructor throws Error as CheckOptions does.
template <class Options>
class HandDesigned : public LearnedOptimizer {
 public:
  explicit HandDesigned(const Options& options = {});
  bool sees_shapes() const override { return Options::kSeesShapes; }

 private:
  void DoInitTheta(Key key, std::span<float> theta) const override;
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;

  Options options_;
};

using Nesterov = HandDesigned<NesterovOptions>;
using NAdamW = HandDesigned<NAdamWOptions>;
using Lion = HandDesigned<LionOptions>;
using ScheduleFreeAdamW = HandDesigned<ScheduleFreeAdamWOptions>;
using Prodigy = HandDesigned<ProdigyOptions>;
using Muon = HandDesigned<MuonOptions>;
using SOAP = HandDesigned<SOAPOptions>;

}  // namespace lopt
