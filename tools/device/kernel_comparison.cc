#include "lopt/tools/device/kernel_comparison.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/estimators/device_gradient.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/quadratic/linear_task.h"
#include "lopt/tools/device/task_on_device.h"

namespace lopt {
namespace {

constexpr double kStd = 0.01;  // of theta's perturbations
// Steps with the same gradients differ by rounding alone, which momenta and params add up.
constexpr double kRulesTolerance = 2e-5;
// Where gradients follow the params, their differences do as well.
constexpr double kTasksTolerance = 2e-4;
// Sums over pairs and windows differ by the rounding of draws.
constexpr double kGradientsTolerance = 1e-5;

Config ParsedConfig(const std::string& text) { return Config::Parse(text, "kernel comparison"); }

Layout AllRanks() {
  return Layout({{"scalar", Shape{}},
                 {"one", {1}},
                 {"vector", {17}},
                 {"matrix", {33, 5}},
                 {"wide", {3, 127}},
                 {"cube", {3, 4, 5}},
                 {"kernel", {3, 3, 2, 7}},
                 {"five", {2, 3, 1, 5, 2}},
                 {"empty", {0, 4}}});
}

struct Outcome {
  std::vector<double> losses;  // of all windows and of one fresh evaluation behind them
  UnrollState state;
};

// What is compared.
struct Comparison {
  std::string on;
  std::shared_ptr<const TaskFamily> task;
  std::string optimizer;  // its config
  int64_t pairs = 1;
  int64_t steps = 1;
  double tolerance = 0;
  LoptProblemOptions options = {};
  // Its config: no episode ends, and optimizers know a length.
  std::string schedule = R"({"type": "ConstantTruncationSchedule", "total_length": 4000})";
  PerturbationClock clock = {};
  int64_t window = 50;  // steps of one, at most
};

Outcome RunOn(const Comparison& of, const Device* device) {
  const auto optimizer = OptimizerRegistry().Make(ParsedConfig(of.optimizer));
  const LoptProblem problem(of.task, optimizer, ScheduleRegistry().Make(ParsedConfig(of.schedule)),
                            of.options, device);
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  const std::vector<Key> pair_keys = SplitKey(KeyFromSeed(2), of.pairs);
  const std::vector<Key> keys = SplitKey(KeyFromSeed(3), 2 * of.pairs);
  std::vector<int64_t> episodes(pair_keys.size());  // of each pair, that have ended
  Outcome outcome;
  for (int64_t done = 0; done < of.steps; done += of.window) {
    const Perturbations perturbations =
        of.clock.block == PerturbationClock::kWindow
            ? Perturbations(pair_keys, kStd, theta.size())
            : Perturbations(pair_keys, episodes, of.clock, kStd, theta.size());
    const ThetaRows rows = {
        .theta = AsSpan(theta), .rows = 2 * of.pairs, .perturbations = &perturbations};
    if (done == 0) outcome.state = problem.Start(rows, {}, keys);
    UnrollTrace trace;
    problem.Run({.theta = rows,
                 .keys = keys,
                 .steps = std::min(of.window, of.steps - done),
                 .state = &outcome.state,
                 .trace = &trace});
    for (int64_t n = 0; n < of.pairs; ++n) {
      episodes[static_cast<size_t>(n)] += trace.is_last.col(n).count();
    }
    outcome.losses.insert(outcome.losses.end(), trace.loss.data(),
                          trace.loss.data() + trace.loss.size());
    if (done + of.window < of.steps) continue;
    std::vector<double> fresh(keys.size());
    problem.MetaLoss(rows, keys, outcome.state, fresh);
    outcome.losses.insert(outcome.losses.end(), fresh.begin(), fresh.end());
  }
  return outcome;
}

// The largest difference, relative to the largest number of all.
template <class Numbers>
double DifferenceToLargest(const Numbers& a, const Numbers& b) {
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < static_cast<size_t>(std::size(a)); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    if (std::isfinite(y)) largest = std::max(largest, std::abs(y));
    if (x != y) difference = std::max(difference, std::abs(x - y));
    if (std::isnan(x) != std::isnan(y)) return std::numeric_limits<double>::infinity();
  }
  return largest > 0 ? difference / largest : difference;
}

KernelComparison Compare(const Comparison& of, const Device& device) {
  KernelComparison result{.kernel = of.optimizer,
                          .on = of.on,
                          .replicas = 2 * of.pairs,
                          .steps = of.steps,
                          .tolerance = of.tolerance};
  try {
    const Outcome host = RunOn(of, nullptr);
    const Outcome there = RunOn(of, &device);
    const Outcome again = RunOn(of, &device);
    result.repeats =
        there.state == again.state && DifferenceToLargest(there.losses, again.losses) == 0;
    result.losses = DifferenceToLargest(there.losses, host.losses);
    for (const auto& [name, array] : host.state) {
      if (array.dtype() != DType::kFloat32) continue;
      const Array copy = there.state.At(name).To(HostMemory());
      result.numbers =
          std::max(result.numbers, DifferenceToLargest(copy.As<float>(), array.As<float>()));
    }
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  return result;
}

// Sums and gradients over windows whose pairs' episodes end at different steps, one of 7 and one of
// 50 steps after the other, of losses that are normal numbers. `numbers` are both.
KernelComparison CompareGradients(const char* name, const PerturbationClock& clock, int64_t pairs,
                                  int64_t dimension, const Device& device) {
  KernelComparison result{.kernel = name,
                          .on = "sums of " + std::to_string(dimension) + " numbers",
                          .replicas = 2 * pairs,
                          .tolerance = kGradientsTolerance};
  const bool keeps = clock.block != PerturbationClock::kEpisode;
  const Shape shape = {pairs, dimension};
  Array accumulator(DType::kFloat32, shape);
  Array there = accumulator.To(device.memory());
  Array again = there;
  result.repeats = true;
  std::vector<int64_t> step(static_cast<size_t>(pairs));
  std::vector<int64_t> episodes(static_cast<size_t>(pairs));
  try {
    for (const int64_t window : {7, 50, 7, 50}) {
      const auto key = FoldIn(KeyFromSeed(4), static_cast<uint64_t>(result.steps));
      const Perturbations perturbations =
          clock.block == PerturbationClock::kWindow
              ? Perturbations(SplitKey(key, pairs), kStd, dimension)
              : Perturbations(SplitKey(KeyFromSeed(5), pairs), episodes, clock, kStd, dimension);
      UnrollTrace trace;
      trace.Resize(window, 2 * pairs);
      std::vector<float> normal(static_cast<size_t>(trace.loss.size()));
      Normal(FoldIn(key, 1), normal);
      std::ranges::copy(normal, trace.loss.data());
      for (int64_t b = 0; b < 2 * pairs; ++b) {
        const auto n = static_cast<size_t>(b % pairs);
        int64_t at = step[n];
        for (int64_t k = 0; k < window; ++k) {
          trace.iteration(k, b) = at;
          trace.is_last(k, b) = at == 19 + b % pairs % 40;
          at = trace.is_last(k, b) ? 0 : at + 1;
        }
        if (b < pairs) continue;
        step[n] = at;
        episodes[n] += trace.is_last.col(b).count();
      }
      const PairsLosses losses = LossGroupsOf(trace, clock);
      Array nothing(DType::kFloat32, shape);
      const Eigen::VectorXf gradient = PersistentGradient(
          losses, [&](auto... draw) { perturbations.Draw(draw...); }, kStd,
          (keeps ? accumulator : nothing).As<float>());
      const auto on_device = [&](Array* sums) {
        return GradientOnDevice(device, perturbations, losses, keeps ? sums : nullptr).gradient;
      };
      const Eigen::VectorXf once = on_device(&there);
      result.repeats = result.repeats && once == on_device(&again) && there == again;
      result.numbers = std::max(
          {result.numbers, DifferenceToLargest(AsSpan(once), AsSpan(gradient)),
           DifferenceToLargest(there.To(HostMemory()).As<float>(), accumulator.As<float>())});
      result.steps += window;
    }
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  return result;
}

// Every meta-loss and clock, over episodes that end and begin anew inside windows.
void CompareWindows(const Device& device,
                    const std::function<void(const KernelComparison&)>& each) {
  constexpr char kImages[] =
      R"({"type": "ImageMLP", "data": "glyphs", "image_size": 4, "hidden": [4], "activation": "tanh", "batch_size": 8})";
  constexpr char kEpochs[] =
      R"({"type": "ImageMLP", "data": "glyphs", "image_size": 4, "hidden": [4], "activation": "tanh", "batch_size": 8, "sampling": "epoch"})";
  struct Windows {
    const char* what;
    const char* task;
    LoptProblemOptions options;
    PerturbationClock clock;
  };
  const Windows all[] = {{"short episodes of GPES_K", kEpochs, {}, {3}},
                         {"short episodes of NRES, the loss after the update",
                          kEpochs,
                          {.meta_loss = MetaLoss::kSameData},
                          {PerturbationClock::kEpisode}},
                         {"short episodes, the loss of a fresh batch",
                          kEpochs,
                          {.meta_loss = MetaLoss::kTrain},
                          {PerturbationClock::kWindow}},
                         {"short episodes of GPES_K, the accuracy of a fresh batch",
                          kImages,
                          {.meta_loss = MetaLoss::kInnerValid, .meta_loss_aux = "accuracy"},
                          {3}}};
  for (const Windows& of : all) {
    each(Compare(
        {.on = std::string(of.what) + ": " + of.task,
         .task = MakeTaskOnDevice(of.task, device).task,
         .optimizer = R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 4})",
         .pairs = 2,
         .steps = 20,
         .tolerance = kTasksTolerance,
         .options = of.options,
         .schedule = R"({"type": "LogUniformLengthSchedule", "min_length": 4, "max_length": 13})",
         .clock = of.clock,
         .window = 8},
        device));
  }
}

}  // namespace

void CompareKernels(const Device& device, int64_t steps,
                    const std::function<void(const KernelComparison&)>& each) {
  // The loss of one parameter is a normal number times the params' first.
  each(Compare({.on = "normal numbers",
                .task = std::make_shared<LinearTask>(Layout({{"x", Shape{}}})),
                .optimizer = R"({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0})",
                .pairs = 256,
                .steps = 50,
                .tolerance = 1e-6},
               device));
  each(CompareGradients("the gradient of PES", {PerturbationClock::kWindow}, 33, 1763, device));
  each(CompareGradients("the gradient of GPES_K", {10}, 8, 33, device));
  each(CompareGradients("the gradient of NRES", {PerturbationClock::kEpisode}, 1, 31, device));
  const auto all_ranks = std::make_shared<LinearTask>(AllRanks());
  for (
      const char* optimizer :
      {R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 1, "hidden_layers": 1})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 4})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 17, "hidden_layers": 3})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 32})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 33, "hidden_layers": 4})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 64})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 8, "progress_features": true, "schedule": "cosine", "relative_step": true, "relative_to_parameter": true})",
       R"({"type": "AdafacMLPLOpt", "step_mult": 0.05})",
       R"({"type": "AdafacMLPLOpt", "step_mult": 0.05, "hidden_size": 17, "hidden_layers": 3})",
       R"({"type": "AdafacMLPLOpt", "step_mult": 0.05, "hidden_size": 64, "initial_rms_decays": [0.9, 0.99, 0.999]})",
       R"({"type": "Celo2Base", "learning_rate": 0.05, "weight_decay": 0.01})",
       R"({"type": "Celo2", "learning_rate": 0.05, "one_d": "adamw", "schedule": "linear"})",
       R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 4, "schedule": {"type": "WarmupCosine", "warmup_steps": 20, "start_scale": 0.1, "final_scale": 0.2}})",
       R"({"type": "Celo2", "learning_rate": 0.05, "schedule": {"type": "Piecewise", "boundaries": [10, 40], "scales": [0.5, 1, 0.3]}})"}) {
    each(Compare({.on = "ranks 0 to 5",
                  .task = all_ranks,
                  .optimizer = optimizer,
                  .steps = steps,
                  .tolerance = kRulesTolerance},
                 device));
  }
  // Squares of such gradients are beyond float32.
  const auto wide = std::make_shared<LinearTask>(AllRanks(), 1e25f);
  for (const char* optimizer : {R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 4})",
                                R"({"type": "AdafacMLPLOpt", "step_mult": 0.05})",
                                R"({"type": "Celo2", "learning_rate": 0.05, "one_d": "adamw"})"}) {
    each(Compare({.on = "ranks 0 to 5, gradients times 1e25",
                  .task = wide,
                  .optimizer = optimizer,
                  .steps = std::min<int64_t>(steps, 10),
                  .tolerance = kRulesTolerance},
                 device));
  }
  each(Compare({.on = "60,000 params in the device's memory",
                .task = std::make_shared<LinearTask>(Layout({{"w", {600, 99}}, {"b", {600}}})),
                .optimizer = R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 16})",
                .steps = std::min<int64_t>(steps, 20),
                .tolerance = kRulesTolerance},
               device));
  CompareWindows(device, each);
  // Where many units have a kink, rounding takes one of them to its other side sooner or later,
  // which is no small difference: the large task is smooth.
  for (
      const char* task :
      {R"({"type": "QuadraticTask", "dim": 33})",
       R"({"type": "FixedDimQuadraticFamily", "dim": 10})",
       R"({"type": "NoisyQuadraticFamily", "dim": 257})",
       R"({"type": "LogQuadraticTask", "dim": 3})", R"({"type": "ImageMLP", "data": "glyphs"})",
       R"({"type": "ImageMLP", "data": "glyphs", "hidden": [33, 3], "activation": "tanh", "batch_size": 17, "sampling": "epoch"})",
       R"({"type": "ImageMLP", "data": "glyphs", "hidden": [150], "activation": "tanh", "batch_size": 140})",
       R"({"type": "TorchImageMLP", "data": "glyphs", "hidden": [9], "norm": "batch", "activation": "tanh", "batch_size": 17})"}) {
    constexpr char kOptimizer[] = R"({"type": "MLPLOpt", "step_mult": 0.05, "hidden_size": 32})";
    const TaskOnDevice made = MakeTaskOnDevice(task, device);
    if (made.task == nullptr) {
      each({.kernel = kOptimizer, .on = task, .left_out = made.left_out});
      continue;
    }
    each(Compare({.on = task,
                  .task = made.task,
                  .optimizer = kOptimizer,
                  .steps = std::min<int64_t>(steps, 50),
                  .tolerance = kTasksTolerance},
                 device));
  }
}

}  // namespace lopt
