#include "lopt/tools/bench/estimator_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/registry.h"
#include "lopt/learner/worker.h"
#include "lopt/lopt/registry.h"
#include "lopt/tools/bench/bench_peak.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;
using EstimatorPointer = std::shared_ptr<const ConfiguredEstimator>;

constexpr double kTwoSided95 = 1.959964;

Measured Around(double value, double variance) {
  const double half = kTwoSided95 * std::sqrt(std::max(variance, 0.0));
  return {.value = value, .low = value - half, .high = value + half};
}

// The mean of independent numbers.
Measured MeanOf(const Eigen::ArrayXd& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = values.mean();
  return Around(mean, (values - mean).square().sum() / (count - 1) / count);
}

void RequireRuns(const Eigen::MatrixXd& runs) {
  Require(runs.cols() >= 3, "estimator bench: {} runs, wanted at least 3", runs.cols());
}

// A run of an estimator begins: its burn-in is no part of an estimate.
EstimatorState Begin(const GradientEstimator& estimator, const WorkerWeights& weights, Key key) {
  return estimator.InitWorkerState(weights, FoldIn(key, 0));
}

// The rest of the run: the gradients of its windows, [D, C].
Eigen::MatrixXd Windows(const GradientEstimator& estimator, const WorkerWeights& weights, Key key,
                        int64_t windows, EstimatorState* state, StepCounts* counts) {
  Eigen::MatrixXd gradients(weights.theta.size(), windows);
  for (int64_t w = 0; w < windows; ++w) {
    const GradientEstimate estimate =
        estimator.Estimate(weights, FoldIn(key, static_cast<uint64_t>(w) + 1), state);
    gradients.col(w) = estimate.gradient.cast<double>();
    *counts += estimate.counts;
  }
  return gradients;
}

// [C][D, R].
using Runs = std::vector<Eigen::MatrixXd>;

Eigen::MatrixXd MeanOverWindows(const Runs& runs) {
  Eigen::MatrixXd sum = runs[0];
  for (size_t w = 1; w < runs.size(); ++w) sum += runs[w];
  return sum / static_cast<double>(runs.size());
}

Runs RunAll(const GradientEstimator& estimator, const WorkerWeights& weights, Key key,
            int64_t count, int64_t windows, StepCounts* counts) {
  Runs runs(static_cast<size_t>(windows), Eigen::MatrixXd(weights.theta.size(), count));
  std::vector<StepCounts> of_runs(static_cast<size_t>(count));
  ParallelFor(count, [&](int64_t r) {
    const Key of_run = FoldIn(key, static_cast<uint64_t>(r));
    EstimatorState state = Begin(estimator, weights, of_run);
    const Eigen::MatrixXd gradients =
        Windows(estimator, weights, of_run, windows, &state, &of_runs[static_cast<size_t>(r)]);
    for (int64_t w = 0; w < windows; ++w) {
      runs[static_cast<size_t>(w)].col(r) = gradients.col(w);
    }
  });
  for (const StepCounts& of_run : of_runs) *counts += of_run;
  return runs;
}

// Processor seconds of one estimate on one thread, the least of three runs.
double SecondsOfEstimate(const GradientEstimator& estimator, const WorkerWeights& weights, Key key,
                         int64_t windows) {
  double best = 0;
  ThreadPool(1).Run([&] {
    for (uint64_t run = 0; run < 3; ++run) {
      StepCounts counts;
      EstimatorState state = Begin(estimator, weights, FoldIn(key, run));
      const double start = SecondsOn(BenchClock::kProcessor);
      Windows(estimator, weights, FoldIn(key, run), windows, &state, &counts);
      const double seconds = SecondsOn(BenchClock::kProcessor) - start;
      if (run == 0 || seconds < best) best = seconds;
    }
  });
  return best / static_cast<double>(windows);
}

// An estimator of another type on what `config` trains, with these keys beside.
Config OfType(const Config& config, const std::string& type, const Json& keys) {
  Json json = {{"type", type}};
  const Config of_problem = WriteOptions("", LoptProblemOptions());
  for (const auto& [key, value] : config.json().items()) {
    if (key == "task" || key == "lengths" || key == "num_tasks" ||
        of_problem.json().contains(key)) {
      json[key] = value;
    }
  }
  json.update(keys);
  return Config::FromJson(std::move(json), config.path());
}

// What stands for the exact gradient of each window and of their mean.
struct Reference {
  std::string name = "none";
  std::optional<std::string> inexact = {};  // EstimatorQuality
  Runs windows = {};                        // empty: not known
  Eigen::MatrixXd mean = {};                // [D, R], or empty
};

constexpr const char* kNotFinite =
    "the gradient of FullGrad is not finite: it may grow without bound over so many steps";

struct Bench {
  std::shared_ptr<const LearnedOptimizer> optimizer;
  TaskResources resources;
  WorkerWeights weights;
  int64_t runs = 0;

  EstimatorPointer Make(const Config& config) const {
    return EstimatorRegistry().Make(config, optimizer, resources);
  }
  // The same; null where it cannot be made, which `why` then says.
  EstimatorPointer TryMake(const Config& config, std::optional<std::string>* why) const {
    try {
      return Make(config);
    } catch (const Error& error) {
      *why = (why->has_value() ? **why + "; " : "") + error.what();
      return nullptr;
    }
  }

  // `window_steps` is 0 for whole episodes. `whole_episode`: the windows are one.
  Reference FindReference(const Config& config, Key key, int64_t windows, int64_t window_steps,
                          bool whole_episode) const {
    Reference reference;
    StepCounts counts;
    const std::string loss_type = config.json().value("loss_type", "avg");
    const Json counted = loss_type == "avg" ? Json::object() : Json{{"loss_type", loss_type}};
    if (window_steps == 0) {
      // FullGrad refuses what it cannot differentiate.
      if (const auto exact = TryMake(OfType(config, "FullGrad", counted), &reference.inexact)) {
        const Eigen::MatrixXd mean = RunAll(*exact->estimator, weights, key, runs, 1, &counts)[0];
        if (mean.allFinite()) return {.name = "FullGrad", .windows = {mean}, .mean = mean};
        reference.inexact = kNotFinite;
      }
    } else {
      // The mean loss of window w is (w + 1) M_{w+1} - w M_w, M_n that of the first n windows, of
      // which backpropagation from the start leaves nothing out.
      Eigen::MatrixXd before = Eigen::MatrixXd::Zero(weights.theta.size(), runs);
      for (int64_t w = 0; w < windows; ++w) {
        const auto exact =
            TryMake(OfType(config, "TruncatedGrad", {{"trunc_length", (w + 1) * window_steps}}),
                    &reference.inexact);
        if (exact == nullptr) break;
        const Eigen::MatrixXd sum = static_cast<double>(w + 1) *
                                    RunAll(*exact->estimator, weights, key, runs, 1, &counts)[0];
        reference.windows.emplace_back(sum - before);
        before = sum;
      }
      if (!reference.inexact) {
        reference.mean = MeanOverWindows(reference.windows);
        reference.name = "FullGrad";
        if (reference.mean.allFinite()) return reference;
        reference = {.inexact = kNotFinite};
      }
      reference.windows.clear();
    }
    if (!whole_episode) return reference;  // FullES has no others
    Json keys = counted;
    if (loss_type == "last_recompute" && config.json().contains("recompute_samples")) {
      keys["recompute_samples"] = config.json().at("recompute_samples");
    }
    keys["std"] = config.json().value("std", 0.01);
    keys["num_tasks"] = 2 * config.json().value("num_tasks", int64_t{8});
    if (const auto long_average = TryMake(OfType(config, "FullES", keys), &reference.inexact)) {
      const Eigen::MatrixXd mean =
          RunAll(*long_average->estimator, weights, key, runs, 1, &counts)[0];
      if (!mean.allFinite()) {
        *reference.inexact += "; that of FullES is not finite either";
        return reference;
      }
      reference.name = "FullES";
      reference.mean = mean;
      if (window_steps == 0) reference.windows = {mean};
    }
    return reference;
  }
};

// `exact` is empty where it is not known.
EstimatorQuality QualityOf(EstimatorQuality row, const Eigen::MatrixXd& runs, const Reference& from,
                           const Eigen::MatrixXd& exact) {
  row.variance = TraceOfCovariance(runs);
  row.inexact = from.inexact;
  if (exact.size() == 0) {
    row.reference = "none";
    return row;
  }
  row.reference = from.name;
  row.gradient_norm = NormOfMean(exact);
  // Relative to the length of the exact gradient, whose own error counts where it is an average.
  const double norm = std::max(row.gradient_norm.value, 1e-300);
  const Measured bias = NormOfMean(runs - exact);
  row.bias = {.value = bias.value / norm, .low = bias.low / norm, .high = bias.high / norm};
  row.cosine = MeanCosine(runs, exact);
  return row;
}

}  // namespace

Measured NormOfMean(const Eigen::MatrixXd& runs) {
  RequireRuns(runs);
  const auto count = static_cast<double>(runs.cols());
  const Eigen::VectorXd sum = runs.rowwise().sum();
  const Eigen::ArrayXd squares = runs.colwise().squaredNorm().transpose();
  const double all = squares.sum();
  // |mean|^2 without the products of a run with itself, and the same with each run left out.
  const double square = (sum.squaredNorm() - all) / (count * (count - 1));
  const Eigen::ArrayXd dots = (runs.transpose() * sum).array();
  const Eigen::ArrayXd left_out =
      (sum.squaredNorm() - 2 * dots + squares - (all - squares)) / ((count - 1) * (count - 2));
  const double variance = (count - 1) / count * (left_out - left_out.mean()).square().sum();
  // Where the mean is near 0 the jackknife sees nothing; the products then vary by 2 tr(S^2) / R^2.
  const Eigen::MatrixXd centered = runs.colwise() - sum / count;
  const double spread =
      (centered.rows() < centered.cols() ? (centered * centered.transpose()).norm()
                                         : (centered.transpose() * centered).norm()) /
      (count - 1);
  const Measured of_square = Around(square, variance + 2 * std::pow(spread / count, 2));
  const auto root = [](double value) { return std::sqrt(std::max(value, 0.0)); };
  return {.value = root(of_square.value), .low = root(of_square.low), .high = root(of_square.high)};
}

Measured TraceOfCovariance(const Eigen::MatrixXd& runs) {
  RequireRuns(runs);
  const auto count = static_cast<double>(runs.cols());
  const Eigen::VectorXd mean = runs.rowwise().mean();
  const Eigen::ArrayXd squares = (runs.colwise() - mean).colwise().squaredNorm().transpose();
  return MeanOf(squares * (count / (count - 1)));
}

Measured MeanCosine(const Eigen::MatrixXd& runs, const Eigen::MatrixXd& exact) {
  RequireRuns(runs);
  const Eigen::VectorXd sum = exact.rowwise().sum();
  Eigen::ArrayXd cosines(runs.cols());
  for (int64_t r = 0; r < runs.cols(); ++r) {
    const Eigen::VectorXd others = sum - exact.col(r);
    const double norms = others.norm() * runs.col(r).norm();
    cosines(r) = norms > 0 ? others.dot(runs.col(r)) / norms : 0;
  }
  return MeanOf(cosines);
}

Measured EstimatorQuality::VariancePer1000Steps() const {
  const double factor = inner_steps / 1000;
  return {variance.value * factor, variance.low * factor, variance.high * factor};
}

Measured EstimatorQuality::VariancePerSecond() const {
  return {variance.value * seconds, variance.low * seconds, variance.high * seconds};
}

EstimatorBench BenchEstimators(const MetaTrainConfig& config, const Eigen::VectorXf& theta,
                               const EstimatorBenchOptions& options) {
  Require(options.runs >= 3, "estimator bench: {} runs, wanted at least 3", options.runs);
  Require(!config.estimators.empty(), "estimator bench: the config has no estimators");
  const Bench bench = {.optimizer = OptimizerRegistry().Make(config.learned_optimizer),
                       .resources = TaskResources(config.data_dir),
                       .weights = {.theta = theta, .outer = {}},
                       .runs = options.runs};
  Estimators estimators;
  for (const Config& estimator : config.estimators) estimators.push_back(bench.Make(estimator));

  const Config resolved = WriteOptions("", config);
  EstimatorBench result = {.theta = {}, .runs = options.runs, .estimators = {}};
  const Key run_key = KeyFromSeed(static_cast<uint64_t>(config.seed));
  for (size_t e = 0; e < estimators.size(); ++e) {
    const Config& from = config.estimators[e];
    const GradientEstimator& estimator = *estimators[e]->estimator;
    const Key key = FoldIn(run_key, e);
    const bool stateless = estimator.OutlineState(bench.weights, key).size() == 0;
    EstimatorQuality row;
    row.estimator = EstimatorName(estimators, e);
    row.type = from.Type();
    row.task = estimators[e]->task;

    // A window's length is what one estimate runs of each task.
    const Config whole = Config::FromJson(resolved.json().at("estimators").at(e), from.path());
    const int64_t window_steps = stateless ? 0 : whole.json().value("trunc_length", int64_t{0});
    int64_t windows = 1;
    if (window_steps > 0) {
      const int64_t longest = estimators[e]->schedule ? estimators[e]->schedule->Longest(1)
                                                      : TruncationSchedule::kNever;
      windows = options.windows.value_or(
          longest == TruncationSchedule::kNever
              ? 1
              : std::min<int64_t>((longest + window_steps - 1) / window_steps, 20));
    }
    StepCounts counts;
    const Runs runs = RunAll(estimator, bench.weights, key, options.runs, windows, &counts);
    for (const Eigen::MatrixXd& gradients : runs) {
      Require(gradients.allFinite(),
              "estimator bench: under this theta {} gives gradients that are not finite",
              row.estimator);
    }
    const auto& schedule = estimators[e]->schedule;
    const bool whole_episode =
        window_steps == 0 ||
        (schedule && schedule->Shortest(1) == windows * window_steps &&
         schedule->Longest(1) == windows * window_steps &&
         whole.json().value("random_initial_iteration_offset", int64_t{0}) == 0);
    const auto burn_in = whole.json().value("burn_in", int64_t{0});
    const Reference reference =
        burn_in > 0
            ? Reference{.inexact = fmt::format("after a burn_in of {} inner steps tasks are no "
                                               "longer where an exact gradient begins",
                                               burn_in)}
            : bench.FindReference(whole, key, windows, window_steps, whole_episode);
    row.inner_steps =
        static_cast<double>(counts.inner_steps) / static_cast<double>(options.runs * windows);
    row.seconds = SecondsOfEstimate(estimator, bench.weights, key, windows);
    for (int64_t w = 0; windows > 1 && w < windows; ++w) {
      row.window = w;
      const auto at = static_cast<size_t>(w);
      result.estimators.push_back(
          QualityOf(row, runs[at], reference,
                    reference.windows.empty() ? Eigen::MatrixXd() : reference.windows[at]));
    }
    // All windows of an episode together are one estimate.
    row.window = std::nullopt;
    row.inner_steps *= static_cast<double>(windows);
    row.seconds *= static_cast<double>(windows);
    result.estimators.push_back(QualityOf(row, MeanOverWindows(runs), reference, reference.mean));
  }
  return result;
}

}  // namespace lopt
