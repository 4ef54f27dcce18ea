// NRES and GPES_K: the estimates of the paper's own code, and what the clocks have in common.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/persistent_gradient.h"
#include "lopt/estimators/truncated_es.h"
#include "tests/golden_dir.h"
#include "tests/toy_problem.h"

namespace lopt {
namespace {

// Windows of N pairs, [windows, W, N]: x <- .9 tanh(M x + G theta + c_n), loss |x|^2 / 2 of the new
// x; pair n begins at inner step offset[n], and again from x0_n after length[n] steps.
class GoldenWindows {
 public:
  explicit GoldenWindows(const std::string& name)
      : file_(ReadArrayFile(GoldenPath(name))), shape_(file_.arrays.At("perturbation").shape()) {
    const auto options = nlohmann::json::parse(file_.metadata.at("estimator"));
    std_ = options.at("std");
    clock_.block =
        options.at("K").is_null() ? PerturbationClock::kEpisode : options.at("K").get<int64_t>();
  }

  void Follow() const {
    const int64_t pairs = shape_[2];
    std::vector<float> accumulator(static_cast<size_t>(pairs * shape_[3]));
    std::vector<Eigen::VectorXf> x(2 * pairs);
    for (int64_t b = 0; b < 2 * pairs; ++b) x[b] = Row("x0", b % pairs);
    for (int64_t w = 0; w < shape_[0]; ++w) {
      CAPTURE(w);
      const UnrollTrace trace = Run(w, &x);
      CheckLosses(w, trace);
      const Eigen::VectorXf gradient = PersistentGradient(
          LossGroupsOf(trace, clock_),
          [&](int64_t pair, const WindowStep& at, std::span<float> out) {
            const Eigen::VectorXf row = Row("perturbation", FindStep(w, pair, trace, at));
            std::ranges::copy(row, out.begin());
          },
          std_, accumulator);
      const Eigen::VectorXf expected = Row("gradient", w);
      CHECK((gradient - expected).norm() <= 1e-5 * expected.norm());
    }
  }

 private:
  // Of the losses of pair `pair` in window w.
  int64_t At(int64_t w, int64_t k, int64_t pair) const {
    return (w * shape_[1] + k) * shape_[2] + pair;
  }
  // Row `row` of an array whose rows are its last dimension.
  Eigen::VectorXf Row(const char* name, int64_t row) const {
    const Array& array = file_.arrays.At(name);
    const int64_t size = array.shape().back();
    return Eigen::Map<const Eigen::VectorXf>(array.As<float>().data() + row * size, size);
  }
  Eigen::MatrixXf Matrix(const char* name) const {
    const Array& array = file_.arrays.At(name);
    return Eigen::Map<const Eigen::MatrixXf>(array.As<float>().data(), array.shape()[1],
                                             array.shape()[0])
        .transpose();
  }

  UnrollTrace Run(int64_t w, std::vector<Eigen::VectorXf>* x) const {
    const int64_t pairs = shape_[2];
    UnrollTrace trace;
    trace.Resize(shape_[1], 2 * pairs);
    trace.non_finite.setConstant(false);
    for (int64_t b = 0; b < 2 * pairs; ++b) {
      const int64_t n = b % pairs;
      const float sign = b < pairs ? 1.0F : -1.0F;
      for (int64_t k = 0; k < shape_[1]; ++k) {
        const Eigen::VectorXf theta = Row("theta", w) + sign * Row("perturbation", At(w, k, n));
        Eigen::VectorXf& now = (*x)[b];
        now = .9F * (Matrix("M") * now + Matrix("G") * theta + Row("c", n)).array().tanh().matrix();
        trace.loss(k, b) = .5 * now.cast<double>().squaredNorm();
        trace.iteration(k, b) = file_.arrays.At("iteration").As<int32_t>()[At(w, k, n)];
        trace.is_last(k, b) =
            trace.iteration(k, b) + 1 == file_.arrays.At("length").As<int32_t>()[n];
        if (trace.is_last(k, b)) now = Row("x0", n);
      }
    }
    return trace;
  }

  // What the trace says and what the file says of its losses and of when perturbations change.
  void CheckLosses(int64_t w, const UnrollTrace& trace) const {
    const int64_t pairs = shape_[2];
    for (int64_t n = 0; n < pairs; ++n) {
      for (int64_t k = 0; k < shape_[1]; ++k) {
        CHECK(std::abs(trace.loss(k, n) - file_.arrays.At("loss_pos").As<float>()[At(w, k, n)]) <=
              1e-6);
        CHECK(std::abs(trace.loss(k, n + pairs) -
                       file_.arrays.At("loss_neg").As<float>()[At(w, k, n)]) <= 1e-6);
        CHECK(trace.is_last(k, n) == (file_.arrays.At("is_last").As<uint8_t>()[At(w, k, n)] != 0));
        if (k > 0) {
          CHECK(clock_.BeginsAt(trace.iteration(k, n)) ==
                (Row("perturbation", At(w, k, n)) != Row("perturbation", At(w, k - 1, n))));
        }
      }
    }
  }

  // The row of perturbations in force at a step of window w.
  int64_t FindStep(int64_t w, int64_t pair, const UnrollTrace& trace, const WindowStep& at) const {
    int64_t restarts = 0;
    for (int64_t k = 0; k < shape_[1]; ++k) {
      if (restarts == at.restarts && trace.iteration(k, pair) == at.inner_step) {
        return At(w, k, pair);
      }
      restarts += trace.is_last(k, pair) ? 1 : 0;
    }
    FAIL("no step ", at.inner_step, " after ", at.restarts, " restarts in window ", w);
    return -1;
  }

  ArrayFile file_;
  Shape shape_;  // [windows, W, N, D]
  double std_ = 0;
  PerturbationClock clock_;
};

TEST_CASE("NRES follows the golden gradients of its authors' code, window by window") {
  GoldenWindows("nres_windows.safetensors").Follow();
}

TEST_CASE("GPES_K follows the golden gradients of its authors' code, window by window") {
  for (const char* name : {"gpes_k3_windows.safetensors", "gpes_k5_windows.safetensors"}) {
    CAPTURE(name);
    GoldenWindows(name).Follow();
  }
}

// SGD with two learned numbers, so that gradients have a direction: a rate and a shrinkage.
std::shared_ptr<ToyProblem> TwoNumbers(int64_t length) {
  return std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = 2,
      .start = {1.0, -0.5},
      .length = length,
      .advance = [](std::span<const double> theta, std::span<double> x, int64_t step) {
        const double loss = x[0] * x[0] + x[0] * x[1];
        x[0] -= 2 * std::exp(theta[0]) * x[0];
        x[1] = std::tanh(theta[1] * x[1]) + 0.1 * static_cast<double>(step % 3);
        return loss;
      }});
}

constexpr int64_t kPairs = 7;
TruncatedOptions Windows(int64_t steps) {
  return {.num_tasks = kPairs, .trunc_length = steps, .std = 0.1};
}
const WorkerWeights kWeights = {.theta = Eigen::Vector2f(-2, 0.7F), .outer = {}};
Key WindowKey(int64_t window) { return FoldIn(KeyFromSeed(5), static_cast<uint64_t>(window)); }

TEST_CASE("GPES_K with blocks that are the windows is PES under the same perturbations, in bits") {
  constexpr int64_t kWindow = 4;
  const auto problem = TwoNumbers(12);
  const GPESK estimator(problem, {Windows(kWindow), kWindow});
  EstimatorState state = estimator.InitWorkerState(kWeights, KeyFromSeed(4));
  UnrollState replicas = state.Extract("unroll/");
  std::vector<float> accumulator(kPairs * 2);
  const auto words = state.At("key").As<uint32_t>();
  const std::vector<Key> keys = SplitKey({words[0], words[1]}, kPairs);
  for (int64_t window = 0; window < 8; ++window) {
    CAPTURE(window);
    WorkerWeights weights = kWeights;
    weights.theta *= 1 - 0.01F * static_cast<float>(window);
    const GradientEstimate by_gpesk = estimator.Estimate(weights, WindowKey(window), &state);
    std::vector<Key> named;  // of episode and block
    for (const Key key : keys) {
      named.push_back(FoldIn(FoldIn(key, static_cast<uint64_t>(window / 3)),
                             static_cast<uint64_t>(window % 3)));
    }
    AntitheticPairs pairs(*problem, weights, WindowKey(window), Perturbations(named, 0.1, 2));
    const UnrollTrace trace = pairs.Run(kWindow, &replicas);
    const Eigen::VectorXf by_pes = PersistentGradient(
        LossGroupsOf(trace, {PerturbationClock::kWindow}),
        [&](int64_t pair, const WindowStep& at, std::span<float> out) {
          pairs.perturbations().Draw(pair, at, out);
        },
        0.1, accumulator);
    CHECK(by_gpesk.gradient == by_pes);
    CHECK(state.Extract("unroll/") == replicas);
    CHECK(std::ranges::equal(state.At("felt").As<float>(), accumulator));
  }
}

TEST_CASE("GPES_K with blocks no shorter than episodes is NRES, in bits") {
  const auto problem = TwoNumbers(9);
  const TruncatedNRES nres(problem, Windows(4));
  const GPESK gpesk(problem, {Windows(4), 9});
  EstimatorState by_nres = nres.InitWorkerState(kWeights, KeyFromSeed(4));
  EstimatorState by_gpesk = gpesk.InitWorkerState(kWeights, KeyFromSeed(4));
  CHECK_FALSE(by_nres.Contains("felt"));
  for (int64_t window = 0; window < 9; ++window) {
    const GradientEstimate expected = nres.Estimate(kWeights, WindowKey(window), &by_nres);
    const GradientEstimate estimate = gpesk.Estimate(kWeights, WindowKey(window), &by_gpesk);
    CHECK(estimate.gradient == expected.gradient);
    CHECK(estimate.counts == expected.counts);
    CHECK(by_nres.Extract("unroll/") == by_gpesk.Extract("unroll/"));
  }
  CHECK(std::ranges::equal(by_nres.At("episode").As<int64_t>(), std::vector<int64_t>(kPairs, 4)));
}

TEST_CASE("An estimator of the family refuses the state of another") {
  const auto problem = TwoNumbers(9);
  const TruncatedPES pes(problem, Windows(4));
  const TruncatedNRES nres(problem, Windows(4));
  const GPESK gpesk(problem, {Windows(4), 2});
  EstimatorState state = nres.InitWorkerState(kWeights, {});
  CHECK_THROWS_WITH(pes.Estimate(kWeights, {}, &state),
                    "TruncatedPES: the state is not one of this estimator: 2 arrays beside its "
                    "unroll state, wanted 1");
  state = gpesk.InitWorkerState(kWeights, {});
  CHECK_THROWS_WITH(nres.Estimate(kWeights, {}, &state),
                    "TruncatedNRES: the state is not one of this estimator: 3 arrays beside its "
                    "unroll state, wanted 2");
}

TEST_CASE("After burn-in a worker stands where so many windows would have brought it") {
  // The draws of those windows are others, but this problem has none.
  const auto problem = TwoNumbers(9);
  TruncatedOptions options = Windows(4);
  options.burn_in = 10;  // three windows
  EstimatorState burnt = TruncatedNRES(problem, options).InitWorkerState(kWeights, KeyFromSeed(4));
  const TruncatedNRES nres(problem, Windows(4));
  EstimatorState state = nres.InitWorkerState(kWeights, KeyFromSeed(4));
  CHECK(burnt != state);
  for (int64_t window = 0; window < 3; ++window) nres.Estimate(kWeights, WindowKey(window), &state);
  CHECK(burnt == state);
}

TEST_CASE("The outline of a state has its arrays, types and shapes, and no inner step is run") {
  const auto never = std::make_shared<ToyProblem>(
      ToyProblem::Dynamics{.theta_size = 2,
                           .start = {1, 1, 1},
                           .length = 9,
                           .advance = [](std::span<const double>, std::span<double>,
                                         int64_t) -> double { Fail("an inner step is run"); }});
  TruncatedOptions options = Windows(4);
  options.burn_in = 10'000'000;
  using Outline = std::map<std::string, std::pair<DType, Shape>>;
  const auto outline = [](const EstimatorState& state) {
    Outline of_arrays;
    for (const auto& [name, array] : state) of_arrays[name] = {array.dtype(), array.shape()};
    return of_arrays;
  };
  const auto unroll = [](int64_t replicas) {
    return Outline{{"unroll/length", {DType::kInt64, {replicas}}},
                   {"unroll/restarts", {DType::kInt64, {replicas}}},
                   {"unroll/state", {DType::kFloat64, {replicas, 3}}},
                   {"unroll/step", {DType::kInt64, {replicas}}}};
  };
  const Key key = KeyFromSeed(4);
  Outline of_gpesk = unroll(2 * kPairs);
  of_gpesk["episode"] = {DType::kInt64, {kPairs}};
  of_gpesk["felt"] = {DType::kFloat32, {kPairs, 2}};
  of_gpesk["key"] = {DType::kUint32, {2}};
  CHECK(outline(GPESK(never, {options, 2}).OutlineState(kWeights, key)) == of_gpesk);
  const TruncatedES es(never, {options, TruncatedES::Carried::kMean});
  CHECK(outline(es.OutlineState(kWeights, key)) == unroll(kPairs));
  CHECK_THROWS_WITH(es.InitWorkerState(kWeights, key), "an inner step is run");
  options.burn_in = 0;
  CHECK(outline(GPESK(never, {options, 2}).InitWorkerState(kWeights, key)) == of_gpesk);
}

}  // namespace
}  // namespace lopt
