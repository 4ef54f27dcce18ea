#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/arrays.h"
#include "base/key.h"
#include "base/layout.h"

namespace lopt {

// What inner training may know of the meta-training around it.
struct OuterState {
  int64_t outer_step = 0;  // updates of theta so far
};

// The theta that each of B replicas runs under, made where it is needed. Without perturbations
// every row is theta; with N of them B = 2N and row n is theta + perturbation n, row N + n its
// antithetic twin theta - perturbation n.
struct ThetaRows {
  std::span<const float> theta = {};          // [D]
  std::span<const float> perturbations = {};  // [N, D] or empty
  int64_t rows = 0;                           // B

  void Row(int64_t row, std::span<float> out) const;
};

// Everything about B running replicas that lives between two calls: arrays whose first dimension is
// B. Which ones there are is the problem's business; copying, saving, stacking and cutting them is
// anybody's.
using UnrollState = NamedArrays;

// Rows of all arrays of a state: all of `state` twice, one after the other; rows [first, first +
// rows).
UnrollState StackTwice(const UnrollState& state);
UnrollState TakeRows(const UnrollState& state, int64_t first, int64_t rows);

// What K inner steps of B replicas gave. Arrays are [K, B] and column-major: a replica's steps are
// contiguous.
struct UnrollTrace {
  Eigen::ArrayXXd loss;  // meta-loss; NaN where it must not be used (see `non_finite`)
  Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic> is_last;     // the last loss of its episode
  Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic> non_finite;  // the raw loss was not finite
  Eigen::Array<int64_t, Eigen::Dynamic, Eigen::Dynamic>
      iteration;  // 0-based inner step of the loss in its episode

  void Resize(int64_t steps, int64_t replicas);
};

// What an estimator differentiates: replicas of something that is trained step by step under theta.
// Knows nothing of tasks. Immutable, thread-safe.
class InnerProblem {
 public:
  virtual ~InnerProblem() = default;
  InnerProblem(const InnerProblem&) = delete;
  InnerProblem& operator=(const InnerProblem&) = delete;

  const Layout& theta_layout() const { return theta_layout_; }
  // Whether an episode can end (and a new one begin) inside Run; false under a NeverEnding
  // schedule.
  virtual bool EpisodesEnd() const = 0;

  // `replicas` fresh replicas, replica b drawn with FoldIn(key, b). A horizon, where given,
  // replaces the problem's own schedule: the episode length is the horizon and nothing restarts.
  UnrollState Start(int64_t replicas, const OuterState& outer, Key key,
                    std::optional<int64_t> horizon = {}) const;

  // Advances every replica `steps` inner steps under its own theta row; replica b draws what it
  // needs from keys[b] (twins share keys), its episode and its inner step, so Run(50) equals
  // Run(25) twice under the same keys, bit for bit. An episode that ends restarts at once: the next
  // inner step is the first of the new episode. Throws Error if the number of rows, keys and the
  // state's replicas disagree.
  void Run(const ThetaRows& theta, const OuterState& outer, int64_t steps,
           std::span<const Key> keys, UnrollState* state, UnrollTrace* trace) const;

  // The meta-loss of each replica as it stands, on the fresh outer batch that keys[b] names. NaN
  // where the raw loss is not finite and must not be used.
  void MetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state,
                std::span<double> loss) const;

 protected:
  explicit InnerProblem(Layout theta) : theta_layout_(std::move(theta)) {}

 private:
  void CheckRows(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state) const;

  virtual UnrollState DoStart(int64_t replicas, const OuterState& outer, Key key,
                              std::optional<int64_t> horizon) const = 0;
  virtual void DoRun(const ThetaRows& theta, const OuterState& outer, int64_t steps,
                     std::span<const Key> keys, UnrollState* state, UnrollTrace* trace) const = 0;
  virtual void DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                          const UnrollState& state, std::span<double> loss) const = 0;

  Layout theta_layout_;
};

}  // namespace lopt
