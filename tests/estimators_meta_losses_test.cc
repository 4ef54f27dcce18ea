// The losses of many thetas under the same draws, which optimizers from elsewhere ask for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/full_es.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/replica_keys.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/rules/unknown_length.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/tasks/table/table_mlp.h"
#include "tests/error_of.h"
#include "toy_problem.h"

namespace lopt {
namespace {

using LossType = FullES::LossType;
constexpr LossType kAll[] = {LossType::kAvg, LossType::kMin, LossType::kLast,
                             LossType::kLastRecompute};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Key kKey = KeyFromSeed(11);

Eigen::VectorXf Theta(std::vector<float> numbers) {
  return Eigen::Map<const Eigen::VectorXf>(numbers.data(), std::ssize(numbers));
}

std::shared_ptr<const TruncationSchedule> Lasting(int64_t steps) {
  return std::make_shared<ConstantTruncationSchedule>(
      ConstantTruncationSchedule::Options{.total_length = steps});
}

std::shared_ptr<const InnerProblem> Trained(std::shared_ptr<const TaskFamily> task,
                                            std::shared_ptr<const LearnedOptimizer> optimizer,
                                            const LoptProblemOptions& options = {}) {
  return std::make_shared<LoptProblem>(std::move(task), std::move(optimizer),
                                       std::make_shared<NeverEndingTruncationSchedule>(), options);
}

// Bowls (x - c)^2 under gradient descent.
std::shared_ptr<const InnerProblem> Bowls(const LoptProblemOptions& options = {}) {
  return Trained(std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{.dim = 3}),
                 std::make_shared<LearnableSGD>(), options);
}

// Bowls whose gradients are noisy, of lengths that are drawn, under an Adam of four thetas.
FullES Noisy(LossType loss_type, int64_t tasks) {
  return FullES(
      Trained(std::make_shared<NoisyQuadraticFamily>(NoisyQuadraticOptions{.dim = 5, .cov = 1}),
              std::make_shared<LearnableAdam>()),
      std::make_shared<LogUniformLengthSchedule>(
          LogUniformLengthSchedule::Options{.min_length = 100, .max_length = 300}),
      {.num_tasks = tasks, .std = .1, .loss_type = loss_type, .recompute_samples = 2});
}

// LearnableAdam's initial theta, and thetas around it.
std::vector<Eigen::VectorXf> Around(int64_t thetas) {
  const Eigen::VectorXf centre = LearnableAdam({.learning_rate = .1}).InitTheta(Key());
  std::vector<Eigen::VectorXf> around;
  for (int64_t k = 0; k < thetas; ++k) {
    around.push_back(centre);
    around.back()(0) -= .3F * static_cast<float>(k);
  }
  return around;
}

double LossOf(const FullES& estimator, const Eigen::VectorXf& theta) {
  return estimator.MetaLosses({&theta, 1}, {}, kKey).at(0);
}

TEST_CASE("A meta-loss is that of an inner training by hand") {
  constexpr int64_t kTasks = 3;
  constexpr int64_t kSteps = 200;
  constexpr double kRate = .01;
  std::vector<double> by_hand(std::size(kAll));
  for (int64_t n = 0; n < kTasks; ++n) {
    const Key task = FoldIn(FoldIn(kKey, kStartDraw), static_cast<uint64_t>(n));
    std::vector<float> target(3), start(3);
    Normal(FoldIn(task, kTaskDraw), target);
    Normal(FoldIn(task, kParamsDraw), start);
    std::vector<double> x(start.begin(), start.end());
    double sum = 0, least = kInfinity, last = 0, loss = 0;
    for (int64_t step = 0; step <= kSteps; ++step) {
      loss = 0;
      for (size_t i = 0; i < 3; ++i) loss += (x[i] - target[i]) * (x[i] - target[i]);
      for (size_t i = 0; i < 3; ++i) x[i] -= kRate * 2 * (x[i] - target[i]);
      if (step == kSteps) break;
      sum += loss;
      least = std::min(least, loss);
      last = loss;
    }
    by_hand[0] += sum / kSteps / kTasks;
    by_hand[1] += least / kTasks;
    by_hand[2] += last / kTasks;
    by_hand[3] += loss / kTasks;  // of the final params
  }
  for (size_t i = 0; i < std::size(kAll); ++i) {
    const FullES estimator(Bowls(), Lasting(kSteps), {.num_tasks = kTasks, .loss_type = kAll[i]});
    CHECK(LossOf(estimator, Theta({std::log(static_cast<float>(kRate))})) ==
          doctest::Approx(by_hand[i]).epsilon(1e-5));
  }
}

// Bowls whose replicas are evaluated together.
class TogetherBowls : public FixedDimQuadraticFamily {
 public:
  TogetherBowls() : FixedDimQuadraticFamily(QuadraticOptions{.dim = 3}) {}
  int64_t PreferredRows() const override { return kAllRows; }
};

TEST_CASE("The meta-loss of an optimizer that keeps an average is that of the average") {
  constexpr int64_t kTasks = 3;
  constexpr int64_t kSteps = 20;
  constexpr double kRate = .01;
  double of_params = 0;
  double of_average = 0;
  for (int64_t n = 0; n < kTasks; ++n) {
    const Key task = FoldIn(FoldIn(kKey, kStartDraw), static_cast<uint64_t>(n));
    std::vector<float> target(3), start(3);
    Normal(FoldIn(task, kTaskDraw), target);
    Normal(FoldIn(task, kParamsDraw), start);
    for (size_t i = 0; i < 3; ++i) {
      double x = start[i], average = x;
      for (int64_t t = 0; t < kSteps; ++t) {
        x -= kRate * 2 * (x - target[i]);
        average += 16. / static_cast<double>(t + 16) * (x - average);
      }
      of_params += (x - target[i]) * (x - target[i]) / kTasks;
      of_average += (average - target[i]) * (average - target[i]) / kTasks;
    }
  }
  REQUIRE(of_average > 1.01 * of_params);
  const auto optimizer = std::make_shared<UnknownLength>(std::make_shared<LearnableSGD>());
  const Eigen::VectorXf theta = Theta({std::log(static_cast<float>(kRate))});
  for (const std::shared_ptr<const TaskFamily>& bowls :
       {std::shared_ptr<const TaskFamily>(
            std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{.dim = 3})),
        std::shared_ptr<const TaskFamily>(std::make_shared<TogetherBowls>())}) {
    const FullES afterwards(Trained(bowls, optimizer), Lasting(kSteps),
                            {.num_tasks = kTasks, .loss_type = LossType::kLastRecompute});
    CHECK(LossOf(afterwards, theta) == doctest::Approx(of_average).epsilon(1e-5));
    // After each update, on a fresh batch or on the same.
    for (const MetaLoss meta_loss : {MetaLoss::kTrain, MetaLoss::kSameData}) {
      const FullES each(Trained(bowls, optimizer, {.meta_loss = meta_loss}), Lasting(kSteps),
                        {.num_tasks = kTasks, .loss_type = LossType::kLast});
      CHECK(LossOf(each, theta) == doctest::Approx(of_average).epsilon(1e-5));
    }
  }
}

TEST_CASE("A pair's losses are those of which an estimate makes its gradient") {
  constexpr double kStd = .1;
  const Eigen::VectorXf theta = Around(1)[0];
  std::vector<float> eps(static_cast<size_t>(theta.size()));
  Normal(FoldIn(FoldIn(kKey, kPerturbationDraw), 0), eps);
  const Eigen::VectorXf step = Theta(eps) * static_cast<float>(kStd);
  for (const LossType loss_type : kAll) {
    const FullES estimator = Noisy(loss_type, 1);
    EstimatorState none;
    const GradientEstimate estimate =
        estimator.Estimate({.theta = theta, .outer = {}}, kKey, &none);
    const std::vector<double> losses =
        estimator.MetaLosses(std::vector<Eigen::VectorXf>{theta + step, theta - step}, {}, kKey);
    REQUIRE(std::abs(losses[0] - losses[1]) > 1e-3 * losses[0]);
    const Eigen::VectorXd gradient =
        (losses[0] - losses[1]) / (2 * kStd * kStd) * step.cast<double>();
    CHECK((estimate.gradient.cast<double>() - gradient).norm() < 1e-6 * gradient.norm());
  }
}

// The meta-loss of theta t is t + k on the batch with the key's k-th draw of four, NaN for k = 0.
class Blinking : public ToyProblem {
 public:
  Blinking() : ToyProblem({.start = {0}, .advance = [](auto...) { return 0.0; }}) {}

  static int Draw(Key batch) { return Randint(batch, 0, 4); }

 private:
  void DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys, const UnrollState&,
                  std::span<double> loss) const override {
    std::vector<float> row(1);
    for (size_t b = 0; b < keys.size(); ++b) {
      theta.Row(static_cast<int64_t>(b), {}, row);
      const int draw = Draw(keys[b]);
      loss[b] = draw == 0 ? std::numeric_limits<double>::quiet_NaN() : double{row[0]} + draw;
    }
  }
  double OnScale(double loss) const override { return loss * loss; }
};

TEST_CASE("Batches without a loss are left out of the mean of a pair, and all of them give 0") {
  const auto problem = std::make_shared<Blinking>();
  const Eigen::VectorXf theta = Theta({10});
  std::vector<float> eps(1);
  Normal(FoldIn(FoldIn(kKey, kPerturbationDraw), 0), eps);
  const double step = double{.1F} * eps[0];
  for (const int64_t samples : {1, 2, 5, 20}) {
    double mean = 0, count = 0;
    for (int64_t sample = 0; sample < samples; ++sample) {
      const Key batch = FoldIn(FoldIn(kKey, kOuterBatchDraw), static_cast<uint64_t>(sample));
      const int draw = Blinking::Draw(FoldIn(batch, 0));
      if (draw > 0) mean += draw, count += 1;
    }
    const FullES estimator(problem, Lasting(3),
                           {.num_tasks = 1,
                            .std = .1,
                            .loss_type = LossType::kLastRecompute,
                            .recompute_samples = samples});
    EstimatorState none;
    const double got = estimator.Estimate({.theta = theta, .outer = {}}, kKey, &none).gradient(0);
    if (count == 0) {
      CHECK(got == 0);
      continue;
    }
    const double middle = 10 + mean / count;
    const double difference = std::pow(middle + step, 2) - std::pow(middle - step, 2);
    CHECK(got == doctest::Approx(difference / (2 * .1 * .1) * step).epsilon(1e-4));
  }
}

// Rows one by one, whose losses under one theta differ by more than an order of magnitude.
std::shared_ptr<const InnerProblem> RowByRow(std::optional<double> log) {
  const TableMlpOptions options = {.table = {.rows = 100, .classes = 2}, .batch_size = 1};
  return Trained(std::make_shared<TableMlp>(options, std::make_shared<TableData>(options.table)),
                 std::make_shared<LearnableSGD>(),
                 {.meta_loss = MetaLoss::kOuterValid, .meta_loss_log = log});
}

TEST_CASE("The logarithm is that of the mean over the outer batches, not the mean of theirs") {
  constexpr FullES::Options kOptions = {
      .num_tasks = 1, .std = .1, .loss_type = LossType::kLastRecompute, .recompute_samples = 40};
  const FullES plain(RowByRow({}), Lasting(50), kOptions);
  const Eigen::VectorXf theta = Theta({std::log(.5F)});
  const double loss = LossOf(plain, theta);
  for (const double floor : {1e-6, 2 * loss}) {
    const FullES log(RowByRow(floor), Lasting(50), kOptions);
    CHECK(LossOf(log, theta) == std::log(std::max(loss, floor)));
  }

  // The gradient, too.
  const FullES log(RowByRow(1e-6), Lasting(50), kOptions);
  std::vector<float> eps(1);
  Normal(FoldIn(FoldIn(kKey, kPerturbationDraw), 0), eps);
  const Eigen::VectorXf step = .1F * Theta(eps);
  const std::vector<double> losses =
      plain.MetaLosses(std::vector<Eigen::VectorXf>{theta + step, theta - step}, {}, kKey);
  EstimatorState none;
  const GradientEstimate estimate = log.Estimate({.theta = theta, .outer = {}}, kKey, &none);
  CHECK(estimate.gradient(0) ==
        doctest::Approx((std::log(losses[0]) - std::log(losses[1])) / (2 * .1 * .1) * step(0))
            .epsilon(1e-5));
}

TEST_CASE("Differences of meta-losses are the exact gradient of gradient descent on a bowl") {
  // Gradient descent at rate e^theta on x^2 from 1 for ten steps.
  const auto problem = std::make_shared<ToyProblem>(ToyProblem::Dynamics{
      .theta_size = 1,
      .start = {1.0},
      .advance = [](std::span<const double> theta, std::span<double> x, int64_t) {
        const double loss = x[0] * x[0];
        x[0] -= 2 * std::exp(theta[0]) * x[0];
        return loss;
      }});
  const FullES estimator(problem, Lasting(10), {});
  const float theta = std::log(.05F);
  const float above = theta + .01F, below = theta - .01F;
  CHECK((LossOf(estimator, Theta({above})) - LossOf(estimator, Theta({below}))) /
            (static_cast<double>(above) - static_cast<double>(below)) ==
        doctest::Approx(-.29580).epsilon(1e-4));
}

TEST_CASE("A theta's loss depends neither on the other thetas, their order nor on threads") {
  for (const LossType loss_type : kAll) {
    const FullES estimator = Noisy(loss_type, 3);
    std::vector<Eigen::VectorXf> thetas = Around(5);
    const std::vector<double> losses = estimator.MetaLosses(thetas, {}, kKey);
    for (size_t k = 0; k < 5; ++k) {
      CHECK(LossOf(estimator, thetas[k]) == losses[k]);
      for (size_t other = 0; other < k; ++other) CHECK(losses[other] != losses[k]);
    }
    std::ranges::reverse(thetas);
    ThreadPool(2).Run([&] {
      std::vector<double> reversed = estimator.MetaLosses(thetas, {}, kKey);
      std::ranges::reverse(reversed);
      CHECK(reversed == losses);
    });
    CHECK(estimator.MetaLosses(thetas, {}, FoldIn(kKey, 1))[4] != losses[0]);
  }
}

TEST_CASE("A training that diverges makes its theta's loss infinite, and no other") {
  const Eigen::VectorXf good = Theta({std::log(.05F)});
  const Eigen::VectorXf bad = Theta({std::log(1e30F)});
  for (const LossType loss_type : kAll) {
    const FullES estimator(Bowls(), Lasting(10), {.num_tasks = 2, .loss_type = loss_type});
    const std::vector<double> losses =
        estimator.MetaLosses(std::vector<Eigen::VectorXf>{bad, good}, {}, kKey);
    CHECK(losses[1] == LossOf(estimator, good));
    CHECK(std::isfinite(losses[1]));
    if (loss_type == LossType::kMin) {  // that of the start, the only one
      CHECK(losses[0] == LossOf(FullES(Bowls(), Lasting(1), {.num_tasks = 2}), good));
    } else {
      CHECK(losses[0] == kInfinity);
    }
  }
  const FullES strict(Bowls({.non_finite = NonFinite::kAbort}), Lasting(10), {});
  CHECK(ErrorOf([&] { LossOf(strict, bad); }) ==
        "inner problem: a meta-loss is inf, and non_finite is 'abort'");
}

TEST_CASE("Thetas that cannot be run are errors that say which") {
  const FullES estimator(Bowls(), Lasting(10), {});
  const Eigen::VectorXf good = Theta({-3});
  const auto error_of = [&](std::vector<Eigen::VectorXf> thetas) {
    return ErrorOf([&] { estimator.MetaLosses(thetas, {}, kKey); });
  };
  CHECK(error_of({}) == "FullES: no thetas, wanted at least one");
  CHECK(error_of({good, Theta({1, 2})}) == "FullES: theta 1 has 2 numbers, wanted 1");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(error_of({good, good, Theta({nan})}) == "FullES: theta 2 has a number that is not finite");
}

}  // namespace
}  // namespace lopt
