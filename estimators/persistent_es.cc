#include "lopt/estimators/persistent_es.h"

#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/device_launch.h"
#include "lopt/estimators/diagnostics.h"
#include "lopt/estimators/pairs_gradient.h"
#include "lopt/estimators/persistent_gradient.h"

namespace lopt {
namespace {

// The accumulator's name in checkpoints, which other revisions read.
constexpr const char* kAccumulator = "felt";

}  // namespace

PersistentES::PersistentES(const char* type, std::shared_ptr<const InnerProblem> problem,
                           const TruncatedOptions& options, PerturbationClock clock)
    : TruncatedEstimator(type, std::move(problem), options), clock_(clock) {
  Require(!OutliveWindows() || options.directions == Directions::kIndependent,
          "{}: its perturbations outlive windows and begin when episodes do, so they cannot be "
          "orthogonal; wanted directions 'independent'",
          type);
}

EstimatorState PersistentES::Begin(const WorkerWeights& weights, Key key, Key lasting) const {
  const int64_t num_tasks = options().num_tasks;
  EstimatorState state;
  state.Merge("unroll/", problem().Start({.theta = AsSpan(weights.theta), .rows = 2 * num_tasks},
                                         weights.outer, PairKeys(key, num_tasks)));
  if (HasAccumulator()) {
    state.Set(kAccumulator, Array(DType::kFloat32, {num_tasks, theta_layout().size()}));
  }
  if (OutliveWindows()) {
    state.Set("episode", Array(DType::kInt64, {num_tasks}));
    const std::vector<uint32_t> words = {lasting.hi, lasting.lo};
    state.Set("key", Array::Of<uint32_t>({2}, words));
  }
  return state;
}

Perturbations PersistentES::NamePerturbations(Key key, const EstimatorState& state) const {
  const int64_t num_tasks = options().num_tasks;
  const int64_t dimension = theta_layout().size();
  if (!OutliveWindows()) {
    return {SplitKey(FoldIn(key, kPerturbationDraw), num_tasks), options().std, dimension,
            options().directions};
  }
  const auto words = state.At("key", DType::kUint32, {2}).As<uint32_t>();
  const auto episodes = state.At("episode", DType::kInt64, {num_tasks}).As<int64_t>();
  return {SplitKey({words[0], words[1]}, num_tasks),
          {episodes.begin(), episodes.end()},
          clock_,
          options().std,
          dimension};
}

GradientEstimate PersistentES::DoEstimate(const WorkerWeights& weights, Key key,
                                          EstimatorState* state) const {
  const int64_t num_tasks = options().num_tasks;
  UnrollState unroll = TakeUnroll(state, (HasAccumulator() ? 1 : 0) + (OutliveWindows() ? 2 : 0));
  Array* accumulator = HasAccumulator() ? &ArrayOn(problem().memory(), state, kAccumulator,
                                                   num_tasks, theta_layout())
                                        : nullptr;
  AntitheticPairs pairs(problem(), weights, key, NamePerturbations(key, *state));
  const UnrollTrace trace = pairs.Run(options().trunc_length, &unroll);
  state->Merge("unroll/", std::move(unroll));

  const PairsLosses losses = LossGroupsOf(trace, clock_, options().sign_delta_loss_scalar);
  PairsGradient of_pairs = GradientOfPairs(problem(), pairs.perturbations(), losses, accumulator);
  if (OutliveWindows()) {
    const auto episodes = state->At("episode").As<int64_t>();
    for (int64_t n = 0; n < num_tasks; ++n) {
      episodes[n] += trace.is_last.col(n).count();
    }
  }
  GradientEstimate estimate = pairs.Estimate(std::move(of_pairs.gradient), of_pairs.squares);
  if (HasAccumulator()) WriteAccumulatorNorms(trace, of_pairs.accumulator_norms, &estimate.metrics);
  return estimate;
}

TruncatedPES::TruncatedPES(std::shared_ptr<const InnerProblem> problem,
                           const TruncatedOptions& options)
    : PersistentES("TruncatedPES", std::move(problem), CheckOptions("TruncatedPES", options),
                   {PerturbationClock::kWindow}) {}

TruncatedNRES::TruncatedNRES(std::shared_ptr<const InnerProblem> problem,
                             const TruncatedOptions& options)
    : PersistentES("TruncatedNRES", std::move(problem), CheckOptions("TruncatedNRES", options),
                   {PerturbationClock::kEpisode}) {}

void GPESK::Options::Visit(FieldVisitor& v) {
  TruncatedOptions::Visit(v);
  v.Field("K", &block, Between(1, 10000000),
          "Inner steps of an episode that one perturbation of theta lasts.");
}

GPESK::GPESK(std::shared_ptr<const InnerProblem> problem, const Options& options)
    : PersistentES("GPESK", std::move(problem), CheckOptions("GPESK", options), {options.block}) {}

}  // namespace lopt
