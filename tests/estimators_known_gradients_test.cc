// Estimators against closed forms: problems whose smoothed gradient is known exactly.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/persistent_es.h"
#include "lopt/estimators/truncated_es.h"
#include "tests/error_of.h"
#include "toy_problem.h"

namespace lopt {
namespace {

// SGD with learning rate e^theta on |x|^2 from |x_0| = 1: the loss before update t is (1 - 2
// e^theta)^(2 t).
std::shared_ptr<ToyProblem> SgdOnQuadratic(int64_t length) {
  return std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = 1,
      .start = {1.0},
      .length = length,
      .advance = [](std::span<const double> theta, std::span<double> x, int64_t) {
        const double loss = x[0] * x[0];
        x[0] -= 2 * std::exp(theta[0]) * x[0];
        return loss;
      }});
}

// The loss f(theta) at every step.
std::shared_ptr<ToyProblem> Function(int64_t size,
                                     std::function<double(std::span<const double>)> f) {
  return std::make_shared<ToyProblem>(
      ToyProblem::Dynamics{.theta_size = size,
                           .start = {0.0},
                           .length = 0,
                           .advance = [f](std::span<const double> theta, std::span<double>,
                                          int64_t) { return f(theta); }});
}

WorkerWeights At(std::vector<float> theta) {
  return {.theta = Eigen::Map<const Eigen::VectorXf>(theta.data(), std::ssize(theta)), .outer = {}};
}

const float kTheta = std::log(0.05F);

// Statistics of the first gradient component over runs of `windows` windows each from a fresh
// state: one per window of the cycle, and of their mean.
struct CycleStatistics {
  std::vector<Statistics> windows;
  Statistics mean;
};

CycleStatistics OverCycles(const GradientEstimator& estimator, int64_t skip, int64_t windows,
                           int64_t runs, uint64_t seed, float theta = kTheta) {
  CycleStatistics statistics;
  statistics.windows.resize(windows);
  const WorkerWeights weights = At({theta});
  for (int64_t run = 0; run < runs; ++run) {
    const Key key = FoldIn(KeyFromSeed(seed), static_cast<uint64_t>(run));
    EstimatorState state = estimator.InitWorkerState(weights, key);
    double sum = 0;
    for (int64_t w = 0; w < skip + windows; ++w) {
      const GradientEstimate estimate =
          estimator.Estimate(weights, FoldIn(key, static_cast<uint64_t>(w) + 1), &state);
      if (w >= skip) {
        statistics.windows[w - skip].Add(estimate.gradient(0));
        sum += estimate.gradient(0);
      }
    }
    statistics.mean.Add(sum / static_cast<double>(windows));
  }
  return statistics;
}

void CheckWithinFourStandardErrors(const Statistics& statistics, double expected) {
  CAPTURE(statistics.Mean());
  CAPTURE(statistics.StandardError());
  CAPTURE(expected);
  CHECK(std::abs(statistics.Mean() - expected) < 4 * statistics.StandardError());
}

constexpr int64_t kPairs = 1000;
TruncatedOptions Options(int64_t window) {
  return {.num_tasks = kPairs, .trunc_length = window, .std = 0.1};
}

TEST_CASE("Full ES has the smoothed gradient of SGD on a quadratic") {
  const FullES estimator(SgdOnQuadratic(0),
                         std::make_shared<ConstantTruncationSchedule>(
                             ConstantTruncationSchedule::Options{.total_length = 10}),
                         {.num_tasks = kPairs, .std = 0.1});
  const CycleStatistics statistics = OverCycles(estimator, 0, 1, 400, 1);
  CHECK(statistics.mean.Mean() == doctest::Approx(-0.29451097279).epsilon(0.0026 / 0.2945));
  CheckWithinFourStandardErrors(statistics.mean, -0.29451097279);
}

TEST_CASE("PES has the smoothed gradient when windows divide the episode") {
  const CycleStatistics statistics =
      OverCycles(TruncatedPES(SgdOnQuadratic(10), Options(5)), 0, 2, 400, 2);
  CHECK(statistics.mean.Mean() == doctest::Approx(-0.29473396163).epsilon(0.0026 / 0.2947));
  CheckWithinFourStandardErrors(statistics.mean, -0.29473396163);
}

TEST_CASE("Truncated ES is biased by exactly what theory says") {
  const CycleStatistics statistics =
      OverCycles(TruncatedES(SgdOnQuadratic(10), {Options(5)}), 0, 2, 400, 3);
  CHECK(statistics.mean.Mean() == doctest::Approx(-0.16277504932).epsilon(0.002 / 0.1627));
  CheckWithinFourStandardErrors(statistics.mean, -0.16277504932);
}

TEST_CASE("PES is unbiased when an episode ends inside a window") {
  // Length 10, windows of 4: the cycle is 5 windows.
  const CycleStatistics statistics =
      OverCycles(TruncatedPES(SgdOnQuadratic(10), Options(4)), 0, 5, 200, 4);
  const std::vector<double> expected = {-.20646, -.37412, -.20175, -.35367, -.33902};
  for (size_t w = 0; w < expected.size(); ++w) {
    CAPTURE(w);
    CheckWithinFourStandardErrors(statistics.windows[w], expected[w]);
  }
  CheckWithinFourStandardErrors(statistics.mean, -0.295003);
}

TEST_CASE("PES is unbiased when episodes are little longer than windows") {
  const CycleStatistics statistics =
      OverCycles(TruncatedPES(SgdOnQuadratic(7), Options(5)), 0, 7, 200, 5);
  CheckWithinFourStandardErrors(statistics.mean, -0.281277);
}

TEST_CASE("PES is unbiased with two whole episodes in a window") {
  const CycleStatistics statistics =
      OverCycles(TruncatedPES(SgdOnQuadratic(5), Options(10)), 0, 1, 200, 6);
  CheckWithinFourStandardErrors(statistics.mean, -0.241383);
}

TEST_CASE("PES is unbiased with windows longer than episodes and out of step with them") {
  const CycleStatistics statistics =
      OverCycles(TruncatedPES(SgdOnQuadratic(3), Options(10)), 0, 3, 200, 7);
  const std::vector<double> expected = {-.14169, -.15981, -.17086};
  for (size_t w = 0; w < expected.size(); ++w) {
    CAPTURE(w);
    CheckWithinFourStandardErrors(statistics.windows[w], expected[w]);
  }
  CheckWithinFourStandardErrors(statistics.mean, -0.157452);
}

// With theta + eps, eps normal of standard deviation `std`: the mean of the loss before update t
// and, with slope, its derivative by theta. A binomial sum of means of e^(k theta).
double SmoothedLoss(int64_t t, double theta, double std, bool slope) {
  double sum = 0;
  double binomial = 1;
  for (int64_t k = 0; k <= 2 * t; ++k) {
    const auto n = static_cast<double>(k);
    sum +=
        binomial * std::pow(-2, n) * std::exp(n * theta + n * n * std * std / 2) * (slope ? n : 1);
    binomial *= static_cast<double>(2 * t - k) / (n + 1);
  }
  return sum;
}

// The derivative of the mean of that loss when every `block` updates have an eps of their own.
double SmoothedGradient(int64_t t, int64_t block, double theta, double std) {
  const auto blocks = static_cast<double>(t / block);
  const double of_block = blocks > 0 ? SmoothedLoss(block, theta, std, false) : 1;
  double gradient = std::pow(of_block, blocks) * SmoothedLoss(t % block, theta, std, true);
  if (blocks > 0) {
    gradient += blocks * SmoothedLoss(block, theta, std, true) * std::pow(of_block, blocks - 1) *
                SmoothedLoss(t % block, theta, std, false);
  }
  return gradient;
}

// Its mean over updates [first, first + steps) of episodes of `length` that follow one another.
double WindowGradient(int64_t first, int64_t steps, int64_t length, int64_t block, double theta,
                      double std) {
  double sum = 0;
  for (int64_t t = first; t < first + steps; ++t) {
    sum += SmoothedGradient(t % length, block, theta, std);
  }
  return sum / static_cast<double>(steps);
}

constexpr int64_t kNoBlocks = 100;  // longer than any episode here

TEST_CASE("The closed form of smoothed gradients has the published values") {
  const auto mean = [](int64_t length, int64_t block, double std) {
    return WindowGradient(0, length, length, block, std::log(0.05), std);
  };
  struct Row {
    int64_t length;
    double at[3];
  };
  const double stds[] = {.01, .1, .3};
  for (const Row& row : {Row{10, {-.295787105894, -.294510972794, -.284916359112}},
                         Row{7, {-.281780373867, -.280903208030, -.273942123493}},
                         Row{5, {-.241703114643, -.241383360367, -.238543451409}},
                         Row{3, {-.157202359679, -.157432781468, -.159058713942}}}) {
    for (int i = 0; i < 3; ++i) {
      CHECK(std::abs(mean(row.length, kNoBlocks, stds[i]) - row.at[i]) < 1e-11);
    }
  }
  CHECK(std::abs(mean(10, 2, .1) - -.295278251) < 1e-9);
  CHECK(std::abs(mean(10, 5, .1) - -.294733962) < 1e-9);
  CHECK(std::abs(SmoothedGradient(4, kNoBlocks, std::log(0.05), .1) - -.38107664) < 1e-8);
  CHECK(std::abs(WindowGradient(4, 4, 10, kNoBlocks, std::log(0.05), .1) - -.37347) < 1e-5);
}

// Runs from the first step of an episode to where windows and episodes begin together again.
void CheckWindows(const GradientEstimator& estimator, int64_t window, int64_t length, int64_t block,
                  float theta, double std, int64_t runs, uint64_t seed) {
  const int64_t windows = std::lcm(window, length) / window;
  const CycleStatistics statistics = OverCycles(estimator, 0, windows, runs, seed, theta);
  for (int64_t w = 0; w < windows; ++w) {
    CAPTURE(w);
    CheckWithinFourStandardErrors(statistics.windows[w],
                                  WindowGradient(w * window, window, length, block, theta, std));
  }
  CheckWithinFourStandardErrors(statistics.mean,
                                WindowGradient(0, length, length, block, theta, std));
}

TEST_CASE("NRES has the smoothed gradient of each window, wherever episodes end") {
  struct Case {
    int64_t length, window, runs;
  };
  for (const Case& c : {Case{10, 5, 100}, Case{10, 4, 60}, Case{7, 5, 60}, Case{3, 10, 60}}) {
    CAPTURE(c.length);
    CheckWindows(TruncatedNRES(SgdOnQuadratic(c.length), Options(c.window)), c.window, c.length,
                 kNoBlocks, kTheta, .1, c.runs, 21);
  }
}

TEST_CASE("GPES_K has the smoothed gradient of its blocks, out of step with windows too") {
  // At this rate the values for different K are far apart: -.177, -.180, -.183, -.186, -.188.
  const float theta = std::log(0.2F);
  for (const int64_t block : {1, 2, 3, 4, 6}) {
    CAPTURE(block);
    const GPESK estimator(SgdOnQuadratic(6),
                          {{.num_tasks = kPairs, .trunc_length = 4, .std = .3}, block});
    CheckWindows(estimator, 4, 6, block, theta, .3, 100, 22);
  }
}

// Of one pair's gradient, in windows of 5 of an episode of 10.
struct PairVariance {
  Statistics first, second, episode;
};

PairVariance VarianceOf(const GradientEstimator& estimator, int64_t pairs, double std,
                        int64_t block, uint64_t seed) {
  const WorkerWeights weights = At({kTheta});
  const double means[] = {WindowGradient(0, 5, 10, block, std::log(0.05), std),
                          WindowGradient(5, 5, 10, block, std::log(0.05), std)};
  PairVariance variance;
  EstimatorState state = estimator.InitWorkerState(weights, KeyFromSeed(seed));
  for (uint64_t episode = 0; episode < 40000; ++episode) {
    double deviations[2];
    for (uint64_t w = 0; w < 2; ++w) {
      const Key key = FoldIn(FoldIn(KeyFromSeed(seed), episode), w);
      deviations[w] = estimator.Estimate(weights, key, &state).gradient(0) - means[w];
    }
    const auto add = [&](double deviation, Statistics* statistics) {
      statistics->Add(deviation * deviation * static_cast<double>(pairs));
    };
    add(deviations[0], &variance.first);
    add(deviations[1], &variance.second);
    add((deviations[0] + deviations[1]) / 2, &variance.episode);
  }
  return variance;
}

TEST_CASE("Over an episode PES has less variance than NRES, in its second window more") {
  struct Case {
    double std, first, nres_second, nres_episode, pes_second, pes_episode;
  };
  for (const Case& c : {Case{.01, .116838, .244788, .174965, .277684, .162822},
                        Case{.1, .116217, .238627, .171975, .272681, .160492},
                        Case{.3, .110605, .198392, .151260, .237430, .143302}}) {
    CAPTURE(c.std);
    const TruncatedOptions options{.num_tasks = 4, .trunc_length = 5, .std = c.std};
    const PairVariance nres =
        VarianceOf(TruncatedNRES(SgdOnQuadratic(10), options), 4, c.std, kNoBlocks, 23);
    const PairVariance pes = VarianceOf(TruncatedPES(SgdOnQuadratic(10), options), 4, c.std, 5, 24);
    CheckWithinFourStandardErrors(nres.first, c.first);
    CheckWithinFourStandardErrors(pes.first, c.first);
    CheckWithinFourStandardErrors(nres.second, c.nres_second);
    CheckWithinFourStandardErrors(pes.second, c.pes_second);
    CheckWithinFourStandardErrors(nres.episode, c.nres_episode);
    CheckWithinFourStandardErrors(pes.episode, c.pes_episode);
    CHECK(pes.episode.Mean() < nres.episode.Mean());
    CHECK(nres.second.Mean() < pes.second.Mean());
  }
}

TEST_CASE("Truncated ES that carries the state of theta itself starts from just that state") {
  // The loss is homogeneous in x: a window from a state that is known scales all gradients by it.
  const auto second_over_first = [](TruncatedES::Carried carried) {
    const TruncatedES estimator(SgdOnQuadratic(10), {Options(5), carried});
    const WorkerWeights weights = At({kTheta});
    EstimatorState state = estimator.InitWorkerState(weights, {});
    EstimatorState fresh = state;
    estimator.Estimate(weights, KeyFromSeed(25), &state);
    const Key key = KeyFromSeed(26);
    return estimator.Estimate(weights, key, &state).gradient(0) /
           estimator.Estimate(weights, key, &fresh).gradient(0);
  };
  const double scale = std::pow(1 - 2 * std::exp(static_cast<double>(kTheta)), 10);
  CHECK(second_over_first(TruncatedES::Carried::kMean) == doctest::Approx(scale).epsilon(1e-6));
  CHECK(second_over_first(TruncatedES::Carried::kPositive) != doctest::Approx(scale).epsilon(1e-4));

  const CycleStatistics statistics = OverCycles(
      TruncatedES(SgdOnQuadratic(10), {Options(5), TruncatedES::Carried::kMean}), 0, 2, 100, 27);
  CheckWithinFourStandardErrors(statistics.mean, -.16277426696);
}

std::shared_ptr<TruncationSchedule> OneStep() {
  return std::make_shared<ConstantTruncationSchedule>(
      ConstantTruncationSchedule::Options{.total_length = 1});
}

TEST_CASE("ES smooths a function by the perturbations' normal") {
  struct Case {
    std::function<double(double)> f;
    double theta, std, expected;
  };
  const std::vector<Case> cases = {
      {[](double x) { return x * x * x; }, 1.0, 0.5, 3.75},
      {[](double x) { return std::exp(x); }, 0.25, 0.5, std::exp(0.25 + 0.125)},
      {[](double x) { return std::cos(2 * x); }, 0.5, 0.4,
       -2 * std::sin(1.0) * std::exp(-4 * 0.16 / 2)}};
  for (const Case& one : cases) {
    const FullES estimator(Function(1, [&](std::span<const double> t) { return one.f(t[0]); }),
                           OneStep(), {.num_tasks = 100000, .std = one.std});
    EstimatorState state;
    Statistics statistics;
    for (uint64_t run = 0; run < 10; ++run) {
      statistics.Add(
          estimator
              .Estimate(At({static_cast<float>(one.theta)}), FoldIn(KeyFromSeed(8), run), &state)
              .gradient(0));
    }
    CheckWithinFourStandardErrors(statistics, one.expected);
  }
}

TEST_CASE("ES on a quadratic has its exact gradient, whatever the perturbations") {
  // f = theta' H theta / 2 + g' theta.
  const double h[3][3] = {{2, 0.5, -0.3}, {0.5, 1, 0.2}, {-0.3, 0.2, 3}};
  const double g[3] = {0.7, -1.1, 0.4};
  const auto f = [&](std::span<const double> t) {
    double value = 0;
    for (int i = 0; i < 3; ++i) {
      value += g[i] * t[i];
      for (int j = 0; j < 3; ++j) {
        value += 0.5 * t[i] * h[i][j] * t[j];
      }
    }
    return value;
  };
  const std::vector<float> theta = {0.5F, -0.25F, 1.0F};
  const FullES estimator(Function(3, f), OneStep(), {.num_tasks = 100000, .std = 0.7});
  EstimatorState state;
  std::vector<Statistics> statistics(3);
  for (uint64_t run = 0; run < 10; ++run) {
    const GradientEstimate estimate =
        estimator.Estimate(At(theta), FoldIn(KeyFromSeed(9), run), &state);
    for (int i = 0; i < 3; ++i) {
      statistics[i].Add(estimate.gradient(i));
    }
  }
  for (int i = 0; i < 3; ++i) {
    CAPTURE(i);
    CheckWithinFourStandardErrors(statistics[i],
                                  g[i] + h[i][0] * 0.5 - h[i][1] * 0.25 + h[i][2] * 1.0);
  }
}

TEST_CASE(
    "The variance of one antithetic pair on a linear loss is (P + 1) times the squared gradient") {
  const std::vector<double> g = {1, -2, 0.5, 3, -0.25};
  double norm = 0;
  for (const double value : g) {
    norm += value * value;
  }
  const FullES estimator(Function(5,
                                  [&](std::span<const double> t) {
                                    double value = 0;
                                    for (size_t i = 0; i < g.size(); ++i) {
                                      value += g[i] * t[i];
                                    }
                                    return value;
                                  }),
                         OneStep(), {.num_tasks = 1, .std = 0.1});
  EstimatorState state;
  std::vector<Statistics> statistics(5);
  for (uint64_t run = 0; run < 100000; ++run) {
    const GradientEstimate estimate =
        estimator.Estimate(At({0, 0, 0, 0, 0}), FoldIn(KeyFromSeed(10), run), &state);
    for (int i = 0; i < 5; ++i) {
      statistics[i].Add(estimate.gradient(i));
    }
  }
  double trace = 0;
  for (const Statistics& one : statistics) {
    trace += one.Variance();
  }
  CHECK(trace == doctest::Approx(6 * norm).epsilon(0.02));
}

TEST_CASE("The variance of PES on a chain of linear losses is the published formula's") {
  // Window t adds theta_1 to a state that halves each step: loss t is sum_k .5^(t - k) theta_1, one
  // step a window, ten windows.
  const auto chain = std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = 2,
      .start = {0.0},
      .length = 10,
      .advance = [](std::span<const double> theta, std::span<double> s, int64_t) {
        s[0] = 0.5 * s[0] + theta[0];
        return s[0];
      }});
  const TruncatedPES estimator(chain, {.num_tasks = 1, .trunc_length = 1, .std = 0.1});
  const WorkerWeights weights = At({0, 0});
  EstimatorState state = estimator.InitWorkerState(weights, {});
  Statistics parts[2];
  Statistics window_square;
  for (uint64_t episode = 0; episode < 100000; ++episode) {
    Eigen::VectorXd sum = Eigen::VectorXd::Zero(2);
    for (uint64_t w = 0; w < 10; ++w) {
      const Eigen::VectorXd gradient =
          estimator.Estimate(weights, FoldIn(FoldIn(KeyFromSeed(11), episode), w), &state)
              .gradient.cast<double>();
      window_square.Add(gradient.squaredNorm());
      sum += gradient;
    }
    parts[0].Add(sum(0));
    parts[1].Add(sum(1));
  }
  CHECK(parts[0].Variance() + parts[1].Variance() == doctest::Approx(424.63).epsilon(0.03));
  CHECK(window_square.Mean() == doctest::Approx(21.2164).epsilon(0.03));
  CheckWithinFourStandardErrors(parts[0], 18.001953125);
  CheckWithinFourStandardErrors(parts[1], 0);
}

TEST_CASE("With one window per episode PES and full ES are the same estimator") {
  const WorkerWeights weights = At({kTheta});
  const TruncatedPES pes(SgdOnQuadratic(10), Options(10));
  const FullES full(SgdOnQuadratic(0),
                    std::make_shared<ConstantTruncationSchedule>(
                        ConstantTruncationSchedule::Options{.total_length = 10}),
                    {.num_tasks = kPairs, .std = 0.1});
  const TruncatedES truncated(SgdOnQuadratic(10), {Options(10)});
  EstimatorState pes_state = pes.InitWorkerState(weights, {});
  EstimatorState truncated_state = truncated.InitWorkerState(weights, {});
  EstimatorState none;
  for (uint64_t window = 0; window < 3; ++window) {
    const Key key = FoldIn(KeyFromSeed(12), window);
    const GradientEstimate expected = full.Estimate(weights, key, &none);
    const GradientEstimate by_pes = pes.Estimate(weights, key, &pes_state);
    CHECK(by_pes.gradient(0) == doctest::Approx(expected.gradient(0)).epsilon(1e-6));
    CHECK(by_pes.mean_loss == doctest::Approx(expected.mean_loss).epsilon(1e-12));
    CHECK(truncated.Estimate(weights, key, &truncated_state).gradient(0) ==
          doctest::Approx(expected.gradient(0)).epsilon(1e-6));
  }
}

TEST_CASE("Perturbations that rounding swallows are an error that says what std would do") {
  const std::vector<float> theta = {1, -0.5, 2, 0};
  // Half of the spacing of float32 at 1, 2 and 0.5 is 2^-24, 2^-23 and 2^-25; a reach of 4 std that
  // is less moves 0 alone.
  RequireMoves(theta, 0x1p-25);
  CHECK(ErrorOf([&] { RequireMoves(theta, 0x1p-28); }) ==
        "perturbations of std 3.725290298461914e-09 leave 3 of theta's 4 numbers as they are in "
        "float32, so no gradient can be told from them; the greatest of theta is 2: take a std of "
        "at least 2e-06");
  const auto problem = Function(1, [](std::span<const double> x) { return x[0]; });
  const TruncatedPES pes(problem, {.num_tasks = 2, .trunc_length = 1, .std = 1e-12});
  const WorkerWeights weights{.theta = Eigen::VectorXf::Ones(1), .outer = {}};
  EstimatorState state = pes.InitWorkerState(weights, KeyFromSeed(1));
  CHECK(ErrorOf([&] {
          pes.Estimate(weights, KeyFromSeed(2), &state);
        }).starts_with("perturbations of std 1e-12 leave 1 of theta's 1 numbers"));
}

}  // namespace
}  // namespace lopt
