#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/key.h"
#include "lopt/learner/aggregation.h"
#include "lopt/learner/theta_opt.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// Everything of the learner that lives between two updates.
struct LearnerState {
  int64_t outer_step = 0;       // updates so far, skipped ones included
  int64_t skipped_updates = 0;  // of these, without effect: the gradient was not finite
  Eigen::VectorXf theta;        // [D]
  NamedArrays theta_opt;        // its state, as ThetaOpt makes it
  NamedArrays norms = {};       // of EqualNormMean; empty with fixed weights
};

// What one update gave: means over the workers, sums for counts.
struct UpdateSummary {
  int64_t outer_step = 0;    // of the weights that were measured
  double mean_loss = 0;      // over the workers that have one; NaN if none has
  double gradient_norm = 0;  // of the gradient that theta_opt gets, before clipping
  double learning_rate = 0;  // 0 if skipped
  bool skipped = false;      // without effect: the gradient was not finite
  StepCounts counts = {};    // sums over the workers
  std::vector<EstimatorReport> estimators = {};  // in the order of Estimators
};

// How gradients become an update, beside theta_opt.
struct GradientLearnerOptions {
  // What a gradient does that is not finite.
  NonFiniteGradient non_finite_gradient = NonFiniteGradient::kSkip;
  // The order in which the workers' are added up.
  GradientSum sum = GradientSum::kInOrder;
  // Of the gradients, which must have been computed with the same one.
  Weighting weighting = Weighting::kFixed;
  // Patterns of the tensors of theta that keep their bits (FrozenTensors). Their gradient, whatever
  // it is, counts as zero: in the running norms, in what clipping sees, in theta_opt's state.
  std::vector<std::string> frozen = {};
};

// Owns theta: averages the workers' gradients and applies theta_opt. Immutable, thread-safe; its
// state is passed in.
class GradientLearner {
 public:
  // `theta_opt`: its config, as ThetaOpt takes it. Throws Error as ThetaOpt and FrozenTensors do.
  GradientLearner(std::shared_ptr<const LearnedOptimizer> optimizer, const Config& theta_opt,
                  const GradientLearnerOptions& options = {});

  // The optimizer whose theta it owns.
  const LearnedOptimizer& optimizer() const { return *optimizer_; }
  // That of the gradients that it takes.
  Weighting weighting() const { return weighting_; }

  // The state before the first update, with a theta drawn with `key` or given (throws Error if its
  // size is wrong or it is not finite).
  LearnerState Init(Key key) const;
  // The same with a given theta [D].
  LearnerState Init(Eigen::VectorXf theta) const;
  // The theta that the training stands for, to judge and to keep; theta itself, or an average of
  // it in theta_opt's state (UpdateRule::EvalParams).
  Eigen::VectorXf EvalTheta(const LearnerState& state) const;
  // ThetaOpt::EndOfSchedule.
  std::optional<int64_t> EndOfSchedule(const LearnerState& state, int64_t updates) const {
    return theta_opt_.EndOfSchedule(state.theta_opt, updates);
  }
  // What workers need for their next update.
  WorkerWeights GetStateForWorker(const LearnerState& state) const;
  // One update with the plain mean of the gradients, or of those of each estimator where the
  // weighting is kEqualNorm, summed in float64 in the order that the options name. Throws Error if
  // there is none, or if one has the wrong size or was computed at another outer step, or the
  // update makes a theta that is not finite. `workers`: whose gradients these are, in their order;
  // empty: of workers 0, 1, ...
  LearnerState Update(LearnerState state, std::span<const AggregatedGradient> gradients,
                      UpdateSummary* summary = nullptr,
                      std::span<const int64_t> workers = {}) const;
  // The same with gradients that may be of earlier outer steps (asynchronous training): the sum of
  // weight times gradient, divided by the number of gradients (of the estimator), summed in the
  // order given. Throws Error if the numbers of gradients and weights disagree, a gradient is of a
  // later outer step or the order of the sum is another.
  LearnerState UpdateWeighted(LearnerState state, std::span<const AggregatedGradient> gradients,
                              std::span<const double> weights, UpdateSummary* summary = nullptr,
                              std::span<const int64_t> workers = {}) const;

 private:
  // The means of each estimator's gradients; without weights, each is 1.
  std::vector<EstimatorGradient> MeansByEstimator(std::span<const AggregatedGradient> gradients,
                                                  std::span<const double> weights,
                                                  std::span<const int64_t> workers) const;
  void ZeroFrozen(Eigen::VectorXd* gradient) const;
  LearnerState Apply(LearnerState state, std::span<const AggregatedGradient> gradients,
                     std::span<const double> weights, UpdateSummary* summary,
                     std::span<const int64_t> workers) const;

  std::shared_ptr<const LearnedOptimizer> optimizer_;
  ThetaOpt theta_opt_;
  NonFiniteGradient policy_;
  GradientSum sum_;
  Weighting weighting_;
  std::vector<LayoutEntry> frozen_;
};

// A learner and its logical workers in one process, for use as a library.
class SingleMachineGradientLearner {
 public:
  // All that lives between two updates.
  struct State {
    LearnerState learner;                   // theta and the state of theta_opt
    std::vector<WorkerState> workers = {};  // one for each logical worker, in their order
  };
  // Part of the experiment: both change the result.
  struct Options {
    int64_t workers = 1;             // logical workers, at least 1
    int64_t windows_per_update = 1;  // of each estimator under the same theta, at least 1
  };

  // Throws Error unless both options are at least 1.
  SingleMachineGradientLearner(GradientLearner learner, Estimators estimators, Options options);

  // Keys as in learner/worker.h; the same run key belongs to every call.
  State Init(Key run_key) const;
  // The same with a given theta [D].
  State Init(Key run_key, Eigen::VectorXf theta) const;
  // One update of theta, in parallel on the thread pool around the call.
  UpdateSummary Update(Key run_key, State* state) const;

 private:
  State InitWorkers(Key run_key, LearnerState learner) const;

  GradientLearner learner_;
  Estimators estimators_;
  Options options_;
};

}  // namespace lopt
