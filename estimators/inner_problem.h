#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/estimators/theta_rows.h"

namespace lopt {

class Device;

// What inner training may know of the meta-training around it.
struct OuterState {
  int64_t outer_step = 0;  // updates of theta so far
};

// Everything about B running replicas that lives between two windows: arrays whose first dimension
// is B. Which ones there are is the problem's business; moving, saving and cutting them is
// anybody's.
using UnrollState = NamedArrays;

// Rows [first, first + rows) of all arrays of a state.
UnrollState TakeRows(const UnrollState& state, int64_t first, int64_t rows);
// A state of 2B replicas: those of `state` [B] and a copy of each.
UnrollState Twice(const UnrollState& state);

// What K inner steps of B replicas gave. Arrays are [K, B] and column-major: a replica's steps are
// contiguous.
struct UnrollTrace {
  Eigen::ArrayXXd loss;  // meta-loss; NaN where it must not be used (see `non_finite`)
  Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic> is_last;     // the last loss of its episode
  Eigen::Array<bool, Eigen::Dynamic, Eigen::Dynamic> non_finite;  // the raw loss was not finite
  Eigen::Array<int64_t, Eigen::Dynamic, Eigen::Dynamic>
      iteration;  // 0-based inner step of the loss in its episode

  // A number of each inner step that is worth a metric of this name, such as "task/accuracy".
  struct Noted {
    std::string name;        // of the metric
    Eigen::ArrayXXf values;  // [K, B]; those that are not finite are left out of means
  };
  // Distinct names GROUP/NAME. Empty, unless the problem notes something.
  std::vector<Noted> noted;

  // All arrays to [steps, replicas], and nothing noted; what they held is lost.
  void Resize(int64_t steps, int64_t replicas);
};

// One window: what B replicas run under, how far, and where the outcome goes.
struct Window {
  ThetaRows theta = {};            // B rows
  OuterState outer = {};           // when in the run it is
  std::span<const Key> keys = {};  // [B]: what replica b draws from; a pair shares keys
  int64_t steps = 0;               // K
  UnrollState* state = nullptr;    // of B replicas, advanced in place
  UnrollTrace* trace = nullptr;    // resized to [K, B] and filled
};

// What an estimator differentiates: replicas of something that is trained step by step under theta.
// Knows nothing of tasks. Immutable, thread-safe.
class InnerProblem {
 public:
  virtual ~InnerProblem() = default;
  InnerProblem(const InnerProblem&) = delete;
  InnerProblem& operator=(const InnerProblem&) = delete;

  // D numbers.
  const Layout& theta_layout() const { return theta_layout_; }
  // Whether an episode can end (and a new one begin) inside a window; false under a NeverEnding
  // schedule.
  virtual bool EpisodesEnd() const = 0;
  // Where its windows run, and so where an estimator adds up what they give; null: on the host.
  virtual const Device* device() const { return nullptr; }
  // Its memory, or the host's.
  const Memory& memory() const;

  // Fresh replicas, one for each row of theta, replica b drawn with keys[b] (equal keys, equal
  // draws) and begun under its row; what theta does to an episode's start counts anew in the window
  // that takes its first step. A horizon, where given, replaces the problem's own schedule:
  // the episode length is the horizon and nothing restarts.
  UnrollState Start(const ThetaRows& theta, const OuterState& outer, std::span<const Key> keys,
                    std::optional<int64_t> horizon = {}) const;

  // Advances every replica of the window's state under its own row of theta. Replica b draws what
  // it needs from keys[b], its episode and its inner step, so one window of 50 steps equals two of
  // 25 under the same keys, bit for bit. An episode that ends restarts at once: the next inner step
  // is the first of the new episode, under the row that theta names for it. Throws Error if the
  // number of rows, keys and the state's replicas disagree, or a noted number's name or size is not
  // as UnrollTrace has it; after an Error from within the inner steps the state is of no use.
  void Run(const Window& window) const;

  // The meta-loss of each replica as it stands, on the fresh outer batch that keys[b] names, before
  // OnScale, so that several batches have a mean. NaN where the raw loss is not finite and must not
  // be used.
  void MetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState& state,
                std::span<double> loss) const;
  // What counts of such a meta-loss or of a mean of some: its logarithm, where the problem's
  // meta-loss is one. The losses of Run are on this scale already. NaN stays NaN.
  virtual double OnScale(double loss) const { return loss; }

 protected:
  // The layout of the theta that its replicas run under.
  explicit InnerProblem(Layout theta) : theta_layout_(std::move(theta)) {}

 private:
  void CheckRows(const ThetaRows& theta, std::span<const Key> keys) const;
  void CheckReplicas(const UnrollState& state, int64_t rows) const;

  virtual UnrollState DoStart(const ThetaRows& theta, const OuterState& outer,
                              std::span<const Key> keys, std::optional<int64_t> horizon) const = 0;
  virtual void DoRun(const Window& window) const = 0;
  virtual void DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                          const UnrollState& state, std::span<double> loss) const = 0;

  Layout theta_layout_;
};

}  // namespace lopt
