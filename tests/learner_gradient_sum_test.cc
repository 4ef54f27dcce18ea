#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/parallel.h"
#include "lopt/learner/aggregation.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/lopt/registry.h"
#include "tests/error_of.h"
#include "tests/learner_fakes.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Row = Eigen::VectorXf;

std::vector<Addend> Leaves(const std::vector<Row>& rows) {
  std::vector<Addend> addends;
  for (size_t w = 0; w < rows.size(); ++w) {
    if (rows[w].size() == 0) continue;
    addends.push_back({.first = static_cast<int64_t>(w), .row = AsSpan(rows[w])});
  }
  return addends;
}

TEST_CASE("In order and as a tree, numbers that rounding loses are lost where they must be") {
  // 2^53 + 1 is halfway to the next number of a double and rounds to the even 2^53.
  const auto number = [](float x) { return Row(Row::Constant(1, x)); };
  const std::vector<Row> rows = {number(0x1p53F), number(1), number(1), number(1)};
  CHECK_EQ(AddUp(GradientSum::kInOrder, Leaves(rows), 1)[0], 0x1p53);
  CHECK_EQ(AddUp(GradientSum::kTree, Leaves(rows), 1)[0], 0x1p53 + 2);  // (2^53 + 1) + (1 + 1)
  const std::vector<double> weights = {1, 2, 2, 0.5};
  CHECK_EQ(AddUp(GradientSum::kInOrder, Leaves(rows), 1, weights)[0], 0x1p53 + 4);
  CHECK(ErrorOf([&] { AddUp(GradientSum::kTree, Leaves(rows), 1, weights); }).find("no weights") !=
        std::string::npos);
  CHECK(ErrorOf([&] {
          AddUp(GradientSum::kInOrder, {}, 1, weights);
        }).find("0 rows with 4 weights") != std::string::npos);
  CHECK_EQ(AddUp(GradientSum::kTree, {}, 3), Eigen::VectorXd::Zero(3));
}

TEST_CASE("The largest nodes of a block of workers") {
  const auto nodes = [](int64_t first, int64_t end, int64_t workers) {
    std::vector<int64_t> sizes;
    for (; first < end; first += sizes.back()) {
      sizes.push_back(LargestNode(first, end, workers));
    }
    return sizes;
  };
  using Sizes = std::vector<int64_t>;
  CHECK_EQ(nodes(0, 8, 8), Sizes{8});
  CHECK_EQ(nodes(0, 1000, 1000), Sizes{1000});
  CHECK_EQ(nodes(0, 5, 8), Sizes{4, 1});
  CHECK_EQ(nodes(5, 8, 8), Sizes{1, 2});
  CHECK_EQ(nodes(3, 13, 16), Sizes{1, 4, 4, 1});
  // Those beyond the last count as inside: 8 to 11 with 10 workers, 12 with 13.
  CHECK_EQ(nodes(6, 10, 10), Sizes{2, 2});
  CHECK_EQ(nodes(4, 13, 13), Sizes{4, 5});
}

// The definition, for one number.
std::optional<double> SumOfNode(const std::vector<Row>& rows, int64_t at, size_t first,
                                size_t size) {
  if (first >= rows.size()) return {};
  if (size == 1) {
    if (rows[first].size() == 0) return {};
    return rows[first][at];
  }
  const std::optional<double> lower = SumOfNode(rows, at, first, size / 2);
  const std::optional<double> upper = SumOfNode(rows, at, first + size / 2, size / 2);
  if (lower && upper) return *lower + *upper;
  return lower ? lower : upper;
}

// Gradients of workers, some of which are not there, of magnitudes for which the order counts.
std::vector<Row> RandomRows(int64_t workers, int64_t size, bool all, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-30, 30);
  std::vector<Row> rows(static_cast<size_t>(workers));
  for (size_t w = 0; w < rows.size(); ++w) {
    if (!all && w != rows.size() / 2 && random() % 3 == 0) continue;
    rows[w] = Row::NullaryExpr(size, [&] { return std::ldexp(normal(random), exponent(random)); });
  }
  return rows;
}

// What processes send that have blocks of these workers.
std::vector<AggregatedGradient> Sent(const std::vector<Row>& rows,
                                     const std::vector<int64_t>& blocks, bool by_estimator) {
  std::vector<AggregatedGradient> sent;
  int64_t first = 0;
  for (const int64_t count : blocks) {
    std::vector<AggregatedGradient> block(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const Row& row = rows[static_cast<size_t>(first + i)];
      AggregatedGradient& gradient = block[static_cast<size_t>(i)];
      gradient.gradient = row.size() > 0 ? row : Row(Row::Zero(rows[rows.size() / 2].size()));
      if (by_estimator) {
        gradient.estimators.resize(1);
        gradient.estimators[0].weight = 1;
        gradient.estimators[0].gradient = row;
      }
    }
    AddUpNodes(first, std::ssize(rows), block);
    for (AggregatedGradient& gradient : block) sent.push_back(std::move(gradient));
    first += count;
  }
  return sent;
}

TEST_CASE("A tree's sum is its definition's, whoever adds up which part of it") {
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same draws in every run
  for (const int64_t workers : {1, 2, 3, 5, 8, 13, 64, 100}) {
    for (const bool all : {true, false}) {
      CAPTURE(workers);
      CAPTURE(all);
      constexpr int64_t kSize = 1100;  // more than a tile
      const std::vector<Row> rows = RandomRows(workers, kSize, all, random);
      const Eigen::VectorXd sum = AddUp(GradientSum::kTree, Leaves(rows), kSize);
      for (int64_t i = 0; i < kSize; i += 7) {
        REQUIRE_EQ(sum[i], *SumOfNode(rows, i, 0, 128));
      }
      for (int repeat = 0; repeat < 4; ++repeat) {
        std::vector<Addend> addends;
        std::vector<int64_t> blocks;
        for (int64_t left = workers; left > 0; left -= blocks.back()) {
          blocks.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(left)));
        }
        const auto sent = Sent(rows, blocks, true);
        for (size_t w = 0; w < sent.size(); ++w) {
          const EstimatorReport& report = sent[w].estimators[0];
          Addend addend{.first = static_cast<int64_t>(w), .row = AsSpan(report.gradient)};
          if (report.partial.gradients > 0) addend.row = AsSpan(report.partial.sum);
          if (report.partial.gradients > 0 || report.gradient.size() > 0) addends.push_back(addend);
        }
        CHECK_EQ(AddUp(GradientSum::kTree, addends, kSize), sum);
      }
    }
  }
}

TEST_CASE("A sum in order adds one row after the other") {
  std::mt19937 random(9);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same draws in every run
  for (const int64_t workers : {1, 7, 8, 9, 16, 21, 100}) {
    for (const int64_t size : {1, 511, 513, 1100}) {
      CAPTURE(workers);
      CAPTURE(size);
      const std::vector<Row> rows = RandomRows(workers, size, true, random);
      const std::vector<Eigen::VectorXd> doubles(rows.size(), Eigen::VectorXd::Constant(size, .1));
      std::vector<double> weights;
      for (int64_t w = 0; w < workers; ++w) weights.push_back(.1 * static_cast<double>(1 + w));
      std::vector<Addend> mixed = Leaves(rows);  // every fifth row is one of float64
      for (size_t w = 4; w < mixed.size(); w += 5) mixed[w].row = AsSpan(doubles[w]);
      for (const bool weighted : {false, true}) {
        CAPTURE(weighted);
        const auto sum_of = [&](std::span<const Addend> addends) {
          const std::span<const double> none;
          return AddUp(GradientSum::kInOrder, addends, size, weighted ? weights : none);
        };
        Eigen::VectorXd wanted = Eigen::VectorXd::Zero(size);
        Eigen::VectorXd wanted_mixed = Eigen::VectorXd::Zero(size);
        for (size_t w = 0; w < rows.size(); ++w) {
          const double weight = weighted ? weights[w] : 1;
          const Eigen::VectorXd row = rows[w].cast<double>();
          wanted += weight * row;
          wanted_mixed += weight * (w % 5 == 4 ? doubles[w] : row);
        }
        CHECK_EQ(sum_of(Leaves(rows)), wanted);
        CHECK_EQ(sum_of(mixed), wanted_mixed);
      }
    }
  }
}

GradientLearner Learner(Weighting weighting, GradientSum sum) {
  return {OptimizerRegistry().Make(Config::Parse(R"({"type": "LearnableSGD"})", "test")),
          Config::Parse(R"({"type": "SGD", "learning_rate": 1})", "test"),
          {.non_finite_gradient = NonFiniteGradient::kAbort, .sum = sum, .weighting = weighting}};
}

TEST_CASE("A learner that adds up a tree makes the same update of gradients and of partial sums") {
  std::mt19937 random(8);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same draws in every run
  for (const Weighting weighting : {Weighting::kFixed, Weighting::kEqualNorm}) {
    const GradientLearner learner = Learner(weighting, GradientSum::kTree);
    const LearnerState start = learner.Init(Row(Row::Zero(1)));
    const std::vector<Row> rows = RandomRows(13, 1, weighting == Weighting::kFixed, random);
    const LearnerState apart = learner.Update(start, Sent(rows, std::vector<int64_t>(13, 1), true));
    CHECK_NE(apart.theta[0], 0);
    for (const std::vector<int64_t>& blocks :
         std::vector<std::vector<int64_t>>{{13}, {7, 6}, {5, 4, 4}, {3, 3, 3, 2, 2}}) {
      const LearnerState together = learner.Update(start, Sent(rows, blocks, true));
      CHECK_EQ(together.theta, apart.theta);
      CHECK_EQ(together.norms, apart.norms);
    }
  }
}

TEST_CASE(
    "Partial sums that do not fit are Errors, and a sum that is not finite names its workers") {
  const GradientLearner learner = Learner(Weighting::kFixed, GradientSum::kTree);
  const LearnerState start = learner.Init(Row(Row::Zero(1)));
  const std::vector<Row> rows(6, Row::Constant(1, 2));
  const auto error = [&](auto&& change, const GradientLearner& by) {
    std::vector<AggregatedGradient> sent = Sent(rows, {2, 4}, false);  // nodes of 2, 2 and 2
    change(sent);
    return ErrorOf([&] { by.Update(start, sent); });
  };
  CHECK_EQ(error([](auto& sent) { sent[4].partial.gradients = 3; }, learner),
           "GradientLearner: gradient 4 is the sum of 3 gradients, 1 workers follow");
  CHECK_EQ(error([](auto& sent) { sent[4].partial.sum = Eigen::VectorXd::Zero(2); }, learner),
           "GradientLearner: gradient 4 has 2 numbers, theta has 1");
  CHECK_EQ(error([](auto& sent) { sent[2].partial = {}; }, learner),
           "GradientLearner: 2 of 6 workers have sent no gradient, nor one in a sum with others");
  CHECK(error([](auto& sent) { sent[2].partial.sum[0] = std::numeric_limits<double>::infinity(); },
              learner)
            .find("(worker 2, 3)") != std::string::npos);
  CHECK_EQ(error([](auto&) {}, Learner(Weighting::kFixed, GradientSum::kInOrder)),
           "GradientLearner: gradient 0 is a sum of 2 gradients, gradients are added up in order");
}

MetaTrainConfig TreeOf(int64_t workers, int64_t meta_steps = 20) {
  MetaTrainConfig config = SmallExperiment(workers, meta_steps);
  config.gradient_sum = GradientSum::kTree;
  return config;
}

TEST_CASE(
    "Runs that add up a tree have the same bits on any threads and ranks and after a resume") {
  for (const auto& [weighting, each] :
       {std::pair(Weighting::kFixed, 0), std::pair(Weighting::kEqualNorm, 0),
        std::pair(Weighting::kEqualNorm, 1)}) {
    MetaTrainConfig config = TreeOf(5, 9);
    config.weighting = weighting;
    config.estimators_per_worker = each;
    if (each > 0) config.estimators.push_back(config.estimators[0]);
    const TempDirectory whole;
    const MetaTrainResult one = RunMetaTraining(config, {.out_dir = whole.path()});
    CHECK(one.learner.theta.allFinite());
    CHECK_EQ(RunMetaTraining(config, {.threads = 3}).learner.theta, one.learner.theta);
    for (const int ranks : {2, 3, 7}) {
      const LocalJob job = RunLocalJob(config, ranks);
      CHECK_EQ(job.errors, std::vector<std::string>(static_cast<size_t>(ranks)));
      CHECK_EQ(job.result.learner.theta, one.learner.theta);
    }
    const TempDirectory parts;
    MetaTrainConfig first = config;
    first.meta_steps = 4;
    RunLocalJob(first, 3, {.out_dir = parts.path()});
    RunLocalJob(config, 2, {.out_dir = parts.path(), .resume = true});
    CHECK_EQ(FinalTheta(parts.path()), FinalTheta(whole.path()));
    CHECK_EQ(MetricsLines(parts.path()), MetricsLines(whole.path()));
  }
}

struct NoOptions {
  void Visit(FieldVisitor&) {}
};

TEST_CASE("The config says how a run adds up") {
  // Workers 0 to 3 have the gradients 2^53, 1, 1 and -2^53: in order their sum is 0, as a tree 1.
  EstimatorRegistry().Add<NoOptions>(
      "Cancelling", "For this test.",
      [](const NoOptions&, const std::shared_ptr<const LearnedOptimizer>&, const TaskResources&) {
        return Configured([](const WorkerWeights&, Key key, int64_t) {
          GradientEstimate estimate{
              .gradient = Row::Constant(1, 1), .mean_loss = 1, .counts = {}, .metrics = {}};
          for (const auto& [worker, gradient] : {std::pair(0, 0x1p53F), std::pair(3, -0x1p53F)}) {
            const Key windows = FoldIn(WorkerKey(KeyFromSeed(0), worker), 1);
            if (key == FoldIn(FoldIn(windows, 0), 0)) estimate.gradient[0] = gradient;
          }
          return estimate;
        });
      });
  auto config =
      ReadOptions<MetaTrainConfig>(Config::Parse(R"({"learned_optimizer": {"type": "LearnableSGD"},
                        "theta_opt": {"type": "SGD", "learning_rate": 1},
                        "estimators": [{"type": "Cancelling"}], "workers": 4, "meta_steps": 1})",
                                                 "test"));
  const float start = RunMetaTraining(config, {}).learner.theta[0];
  CHECK_EQ(start, doctest::Approx(std::log(0.01)));
  config.gradient_sum = GradientSum::kTree;
  CHECK_EQ(RunMetaTraining(config, {}).learner.theta[0], doctest::Approx(start - 0.25));
  CHECK_EQ(RunLocalJob(config, 3).result.learner.theta[0], doctest::Approx(start - 0.25));
}

std::atomic<int> threads_of_update = 0;  // of the last one of a NotingThreads

struct NotingThreadsOptions {
  int64_t size = 1;
  void Visit(FieldVisitor& v) { v.Field("size", &size, AtLeast(1), "Numbers of theta."); }
};

// p <- p - g, and notes how many threads there are.
class NotingThreads final : public LearnedOptimizer {
 public:
  explicit NotingThreads(const NotingThreadsOptions& options)
      : LearnedOptimizer(Layout({{"weights", {options.size}}})) {}

 private:
  class Rule final : public UpdateRule {
   public:
    explicit Rule(const Layout& params) : UpdateRule(params, Layout()) {}

   private:
    void DoUpdate(const StepInfo&, std::span<const float> gradient, std::span<float> params,
                  std::span<float>, Workspace&) const override {
      threads_of_update = CurrentThreads();
      for (size_t i = 0; i < params.size(); ++i) params[i] -= gradient[i];
    }
  };

  void DoInitTheta(Key, std::span<float> theta) const override { std::ranges::fill(theta, 0.0F); }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params, std::span<const float>) const override {
    return std::make_unique<Rule>(params);
  }
};

TEST_CASE("An update that adds up many numbers does so on the run's threads, with the same bits") {
  OptimizerRegistry().Add<NotingThreadsOptions>(
      "NotingThreads", "For this test.",
      [](const NotingThreadsOptions& options) { return std::make_shared<NotingThreads>(options); });
  EstimatorRegistry().Add<NoOptions>(
      "Normals", "For this test.",
      [](const NoOptions&, const std::shared_ptr<const LearnedOptimizer>& optimizer,
         const TaskResources&) {
        const Layout& theta = optimizer->theta_layout();
        return std::make_shared<ConfiguredEstimator>(ConfiguredEstimator{
            .estimator = std::make_shared<FakeEstimator>(
                theta,
                [](const WorkerWeights& weights, Key key, int64_t) {
                  Row gradient(weights.theta.size());
                  Normal(key, AsSpan(gradient));
                  return GradientEstimate{
                      .gradient = gradient, .mean_loss = 1, .counts = {}, .metrics = {}};
                }),
            .weight = 1,
            .task = "Fake"});
      });
  const auto config = [](int64_t size) {
    auto made = ReadOptions<MetaTrainConfig>(Config::Parse(
        R"({"learned_optimizer": {"type": "NotingThreads"}, "theta_opt": {"type": "NotingThreads"},
            "estimators": [{"type": "Normals"}], "workers": 8, "meta_steps": 2})",
        "test"));
    made.learned_optimizer = made.learned_optimizer.With("size", std::to_string(size));
    return made;
  };
  constexpr int64_t kFew = 8192;  // of eight workers 2^16
  const auto threads_of = [](const MetaTrainConfig& run, int threads) {
    threads_of_update = 0;
    RunMetaTraining(run, {.threads = threads});
    return threads_of_update.load();
  };
  CHECK_EQ(threads_of(config(kFew), 3), 1);
  CHECK_EQ(threads_of(config(kFew + 1), 3), 3);
  CHECK_EQ(threads_of(config(kFew + 1), 1), 1);
  MetaTrainConfig async = config(kFew + 1);
  async.mode = Config::Parse(R"({"type": "Async", "batch_size": 8})", "test");
  CHECK_EQ(threads_of(async, 3), 3);
  for (const Weighting weighting : {Weighting::kFixed, Weighting::kEqualNorm}) {
    MetaTrainConfig run = config(kFew + 1);
    run.weighting = weighting;
    const Row alone = RunMetaTraining(run, {.threads = 1}).learner.theta;
    CHECK_GT(alone.norm(), 0);
    CHECK_EQ(RunMetaTraining(run, {.threads = 3}).learner.theta, alone);
  }
}

TEST_CASE("A tree goes with a deadline and not with mode Async") {
  MetaTrainConfig config = TreeOf(5, 12);
  config.mode = Config::Parse(R"({"type": "Sync", "deadline_seconds": 1e-9, "quorum": 1})", "test");
  const LocalJob job = RunLocalJob(config, 3);
  CHECK_EQ(job.errors, std::vector<std::string>(3));
  CHECK_EQ(job.result.learner.outer_step, 12);
  CHECK(job.result.learner.theta.allFinite());
  config.mode = Config::Parse(R"({"type": "Async"})", "test");
  CHECK(ErrorOf([&] { CheckConfig(config); }).find("gradient_sum is tree, but mode Async") !=
        std::string::npos);
}

}  // namespace
}  // namespace lopt
