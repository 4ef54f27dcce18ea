#include "lopt/estimators/full_es.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/antithetic.h"

namespace lopt {
namespace {

// Steps of a trace held at a time: an episode may be far longer than a window.
constexpr int64_t kStepsAtOnce = 128;

// The meta-loss difference of each pair, gathered over the pieces of an episode.
class EpisodeLoss {
 public:
  EpisodeLoss(FullES::LossType type, int64_t pairs, int64_t length)
      : type_(type),
        length_(length),
        sum_(Eigen::ArrayXd::Zero(pairs)),
        least_(Eigen::ArrayXd::Constant(2 * pairs, std::numeric_limits<double>::infinity())),
        last_(Eigen::ArrayXd::Zero(pairs)) {}

  void Add(const UnrollTrace& trace) {
    const Eigen::ArrayXXd differences = PairDifferences(trace);
    const int64_t pairs = differences.cols();
    sum_ += differences.colwise().sum().transpose();
    last_ = differences.row(differences.rows() - 1).transpose();
    for (int64_t n = 0; n < 2 * pairs; ++n) {
      for (int64_t k = 0; k < trace.loss.rows(); ++k) {
        if (std::isfinite(trace.loss(k, n)) && trace.loss(k, n) < least_(n)) {
          least_(n) = trace.loss(k, n);
        }
      }
    }
  }

  Eigen::ArrayXd Differences() const {
    if (type_ == FullES::LossType::kAvg) {
      return sum_ / static_cast<double>(length_);
    }
    if (type_ == FullES::LossType::kLast) {
      return last_;
    }
    const auto pairs = sum_.size();
    const Eigen::ArrayXd difference = least_.head(pairs) - least_.tail(pairs);
    return difference.isFinite().select(difference, 0.0);
  }

 private:
  FullES::LossType type_;
  int64_t length_;
  Eigen::ArrayXd sum_;
  Eigen::ArrayXd least_;
  Eigen::ArrayXd last_;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Takes the losses of a piece of an episode into what the episode of each replica counts [N], which
// begins as 0, or infinite for kMin.
void AddLosses(FullES::LossType type, const UnrollTrace& trace, Eigen::ArrayXd* counted) {
  if (type == FullES::LossType::kAvg) {
    *counted += trace.loss.colwise().sum().transpose();
  } else if (type == FullES::LossType::kMin) {
    const Eigen::ArrayXXd finite = trace.loss.isFinite().select(trace.loss, kInfinity);
    *counted = counted->min(finite.colwise().minCoeff().transpose());
  } else {
    *counted = trace.loss.row(trace.loss.rows() - 1).transpose();
  }
}

// [N]: the mean over fresh outer batches of the meta-loss of each replica as it stands.
Eigen::ArrayXd RecomputedLosses(const InnerProblem& problem, const ThetaRows& theta, Key key,
                                int64_t samples, const UnrollState& replicas) {
  Eigen::ArrayXd sum = Eigen::ArrayXd::Zero(theta.rows);
  Eigen::ArrayXd losses(theta.rows);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const Key batch = FoldIn(FoldIn(key, kOuterBatchDraw), static_cast<uint64_t>(sample));
    problem.MetaLoss(theta, SplitKey(batch, theta.rows), replicas, AsSpan(losses));
    sum += losses;
  }
  return sum / static_cast<double>(samples);
}

}  // namespace

void FullES::Options::Visit(FieldVisitor& v) {
  v.Field("num_tasks", &num_tasks, Between(1, 100000),
          "Tasks, each an antithetic pair of replicas.");
  v.Field("std", &std, Above(0), "Standard deviation of the perturbations of theta.");
  v.Choice(
      "loss_type", &loss_type, kLossTypes,
      "What an episode counts: the mean of its losses, the least one, the last one, or the mean "
      "over fresh outer batches of the final parameters' loss.");
  v.Field("recompute_samples", &recompute_samples, Between(1, 100000),
          "Fresh outer batches of loss_type last_recompute.");
  v.Field("clip_loss_diff", &clip_loss_diff, Above(0),
          "Bound on the absolute loss difference of a pair.");
  v.Field("sign_delta_loss_scalar", &sign_delta_loss_scalar, Above(0),
          "Replaces the loss difference of a pair by its sign times this.");
}

FullES::FullES(std::shared_ptr<const InnerProblem> problem,
               std::shared_ptr<const TruncationSchedule> schedule, const Options& options)
    : GradientEstimator(problem->theta_layout()),
      problem_(std::move(problem)),
      schedule_(std::move(schedule)),
      options_(options) {
  CheckOptions("FullES", options_);
  Require(!problem_->EpisodesEnd(),
          "FullES: it draws the episodes' length itself, so the inner problem's schedule must be "
          "NeverEndingTruncationSchedule");
  Require(schedule_->EpisodesEnd(),
          "FullES: its schedule must give episodes an end; NeverEndingTruncationSchedule does not");
}

EstimatorState FullES::DoInitWorkerState(const WorkerWeights&, Key) const { return {}; }

GradientEstimate FullES::DoEstimate(const WorkerWeights& weights, Key key,
                                    EstimatorState* state) const {
  Require(state->size() == 0,
          "FullES: the state is not one of this estimator: it has {} arrays, wanted none",
          state->size());
  const int64_t length = Length(weights.outer, key);
  AntitheticPairs pairs(*problem_, weights, key, options_.num_tasks, options_.std);
  UnrollState unroll = pairs.Start(length);
  EpisodeLoss episode(options_.loss_type, options_.num_tasks, length);
  for (int64_t done = 0; done < length; done += kStepsAtOnce) {
    episode.Add(pairs.Run(std::min(kStepsAtOnce, length - done), &unroll));
  }

  Eigen::ArrayXd differences = options_.loss_type == LossType::kLastRecompute
                                   ? pairs.MetaLossDifferences(options_.recompute_samples, unroll)
                                   : episode.Differences();
  if (options_.clip_loss_diff) {
    differences = differences.max(-*options_.clip_loss_diff).min(*options_.clip_loss_diff);
  }
  if (options_.sign_delta_loss_scalar) {
    differences = differences.sign() * *options_.sign_delta_loss_scalar;
  }
  return pairs.Estimate(AsSpan(differences));
}

int64_t FullES::Length(const OuterState& outer, Key key) const {
  return schedule_->Length(FoldIn(key, kWindowLengthDraw), outer);
}

std::vector<double> FullES::MetaLosses(std::span<const Eigen::VectorXf> thetas,
                                       const OuterState& outer, Key key) const {
  Require(!thetas.empty(), "FullES: no thetas, wanted at least one");
  for (size_t k = 0; k < thetas.size(); ++k) {
    Require(thetas[k].size() == theta_layout().size(), "FullES: theta {} has {} numbers, wanted {}",
            k, thetas[k].size(), theta_layout().size());
    Require(thetas[k].allFinite(), "FullES: theta {} has a number that is not finite", k);
  }
  const int64_t length = Length(outer, key);
  std::vector<double> losses(thetas.size());
  ParallelFor(std::ssize(thetas), [&](int64_t k) {
    const auto index = static_cast<size_t>(k);
    losses[index] = MetaLossOf(thetas[index], length, outer, key);
  });
  return losses;
}

double FullES::MetaLossOf(const Eigen::VectorXf& theta, int64_t length, const OuterState& outer,
                          Key key) const {
  const int64_t tasks = options_.num_tasks;
  const ThetaRows rows = {.theta = AsSpan(theta), .rows = tasks};
  const std::vector<Key> keys = SplitKey(FoldIn(key, kUnrollDraw), tasks);
  UnrollState replicas =
      problem_->Start(rows, outer, SplitKey(FoldIn(key, kStartDraw), tasks), length);
  const bool least = options_.loss_type == LossType::kMin;
  Eigen::ArrayXd counted = Eigen::ArrayXd::Constant(tasks, least ? kInfinity : 0);
  UnrollTrace trace;
  for (int64_t done = 0; done < length; done += kStepsAtOnce) {
    problem_->Run({.theta = rows,
                   .outer = outer,
                   .keys = keys,
                   .steps = std::min(kStepsAtOnce, length - done),
                   .state = &replicas,
                   .trace = &trace});
    AddLosses(options_.loss_type, trace, &counted);
  }
  if (options_.loss_type == LossType::kAvg) counted /= static_cast<double>(length);
  if (options_.loss_type == LossType::kLastRecompute) {
    counted = RecomputedLosses(*problem_, rows, key, options_.recompute_samples, replicas);
  }
  const double mean = counted.mean();
  return std::isfinite(mean) ? mean : kInfinity;
}

}  // namespace lopt
