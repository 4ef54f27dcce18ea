#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/estimators/gradient_estimator.h"
#include "lopt/estimators/theta_rows.h"
#include "lopt/estimators/truncation_schedule.h"

namespace lopt {

// Evolution strategies over whole episodes: every estimate starts fresh tasks and runs them for one
// length, the same for all of them. No state. It owns the schedule, so the problem's own must be
// NeverEnding.
class FullES : public GradientEstimator {
 public:
  // What an episode counts: the mean or the minimum of its losses, its last one, or the mean over
  // fresh outer batches of the final parameters' loss.
  enum class LossType { kAvg, kMin, kLast, kLastRecompute };
  static constexpr Named<LossType> kLossTypes[] = {{LossType::kAvg, "avg"},
                                                   {LossType::kMin, "min"},
                                                   {LossType::kLast, "last"},
                                                   {LossType::kLastRecompute, "last_recompute"}};

  // The keys of a config.
  struct Options {
    int64_t num_tasks = 8;  // N antithetic pairs
    double std = 0.01;      // of the perturbations
    LossType loss_type = LossType::kAvg;
    int64_t recompute_samples = 50;             // fresh outer batches of kLastRecompute
    std::optional<double> clip_loss_diff = {};  // bound on a pair's |loss difference|
    std::optional<double> sign_delta_loss_scalar =
        {};  // replaces a pair's difference by its sign times this
    Directions directions = Directions::kIndependent;  // of the perturbations
    void Visit(FieldVisitor& v);
  };

  // Throws Error if an option is not valid, there are both clip_loss_diff and
  // sign_delta_loss_scalar, or the problem's episodes end by themselves.
  FullES(std::shared_ptr<const InnerProblem> problem,
         std::shared_ptr<const TruncationSchedule> schedule, const Options& options);

  // The meta-losses [K] of K thetas of D numbers each, for optimizers that want no gradient: the
  // mean over the N tasks of what an episode counts (loss_type), under the theta itself. All thetas
  // get the same draws, those of Estimate under this key: tasks, initial params, batches and the
  // episodes' length. They run in parallel on the pool around the call, and a theta's loss depends
  // neither on the threads nor on the other thetas. It is infinite if a loss that counts is not
  // finite and LoptProblemOptions::non_finite puts nothing in its place; kMin counts the finite
  // losses of an episode, if it has any. The options of perturbations and pairs play no part.
  // Throws Error if there is no theta, or one has another size than D or is not finite.
  std::vector<double> MetaLosses(std::span<const Eigen::VectorXf> thetas, const OuterState& outer,
                                 Key key) const;

 private:
  EstimatorState DoInitWorkerState(const WorkerWeights& weights, Key key) const override;
  GradientEstimate DoEstimate(const WorkerWeights& weights, Key key,
                              EstimatorState* state) const override;

  int64_t Length(const OuterState& outer, Key key) const;
  double MetaLossOf(const Eigen::VectorXf& theta, int64_t length, const OuterState& outer,
                    Key key) const;

  std::shared_ptr<const InnerProblem> problem_;
  std::shared_ptr<const TruncationSchedule> schedule_;
  Options options_;
};

}  // namespace lopt
