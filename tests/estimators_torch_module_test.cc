// Gradients through unrolled training, by autograd in the torch module, against golden numbers,
// closed forms and central differences of the native tasks and optimizers.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/safetensors.h"
#include "lopt/estimators/antithetic.h"
#include "lopt/estimators/diagnostics.h"
#include "lopt/estimators/differentiable_problem.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/use/torch_script.h"
#include "lopt/tasks/registry.h"
#include "tests/contracts/build.h"
#include "tests/error_of.h"
#include "tests/golden_dir.h"
#include "tests/optimizer_examples.h"

namespace lopt {
namespace {

const TaskResources& Data() { return contracts::Resources(); }

std::shared_ptr<const LearnedOptimizer> Optimizer(const std::string& config) {
  return OptimizerRegistry().Make(Config::Parse(config, "test"));
}

std::shared_ptr<const ConfiguredEstimator> Estimator(
    const std::string& config, std::shared_ptr<const LearnedOptimizer> optimizer) {
  return EstimatorRegistry().Make(Config::Parse(config, "test"), std::move(optimizer), Data());
}

WorkerWeights At(Eigen::VectorXf theta) { return {.theta = std::move(theta), .outer = {}}; }

// The tensors of a layout among arrays of any shape, in one row.
Eigen::VectorXf Row(const Layout& layout, const NamedArrays& arrays) {
  Eigen::VectorXf row(layout.size());
  for (const LayoutEntry& entry : layout.entries()) {
    const auto values = arrays.At(entry.name).As<float>();
    REQUIRE(std::ssize(values) == entry.size);
    std::ranges::copy(values, row.begin() + entry.offset);
  }
  return row;
}

// The same of row `index` of arrays with one dimension more.
Eigen::VectorXf RowAt(const Layout& layout, const NamedArrays& arrays, int64_t index) {
  Eigen::VectorXf row(layout.size());
  for (const LayoutEntry& entry : layout.entries()) {
    const auto values = arrays.At(entry.name).As<float>();
    std::ranges::copy(values.subspan(index * entry.size, entry.size), row.begin() + entry.offset);
  }
  return row;
}

double RelativeDistance(const Eigen::VectorXd& got, const Eigen::VectorXf& wanted) {
  return (got - wanted.cast<double>()).norm() / wanted.cast<double>().norm();
}

TEST_CASE("Losses and gradients of unrolled training follow the golden trace") {
  const ArrayFile golden = ReadArrayFile(GoldenPath("unroll_gradient.safetensors"));
  const auto optimizers = nlohmann::ordered_json::parse(golden.metadata.at("optimizers"));
  for (const auto& [type, options] : optimizers.items()) {
    CAPTURE(type);
    nlohmann::ordered_json config = options;
    config["type"] = type;
    const auto optimizer = OptimizerRegistry().Make(Config::FromJson(config));
    const Layout& layout = optimizer->theta_layout();
    const NamedArrays own = golden.arrays.Extract(type + "/");
    const NamedArrays& shared = golden.arrays;
    const auto target = shared.At("target").As<float>();
    const auto start = shared.At("x0").As<float>();
    const DifferentiableProblem problem(
        "test",
        Config::Parse(
            R"({"type": "FixedDimQuadraticFamily", "dim": )" + std::to_string(start.size()) + "}",
            "test"),
        optimizer, std::make_shared<NeverEndingTruncationSchedule>(), {}, Data());
    const WorkerWeights weights = At(Row(layout, own.Extract("theta/")));
    const ThetaRows theta = {.theta = AsSpan(weights.theta), .rows = 1};
    const std::vector<Key> keys(1);
    const auto start_state = [&] {
      UnrollState state = problem.problem().Start(theta, {}, keys);
      std::ranges::copy(target, state.At("config").As<float>().begin());
      std::ranges::copy(start, state.At("params").As<float>().begin());
      return state;
    };
    UnrollTrace trace;
    const auto gradient = [&](int64_t steps, UnrollState* state) -> Eigen::VectorXd {
      return problem.Run({.theta = theta,
                          .outer = {},
                          .keys = keys,
                          .steps = steps,
                          .state = state,
                          .trace = &trace},
                         [&](const UnrollTrace&) -> Eigen::ArrayXXd {
                           return Eigen::ArrayXXd::Constant(steps, 1, 1.0 / double(steps));
                         });
    };
    const auto losses = own.At("loss").As<float>();
    UnrollState state = start_state();
    const Eigen::VectorXd whole = gradient(std::ssize(losses), &state);
    for (int64_t t = 0; t < std::ssize(losses); ++t) {
      CHECK(trace.loss(t, 0) == doctest::Approx(losses[t]).epsilon(1e-5));
    }
    CHECK(RelativeDistance(whole, Row(layout, own.Extract("gradient/"))) < 1e-5);

    const NamedArrays windows = own.Extract("window_gradient/");
    const int64_t count = windows.begin()->second.shape()[0];
    state = start_state();
    for (int64_t w = 0; w < count; ++w) {
      CAPTURE(w);
      const Eigen::VectorXd window = gradient(std::ssize(losses) / count, &state);
      CHECK(RelativeDistance(window, RowAt(layout, windows, w)) < 1e-5);
    }
  }
}

// SGD with learning rate .05 on |x|^2 has the losses |x_0|^2 .81^t. The mean of .81^t over [first,
// last].
double MeanPower(int first, int last) {
  double sum = 0;
  for (int t = first; t <= last; ++t) sum += std::pow(0.81, t);
  return sum / (last - first + 1);
}

const auto kSgd = R"({"type": "LearnableSGD", "learning_rate": 0.05})";

TEST_CASE("FullGrad has the exact gradient of SGD on a quadratic") {
  const auto sgd = Optimizer(kSgd);
  const std::vector<std::pair<int, double>> exact = {
      {10, -.29580010222195}, {7, -.28178924632971}, {5, -.241706304}};
  for (const auto& [length, wanted] : exact) {
    CAPTURE(length);
    const auto estimator = Estimator(
        R"({"type": "FullGrad", "num_tasks": 3, "task": {"type": "QuadraticTask", "dim": 4},
            "lengths": {"type": "ConstantTruncationSchedule", "total_length": )" +
            std::to_string(length) + "}}",
        sgd);
    const WorkerWeights weights = At(sgd->InitTheta(Key{}));
    EstimatorState state = estimator->estimator->InitWorkerState(weights, KeyFromSeed(1));
    const GradientEstimate estimate =
        estimator->estimator->Estimate(weights, KeyFromSeed(2), &state);
    const double start = estimate.mean_loss / MeanPower(0, length - 1);  // mean |x_0|^2
    CHECK(estimate.gradient(0) / start == doctest::Approx(wanted).epsilon(2e-6));
    CHECK(estimate.counts.inner_steps == 3 * length);
    CHECK(estimate.counts.episodes_ended == 3);
  }
}

TEST_CASE("FullGrad of the last loss is that of the last loss alone") {
  const auto sgd = Optimizer(kSgd);
  const auto estimator = Estimator(
      R"({"type": "FullGrad", "loss_type": "last", "num_tasks": 1,
          "task": {"type": "QuadraticTask", "dim": 1},
          "lengths": {"type": "ConstantTruncationSchedule", "total_length": 4}})",
      sgd);
  const WorkerWeights weights = At(sgd->InitTheta(Key{}));
  EstimatorState state;
  const GradientEstimate estimate = estimator->estimator->Estimate(weights, KeyFromSeed(3), &state);
  // d/dtheta (1 - 2 e^theta)^6 = -12 e^theta (1 - 2 e^theta)^5.
  const double start = estimate.mean_loss / MeanPower(0, 3);
  CHECK(estimate.gradient(0) / start ==
        doctest::Approx(-12 * 0.05 * std::pow(0.9, 5)).epsilon(2e-6));
}

TEST_CASE("FullGrad of the logarithm of a loss is its relative gradient, 0 at the floor") {
  const auto sgd = Optimizer(kSgd);
  // The last loss is x_0^2 (1 - 2 e^theta)^6: its logarithm has the slope -12 e^theta / (1 - 2
  // e^theta) for any x_0.
  for (const auto& [floor, wanted] : {std::pair("1e-30", -12 * 0.05 / 0.9), {"1e9", 0.0}}) {
    CAPTURE(floor);
    const auto estimator = Estimator(
        R"({"type": "FullGrad", "loss_type": "last", "num_tasks": 3,
            "task": {"type": "QuadraticTask", "dim": 1},
            "lengths": {"type": "ConstantTruncationSchedule", "total_length": 4},
            "meta_loss_log": )" +
            std::string(floor) + "}",
        sgd);
    const WorkerWeights weights = At(sgd->InitTheta(Key{}));
    EstimatorState state;
    const GradientEstimate estimate =
        estimator->estimator->Estimate(weights, KeyFromSeed(3), &state);
    CHECK(estimate.gradient(0) == doctest::Approx(wanted).epsilon(2e-6));
  }
}

TEST_CASE("TruncatedGrad ignores what came before the window") {
  const auto sgd = Optimizer(kSgd);
  const auto estimator = Estimator(
      R"({"type": "TruncatedGrad", "num_tasks": 3, "trunc_length": 5,
          "task": {"type": "QuadraticTask", "dim": 4},
          "lengths": {"type": "ConstantTruncationSchedule", "total_length": 10}})",
      sgd);
  const WorkerWeights weights = At(sgd->InitTheta(Key{}));
  EstimatorState state = estimator->estimator->InitWorkerState(weights, KeyFromSeed(1));
  for (uint64_t window = 0; window < 4; ++window) {
    CAPTURE(window);
    const GradientEstimate estimate =
        estimator->estimator->Estimate(weights, FoldIn(KeyFromSeed(2), window), &state);
    const bool first = window % 2 == 0;
    const double start = estimate.mean_loss / (first ? MeanPower(0, 4) : MeanPower(5, 9));
    CHECK(estimate.gradient(0) / start ==
          doctest::Approx(first ? -.241706304 : -.084277777).epsilon(2e-6));
    CHECK(estimate.counts.inner_steps == 15);
  }
}

// What the native training of an estimator's config is made from.
struct NativeOptions : LoptProblemOptions {
  Config task;
  Config lengths;
  int64_t num_tasks = 0;
  int64_t trunc_length = 0;
  void Visit(FieldVisitor& v) {
    LoptProblemOptions::Visit(v);
    v.Typed("task", &task, TaskRegistry().table(), "");
    v.Typed("lengths", &lengths, ScheduleRegistry().table(), "");
    v.Field("num_tasks", &num_tasks, AtLeast(1), "");
    v.Field("trunc_length", &trunc_length, AtLeast(1), "");
  }
};

// The second window's gradient against central differences of the native training, along the
// gradient and along a random direction, relative to the gradient's norm.
struct Compared {
  std::string task;
  std::string optimizer;
  std::string more = "";  // keys of the estimator
  double step = 1e-2;     // of the differences
  double tolerance = 0.01;
};

void CheckAgainstDifferences(const Compared& compared) {
  CAPTURE(compared.task);
  CAPTURE(compared.optimizer);
  CAPTURE(compared.more);
  const auto optimizer = Optimizer(compared.optimizer);
  const std::string options =
      R"("lengths": {"type": "LogUniformLengthSchedule", "min_length": 3, "max_length": 7},
         "random_initial_iteration_offset": 2, "num_tasks": 2, "trunc_length": 9, "task": )" +
      compared.task + compared.more;
  Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(4));
  Eigen::VectorXf noise(theta.size());
  Normal(KeyFromSeed(5), AsSpan(noise));
  theta += 0.05F * noise;
  const auto estimator = Estimator(R"({"type": "TruncatedGrad", )" + options + "}", optimizer);
  const WorkerWeights weights = At(theta);
  EstimatorState state = estimator->estimator->InitWorkerState(weights, KeyFromSeed(6));
  estimator->estimator->Estimate(weights, KeyFromSeed(7), &state);
  const GradientEstimate estimate = estimator->estimator->Estimate(weights, KeyFromSeed(8), &state);

  const auto read = ReadOptions<NativeOptions>(Config::Parse("{" + options + "}", "test"));
  const LoptProblem problem(TaskRegistry().Make(read.task, Data()), optimizer,
                            ScheduleRegistry().Make(read.lengths), read);
  Diagnostics noted;  // of the last run
  const auto run = [&](const Eigen::VectorXf& at, Key key, UnrollState* unroll) {
    UnrollTrace trace;
    problem.Run({.theta = {.theta = AsSpan(at), .rows = read.num_tasks},
                 .outer = {},
                 .keys = SplitKey(FoldIn(key, kUnrollDraw), read.num_tasks),
                 .steps = read.trunc_length,
                 .state = unroll,
                 .trace = &trace});
    NotedMeans means;
    means.Add(trace);
    noted.clear();
    means.WriteTo(&noted);
    return trace.loss.mean();
  };
  UnrollState before = problem.Start({.theta = AsSpan(theta), .rows = read.num_tasks}, {},
                                     SplitKey(KeyFromSeed(6), read.num_tasks));
  run(theta, KeyFromSeed(7), &before);
  const auto loss = [&](const Eigen::VectorXd& at) {
    UnrollState unroll = before;
    return run(at.cast<float>(), KeyFromSeed(8), &unroll);
  };
  const Eigen::VectorXd center = theta.cast<double>();
  CHECK(estimate.mean_loss == doctest::Approx(loss(center)).epsilon(1e-4));
  CHECK(noted.size() == read.with_metrics);
  for (const auto& [name, value] : noted) {
    CHECK(estimate.metrics.at(name) == doctest::Approx(value).epsilon(1e-9));
  }
  const Eigen::VectorXd gradient = estimate.gradient.cast<double>();
  REQUIRE(gradient.norm() > 0);
  for (const Eigen::VectorXd& direction : {gradient, Eigen::VectorXd(noise.cast<double>())}) {
    const Eigen::VectorXd unit = direction / direction.norm();
    const double slope =
        (loss(center + compared.step * unit) - loss(center - compared.step * unit)) /
        (2 * compared.step);
    CAPTURE(slope);
    CAPTURE(gradient.dot(unit));
    CAPTURE(gradient.norm());
    CHECK(std::abs(gradient.dot(unit) - slope) < compared.tolerance * gradient.norm());
  }
}

constexpr const char* kLargeSteps =
    R"({"type": "MLPLOpt", "hidden_size": 4, "exp_mult": 0.1, "step_mult": 0.1})";
constexpr const char* kRelativeSteps =
    R"({"type": "MLPLOpt", "hidden_size": 4, "exp_mult": 0.1, "relative_step": true,
        "relative_to_parameter": true, "schedule": "warmup-cosine"})";
constexpr const char* kFactored =
    R"({"type": "AdafacMLPLOpt", "hidden_size": 4, "exp_mult": 0.1, "step_mult": 0.1})";
constexpr const char* kScheduled =
    R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
        "optimizer": {"type": "LearnableSGDM", "learning_rate": 10}}})";
constexpr const char* kQuadratic = R"({"type": "FixedDimQuadraticFamily", "dim": 5})";
constexpr const char* kNetwork =
    R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16, "data": "glyphs",
        "activation": "tanh"})";

TEST_CASE("Gradients agree with central differences of native training") {
  CheckAgainstDifferences({kQuadratic, R"({"type": "LearnableSGD"})"});
  CheckAgainstDifferences({kQuadratic, R"({"type": "LearnableSGDM", "schedule": "cosine"})"});
  CheckAgainstDifferences({kQuadratic, R"({"type": "LearnableAdam", "learning_rate": 0.1})"});
  CheckAgainstDifferences({kQuadratic, kLargeSteps});
  CheckAgainstDifferences({R"({"type": "LogQuadraticTask", "dim": 5})", kLargeSteps});
  CheckAgainstDifferences({kNetwork, kLargeSteps, R"(, "with_metrics": true)"});
  CheckAgainstDifferences({kNetwork, kRelativeSteps});  // of biases that begin as zeros, too
  CheckAgainstDifferences({kNetwork, kFactored});
  // With small steps: their curves are sharp.
  for (const char* type : {"Celo2", "Celo2Base"}) {
    CheckAgainstDifferences(
        {.task = kNetwork,
         .optimizer = R"({"type": ")" + std::string(type) + R"(", "learning_rate": 0.03})",
         .step = 1e-3,
         .tolerance = 0.03});
  }
  CheckAgainstDifferences({kNetwork, R"({"type": "LearnableAdam", "learning_rate": 0.1})"});
  CheckAgainstDifferences({kNetwork, kScheduled});
}

TEST_CASE("Gradients of every meta-loss agree with central differences") {
  for (const char* meta_loss : {"same_data", "train", "inner_valid", "outer_valid"}) {
    CheckAgainstDifferences(
        {kNetwork, kLargeSteps, R"(, "meta_loss": ")" + std::string(meta_loss) + "\""});
  }
  // Running statistics of a batch norm carry what theta did to later losses of other splits.
  CheckAgainstDifferences(
      {R"({"type": "ImageMLP", "image_size": 4, "hidden": [5], "batch_size": 16, "norm": "batch",
           "data": "glyphs", "activation": "tanh", "sampling": "epoch"})",
       kLargeSteps, R"(, "meta_loss": "outer_valid")"});
}

// H v of a task's loss against central differences of its gradient.
void CheckHessianProduct(const Config& config) {
  const std::string text = config.Dump(-1);
  INFO(text);
  const auto task = TaskRegistry().Make(config, Data());
  const auto derivatives = MakeTaskDerivatives("test", config, Data());
  std::vector<float> row(static_cast<size_t>(task->config_layout().size()));
  task->Sample(KeyFromSeed(1), row);
  const auto size = static_cast<size_t>(task->params_layout().size());
  std::vector<float> params(size);
  std::vector<float> start_state(static_cast<size_t>(task->model_state_layout().size()));
  task->Init(row, KeyFromSeed(2), params, start_state);
  std::vector<float> direction(size);
  Normal(KeyFromSeed(3), direction);
  const double norm = std::sqrt(Dot(direction, direction));
  const Key key = KeyFromSeed(4);
  Workspace scratch;
  std::vector<float> state;
  const auto at = [&](std::span<const float> where) {
    state = start_state;
    return TaskEvaluation{.rows = 1,
                          .config = row,
                          .params = where,
                          .model_state = state,
                          .split = Split::kTrain,
                          .keys = {&key, 1}};
  };
  const auto gradient = [&](double shift) {
    std::vector<float> where = params;
    for (size_t i = 0; i < size; ++i) {
      where[i] += static_cast<float>(shift / norm * double{direction[i]});
    }
    std::vector<float> gradients(size);
    float loss = 0;
    TaskEvaluation evaluation = at(where);
    evaluation.losses = {&loss, 1};
    evaluation.gradients = gradients;
    task->Evaluate(evaluation, scratch);
    return gradients;
  };
  const double step = 3e-3;
  const std::vector<float> above = gradient(step);
  const std::vector<float> below = gradient(-step);
  std::vector<float> product(size);
  std::vector<float> d_state(start_state.size());
  derivatives->Differentiate(at(params), {.gradient = direction}, product, d_state, scratch);
  double distance = 0;
  double largest = 0;
  for (size_t i = 0; i < size; ++i) {
    const double wanted = (double{above[i]} - double{below[i]}) / (2 * step) * norm;
    distance += std::pow(double{product[i]} - wanted, 2);
    largest += wanted * wanted;
  }
  CHECK(std::sqrt(distance) < 0.02 * std::sqrt(largest));

  // And the loss's own derivative is the gradient.
  const std::vector<float> plain = gradient(0);
  derivatives->Differentiate(at(params), {.loss = 2}, product, d_state, scratch);
  for (size_t i = 0; i < size; ++i) {
    CHECK(product[i] == doctest::Approx(2 * plain[i]).epsilon(1e-4).scale(1));
  }
}

TEST_CASE("Second derivatives of every task that has them agree with differences of gradients") {
  std::set<std::string> types;
  for (const contracts::Example& example : contracts::TaskExamples()) {
    const Config config = Config::Parse(example.config, "example");
    if (!contracts::HasDerivatives(config)) continue;
    // Where images are black the largest of a window is any of them, and the slope jumps.
    if (example.config.find("\"pool\": \"max\"") != std::string::npos) continue;
    CheckHessianProduct(config);
    types.insert(config.Type());
  }
  CHECK(types.size() == TypesWithDerivatives().size());
}

TEST_CASE("Every optimizer with a script is differentiated, however small its steps") {
  std::vector<std::string> configs = {
      R"({"type": "LearnableSGD", "learning_rate": 1e-8})",
      R"({"type": "LearnableAdam", "learning_rate": 1e-8, "weight_decay": 0.01})",
      R"({"type": "Celo2", "learning_rate": 1e-7})", R"({"type": "MLPLOpt", "step_mult": 1e-8})"};
  for (const auto& [name, config] : OptimizerExamples()) {
    const auto optimizer = Optimizer(config);
    if (!optimizer->needs_loss() && ObjectionToTorch(optimizer->config()).empty()) {
      configs.push_back(config);
    }
  }
  CHECK(configs.size() > 15);
  for (const std::string& config : configs) {
    CAPTURE(config);
    CHECK(ErrorOf([&] {
            Estimator(R"({"type": "FullGrad", "task": {"type": "ImageConv", "image_size": 4,
                          "channels": [3], "strides": [2], "data": "glyphs"},
                          "lengths": {"type": "ConstantTruncationSchedule", "total_length": 5}})",
                      Optimizer(config));
          }) == "no error");
  }
}

TEST_CASE("What cannot be differentiated is an error") {
  const auto sgd = Optimizer(kSgd);
  const std::string schedule =
      R"("lengths": {"type": "ConstantTruncationSchedule", "total_length": 5}})";
  CHECK(ErrorOf([&] {
          Estimator(R"({"type": "FullGrad", "task": {"type": "NoisyQuadraticFamily"}, )" + schedule,
                    sgd);
        }) ==
        "estimator 'FullGrad': a task of type 'NoisyQuadraticFamily' cannot be differentiated "
        "twice, which gradients through unrolled training need; types that can: QuadraticTask, "
        "FixedDimQuadraticFamily, LogQuadraticTask, ImageMLP, ImageConv, ByteLM, "
        "TorchImageAutoencoder, TorchImageConv, TorchImageMLP, TorchRowLSTM, "
        "TorchSequenceRegression");
  CHECK(ErrorOf([&] {
          Estimator(R"({"type": "FullGrad", "task": {"type": "QuadraticTask"},
                        "lengths": {"type": "NeverEndingTruncationSchedule"}})",
                    sgd);
        }) ==
        "FullGrad: its schedule must give episodes an end; NeverEndingTruncationSchedule does "
        "not");
  CHECK(ErrorOf([&] {
          Estimator(R"({"type": "TruncatedGrad", "task": {"type": "QuadraticTask"}, )" + schedule,
                    std::make_shared<LearnableSGD>(LearnableSGDOptions{}));
        }) ==
        "estimator 'TruncatedGrad': the learned optimizer is not one that a config names, so it "
        "has no script to differentiate");
  for (const auto& [optimizer, error] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "Muon"})", "a Muon cannot be differentiated; types that can: "},
           {R"({"type": "UnknownLength", "optimizer": {"type": "LearnableSGD"}})",
            "a UnknownLength cannot be differentiated; types that can: "},
           {R"({"type": "LearnableSGDM", "schedule": {"type": "Warmup", "warmup_steps": 5}})",
            "a LearnableSGDM with the schedule {"}}) {
    CAPTURE(optimizer);
    const std::string said = ErrorOf([&] {
      Estimator(R"({"type": "FullGrad", "task": {"type": "QuadraticTask"}, )" + schedule,
                Optimizer(optimizer));
    });
    CHECK(said.starts_with("estimator 'FullGrad': " + error));
    CHECK(said.find("cannot be differentiated") != std::string::npos);
    CHECK(said.find("Celo,") == std::string::npos);
    CHECK(said.find("CeloAdam") == std::string::npos);
    CHECK(said.find("Sinv6") == std::string::npos);
  }
  for (const std::string rate : {"1e-2", "1e-4", "1e-6"}) {
    CAPTURE(rate);
    const std::string celo2 = R"({"type": "Celo2", "learning_rate": )" + rate + "}";
    CHECK(ErrorOf([&] {
            Estimator(R"({"type": "FullGrad", "task": {"type": "QuadraticTask"}, )" + schedule,
                      Optimizer(celo2));
          }) ==
          "estimator 'FullGrad': the script of Celo2, which is differentiated, does not step the "
          "params of this task as the optimizer itself does: a script does not see the names of "
          "tensors");
  }
  const auto accuracy =
      Estimator(R"({"type": "FullGrad", "num_tasks": 1, "meta_loss_aux": "accuracy", "task": )" +
                    std::string(kNetwork) + ", " + schedule,
                sgd);
  const WorkerWeights weights = At(sgd->InitTheta(Key{}));
  CHECK(ErrorOf([&] {
          EstimatorState state;
          accuracy->estimator->Estimate(weights, KeyFromSeed(1), &state);
        }) == "torch task: aux output 'accuracy' cannot be differentiated");
}

TEST_CASE("Losses that are cut off or not finite add nothing to the gradient") {
  const auto diverging = Optimizer(R"({"type": "LearnableSGD", "learning_rate": 1e12})");
  const WorkerWeights weights = At(diverging->InitTheta(Key{}));
  for (const char* task : {kQuadratic, kNetwork}) {
    CAPTURE(task);
    const auto estimator =
        Estimator(R"({"type": "FullGrad", "num_tasks": 2, "task": )" + std::string(task) +
                      R"(, "lengths": {"type": "ConstantTruncationSchedule", "total_length": 12}})",
                  diverging);
    EstimatorState state;
    const GradientEstimate estimate =
        estimator->estimator->Estimate(weights, KeyFromSeed(1), &state);
    CHECK(estimate.gradient.allFinite());
    CHECK(std::isfinite(estimate.mean_loss));
    CHECK((estimate.counts.non_finite > 0) == (task == kQuadratic));
  }
}

}  // namespace
}  // namespace lopt
