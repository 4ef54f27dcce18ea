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

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What the episode of each replica or pair counts, of n, by its losses or their differences.
class EpisodeCount {
 public:
  EpisodeCount(FullES::LossType type, int64_t n)
      : type_(type),
        counted_(Eigen::ArrayXd::Constant(n, type == FullES::LossType::kMin ? kInfinity : 0)) {}

  // Takes in a piece of the episode, [steps, n].
  void Add(const Eigen::ArrayXXd& losses) {
    if (type_ == FullES::LossType::kAvg) {
      counted_ += losses.colwise().sum().transpose();
    } else if (type_ == FullES::LossType::kMin) {
      const Eigen::ArrayXXd finite = losses.isFinite().select(losses, kInfinity);
      counted_ = counted_.min(finite.colwise().minCoeff().transpose());
    } else {
      counted_ = losses.row(losses.rows() - 1).transpose();
    }
  }

  // Of a whole episode of so many steps, [n].
  Eigen::ArrayXd Get(int64_t length) const {
    return type_ == FullES::LossType::kAvg ? counted_ / static_cast<double>(length) : counted_;
  }

 private:
  FullES::LossType type_;
  Eigen::ArrayXd counted_;
};

// [N]: what counts of the mean meta-loss of each replica over fresh outer batches, as it stands.
Eigen::ArrayXd RecomputedLosses(const InnerProblem& problem, const ThetaRows& theta, Key key,
                                int64_t samples, const UnrollState& replicas) {
  Eigen::ArrayXd sum = Eigen::ArrayXd::Zero(theta.rows);
  Eigen::ArrayXd losses(theta.rows);
  for (int64_t sample = 0; sample < samples; ++sample) {
    const Key batch = FoldIn(FoldIn(key, kOuterBatchDraw), static_cast<uint64_t>(sample));
    problem.MetaLoss(theta, SplitKey(batch, theta.rows), replicas, AsSpan(losses));
    sum += losses;
  }
  return (sum / static_cast<double>(samples)).unaryExpr([&](double mean) {
    return problem.OnScale(mean);
  });
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
  VisitDirections(v, &directions);
}

FullES::FullES(std::shared_ptr<const InnerProblem> problem,
               std::shared_ptr<const TruncationSchedule> schedule, const Options& options)
    : GradientEstimator(problem->theta_layout()),
      problem_(std::move(problem)),
      schedule_(std::move(schedule)),
      options_(options) {
  CheckOptions("FullES", options_);
  RequireDirections("FullES", options_.directions, *problem_);
  Require(!problem_->EpisodesEnd(),
          "FullES: it draws the episodes' length itself, so the inner problem's schedule must be "
          "NeverEndingTruncationSchedule");
  Require(schedule_->EpisodesEnd(),
          "FullES: its schedule must give episodes an end; NeverEndingTruncationSchedule does not");
  Require(!options_.clip_loss_diff || !options_.sign_delta_loss_scalar,
          "FullES: clip_loss_diff is {} and sign_delta_loss_scalar {}, but a sign has nothing to "
          "clip; wanted one of them",
          options_.clip_loss_diff.value_or(0), options_.sign_delta_loss_scalar.value_or(0));
}

EstimatorState FullES::DoInitWorkerState(const WorkerWeights&, Key) const { return {}; }

GradientEstimate FullES::DoEstimate(const WorkerWeights& weights, Key key,
                                    EstimatorState* state) const {
  Require(state->size() == 0,
          "FullES: the state is not one of this estimator: it has {} arrays, wanted none",
          state->size());
  const int64_t length = Length(weights.outer, key);
  AntitheticPairs pairs(*problem_, weights, key, options_.num_tasks, options_.std,
                        options_.directions);
  UnrollState unroll = pairs.Start(length);
  const int64_t tasks = options_.num_tasks;
  // The least losses of a pair may be of different steps.
  const bool least = options_.loss_type == LossType::kMin;
  EpisodeCount episode(options_.loss_type, least ? 2 * tasks : tasks);
  for (int64_t done = 0; done < length; done += kStepsAtOnce) {
    const UnrollTrace& trace = pairs.Run(std::min(kStepsAtOnce, length - done), &unroll);
    episode.Add(least ? trace.loss : PairDifferences(trace));
  }

  Eigen::ArrayXd differences = episode.Get(length);
  if (least) {
    const Eigen::ArrayXd of_pairs = differences.head(tasks) - differences.tail(tasks);
    differences = of_pairs.isFinite().select(of_pairs, 0.0);
  }
  if (options_.loss_type == LossType::kLastRecompute) {
    differences = pairs.MetaLossDifferences(options_.recompute_samples, unroll);
  }
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
  EpisodeCount episode(options_.loss_type, tasks);
  UnrollTrace trace;
  for (int64_t done = 0; done < length; done += kStepsAtOnce) {
    problem_->Run({.theta = rows,
                   .outer = outer,
                   .keys = keys,
                   .steps = std::min(kStepsAtOnce, length - done),
                   .state = &replicas,
                   .trace = &trace});
    episode.Add(trace.loss);
  }
  const Eigen::ArrayXd counted =
      options_.loss_type == LossType::kLastRecompute
          ? RecomputedLosses(*problem_, rows, key, options_.recompute_samples, replicas)
          : episode.Get(length);
  const double mean = counted.mean();
  return std::isfinite(mean) ? mean : kInfinity;
}

}  // namespace lopt
