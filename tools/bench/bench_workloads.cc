#include "lopt/tools/bench/bench_workloads.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/meta_train_config.h"
#include "lopt/learner/meta_train_presets.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/celo2/celo2.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/rules/orthogonal_steps.h"
#include "lopt/tasks/image/image_conv.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/bench/bench_tasks.h"
#include "lopt/tools/own_command.h"
#include "lopt/tools/scratch_directory.h"

extern char** environ;

namespace lopt {
namespace {

// FLOP of the definitions, with the time features folded into the first layer's bias and the
// normaliser into its rows.
double MlpLoptFlop(int64_t params, const MLPLOptOptions& options = {}) {
  const auto hidden = static_cast<double>(options.hidden_size);
  const auto layers = static_cast<double>(options.hidden_layers);
  return static_cast<double>(params) * 2 *
         (MLPLOpt::kNormalized * hidden + (layers - 1) * hidden * hidden + 2 * hidden);
}

// FLOP of the Newton-Schulz iterations, in full: the products that are equal by symmetry count.
double OrthogonalStepsFlop(const Layout& params) {
  double products = 0;
  for (const LayoutEntry& entry : params.entries()) {
    if (entry.shape.size() != 2) continue;
    const auto short_side = static_cast<double>(std::min(entry.shape[0], entry.shape[1]));
    const auto long_side = static_cast<double>(std::max(entry.shape[0], entry.shape[1]));
    products += Celo2::kIterations * short_side * short_side * (2 * long_side + short_side);
  }
  return 2 * products;
}

// FLOP of the definition: features that are the same along a row or a column are multiplied once
// for each, outputs that have no effect are not computed; Newton-Schulz in full. Without the
// moments, the normalisers and Adam.
double Celo2Flop(const Layout& params) {
  constexpr double kHidden = Celo2::kHidden;
  double products = 0;
  for (const LayoutEntry& entry : params.entries()) {
    if (entry.shape.size() != 2) continue;
    const auto short_side = static_cast<double>(std::min(entry.shape[0], entry.shape[1]));
    const auto long_side = static_cast<double>(std::max(entry.shape[0], entry.shape[1]));
    constexpr double kSides = 12;
    products += static_cast<double>(entry.size) *
                    ((Celo2::kFeatures - kSides) * kHidden + kHidden * kHidden + kHidden) +
                (short_side + long_side) * kSides / 2 * kHidden;
  }
  return 2 * products + OrthogonalStepsFlop(params);
}

void RequireClose(const std::string& what, std::span<const float> got,
                  std::span<const float> wanted, double relative) {
  double scale = 0;
  for (const float value : wanted) {
    scale = std::max(scale, std::abs(static_cast<double>(value)));
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    Require(
        std::abs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])) <= relative * scale,
        "bench: {} on {} differs from the same on {} at {}: {} instead of {}", what, CurrentIsa(),
        SupportedIsas().back(), i, got[i], wanted[i]);
  }
}

// Runs the oracle of a check: the same kernels on the machine's simplest instruction set, which on
// x86-64 is one lane at a time, all on this thread.
void OnSimplestIsa(const std::function<void()>& run) {
  const IsaScope scope(SupportedIsas().back());
  ThreadPool(1).Run(run);
}

struct ImageShape {
  std::string name;
  ImageMlpOptions options;
};

ImageShape SmallImages() { return {"8x8-32", {.images = {.image_size = 8}, .hidden = {32}}}; }
ImageShape LargeImages() {
  return {"784-128-128", {.images = {.image_size = 28}, .hidden = {128, 128}}};
}

std::shared_ptr<const TaskFamily> MakeImageTask(const ImageShape& shape,
                                                const char* type = "ImageMLP") {
  return TaskRegistry().Make(WriteOptions(type, shape.options), TaskResources(""));
}

// A learned optimizer and the FLOP of one update.
struct BenchOptimizer {
  std::shared_ptr<const LearnedOptimizer> optimizer;
  std::function<double(const Layout&)> flop;
  double tolerance = 1e-6;  // of a few updates on two instruction sets
};

BenchOptimizer BenchMlpLopt(const MLPLOptOptions& options = {}) {
  // Where float32's rounding decides between two neighbours in bfloat16, a step differs by 2^-8 of
  // itself.
  const bool exact = options.precision == Precision::kFloat32;
  return {std::make_shared<MLPLOpt>(options),
          [options](const Layout& params) { return MlpLoptFlop(params.size(), options); },
          exact ? 1e-6 : 1e-4};
}

// What rows and columns give to the first layer is formed once for each of them, and so is not
// counted; their factors are.
double AdafacFlop(const Layout& params, const AdafacMLPLOptOptions& options) {
  const AdafacFeatures features(options);
  const auto hidden = static_cast<double>(options.hidden_size);
  const auto layers = static_cast<double>(options.hidden_layers);
  double flop = 0;
  for (const LayoutEntry& entry : params.entries()) {
    const bool factored = entry.shape.size() >= 2;
    const auto inputs = static_cast<double>(features.count - (factored ? 4 * features.f : 0));
    flop += 2 * static_cast<double>(entry.size) *
            (inputs * hidden + (layers - 1) * hidden * hidden + 2 * hidden);
  }
  return flop;
}

BenchOptimizer BenchAdafac(int64_t hidden_size) {
  const AdafacMLPLOptOptions options = {.hidden_size = hidden_size};
  return {std::make_shared<AdafacMLPLOpt>(options),
          [options](const Layout& params) { return AdafacFlop(params, options); }};
}

BenchOptimizer BenchCelo2() { return {std::make_shared<Celo2>(Celo2Options()), Celo2Flop}; }

BenchOptimizer BenchOrthogonalSteps() {
  return {std::make_shared<OrthogonalSteps>(std::make_shared<LearnableSGDM>()), OrthogonalStepsFlop,
          1e-5};
}

// One optimizer's update of tensors of random numbers.
Workload OptimizerUpdate(const std::string& name, const Layout& layout,
                         const BenchOptimizer& optimizer) {
  struct Data {
    std::unique_ptr<UpdateRule> rule;
    Workspace memory;
    std::span<float> gradient, params, state;  // aligned, as those of a replica that runs
    Workspace scratch;
    int64_t step = 0;
  };
  auto data = std::make_shared<Data>();
  const Eigen::VectorXf theta = optimizer.optimizer->InitTheta(KeyFromSeed(1));
  data->rule = optimizer.optimizer->Bind(layout, AsSpan(theta));
  data->gradient = data->memory.Take<float>(layout.size());
  data->params = data->memory.Take<float>(layout.size());
  data->state = data->memory.Take<float>(data->rule->state_layout().size());
  Normal(KeyFromSeed(2), data->gradient);
  Normal(KeyFromSeed(3), data->params);
  std::ranges::fill(data->state, 0.0f);
  data->rule->InitState({}, data->params, data->state);
  return {.name = name,
          .unit = "updates",
          .flop = optimizer.flop(layout),
          .check =
              [data, name, tolerance = optimizer.tolerance] {
                std::vector<float> params(data->params.begin(), data->params.end());
                std::vector<float> state(data->state.begin(), data->state.end());
                std::vector<float> expected = params, expected_state = state;
                const auto step_thrice = [&](std::span<float> p, std::span<float> s) {
                  for (int64_t step = 0; step < 3; ++step) {
                    data->rule->Update({.step = step}, data->gradient, p, s, data->scratch);
                  }
                };
                step_thrice(params, state);
                OnSimplestIsa([&] { step_thrice(expected, expected_state); });
                RequireClose(name, params, expected, tolerance);
                RequireClose(name + " state", state, expected_state, 1e-6);
              },
          .call =
              [data] {
                data->rule->Update({.step = data->step++}, data->gradient, data->params,
                                   data->state, data->scratch);
              }};
}

// Loss and gradient of `rows` replicas of a network on a drawn batch.
struct ImageGradient {
  std::shared_ptr<const TaskFamily> task;
  std::vector<float> params, gradients, losses;
  std::vector<Key> keys;
  Workspace scratch;
  uint64_t calls = 0;

  ImageGradient(std::shared_ptr<const TaskFamily> made, int64_t rows) : task(std::move(made)) {
    const int64_t size = task->params_layout().size();
    params.resize(rows * size);
    gradients.resize(rows * size);
    losses.resize(rows);
    keys.resize(rows);
    for (int64_t r = 0; r < rows; ++r) {
      task->Init({}, KeyFromSeed(static_cast<uint64_t>(r)),
                 std::span(params).subspan(r * size, size), {});
    }
  }

  void Evaluate(Key key) {
    std::ranges::fill(keys, key);
    task->Evaluate({.rows = std::ssize(keys),
                    .params = params,
                    .keys = keys,
                    .losses = losses,
                    .gradients = gradients},
                   scratch);
  }
};

// The oracle is `native`, the task itself or what a task of LibTorch computes in C++.
Workload NetworkGradient(const std::string& name, std::shared_ptr<const TaskFamily> task,
                         const std::shared_ptr<const TaskFamily>& native, int64_t rows) {
  auto fast = std::make_shared<ImageGradient>(std::move(task), rows);
  return {.name = name,
          .unit = "gradients",
          .units = static_cast<double>(rows),
          .flop = fast->task->flops() * static_cast<double>(rows),
          .check =
              [=] {
                ImageGradient oracle(native, rows);
                OnSimplestIsa([&] { oracle.Evaluate(KeyFromSeed(4)); });
                fast->Evaluate(KeyFromSeed(4));
                RequireClose("loss of " + name, fast->losses, oracle.losses, 1e-5);
                RequireClose("gradient of " + name, fast->gradients, oracle.gradients, 1e-5);
              },
          .call = [fast] { fast->Evaluate(FoldIn(KeyFromSeed(5), fast->calls++)); }};
}

Workload ImageMlpGradient(const ImageShape& shape, const char* type, const std::string& name,
                          int64_t rows) {
  return NetworkGradient(name, MakeImageTask(shape, type), MakeImageTask(shape), rows);
}

struct ConvNet {
  std::string name;
  ImageConvOptions options;
};

std::vector<ConvNet> ConvNets() {
  return {
      {"8x8-16x32", {.images = {.channels = 3}}},
      {"16x16-32x64x64", {.images = {.image_size = 16, .channels = 3}, .channels = {32, 64, 64}}},
      {"28x28-5x5",
       {.images = {.image_size = 28, .batch_size = 64},
        .channels = {16, 32},
        .strides = {1},
        .kernel = {5, 5},
        .pool = Pool::kMax,
        .head = ConvHead::kFlatten}}};
}

Workload ImageConvGradient(const ConvNet& net, const std::string& name) {
  const auto task =
      std::make_shared<ImageConv>(net.options, GetImages(net.options.images, TaskResources("")));
  return NetworkGradient(name, task, task, 1);
}

// `replicas` models of a task trained for 50 inner steps by a learned optimizer.
Workload InnerSteps(const std::shared_ptr<const TaskFamily>& task, const BenchOptimizer& optimizer,
                    const std::string& name, int64_t replicas, bool all_threads) {
  constexpr int64_t kSteps = 50;
  struct Data {
    std::shared_ptr<const LoptProblem> problem;
    Eigen::VectorXf theta;
    UnrollState state;
    UnrollTrace trace;
    uint64_t window = 0;
  };
  auto data = std::make_shared<Data>();
  data->problem = std::make_shared<LoptProblem>(task, optimizer.optimizer,
                                                std::make_shared<NeverEndingTruncationSchedule>(),
                                                LoptProblemOptions{});
  data->theta = optimizer.optimizer->InitTheta(KeyFromSeed(1));
  data->state = data->problem->Start({.theta = AsSpan(data->theta), .rows = replicas}, {},
                                     SplitKey(KeyFromSeed(2), replicas));
  const auto run = [replicas](const LoptProblem& problem, const Eigen::VectorXf& theta, Key key,
                              int64_t steps, UnrollState* state, UnrollTrace* trace) {
    const std::vector<Key> keys = SplitKey(key, replicas);
    problem.Run({.theta = {.theta = AsSpan(theta), .rows = replicas},
                 .keys = keys,
                 .steps = steps,
                 .state = state,
                 .trace = trace});
  };
  const double step_flop = task->flops() + optimizer.flop(task->params_layout());
  return {.name = name,
          .all_threads = all_threads,
          .unit = "inner steps",
          .units = static_cast<double>(replicas * kSteps),
          .flop = step_flop * static_cast<double>(replicas * kSteps),
          .check =
              [data, name, run, tolerance = 10 * optimizer.tolerance] {
                UnrollState got = data->state, wanted = data->state;
                UnrollTrace trace;
                run(*data->problem, data->theta, KeyFromSeed(3), 3, &got, &trace);
                OnSimplestIsa(
                    [&] { run(*data->problem, data->theta, KeyFromSeed(3), 3, &wanted, &trace); });
                RequireClose(name, got.At("params").As<float>(), wanted.At("params").As<float>(),
                             tolerance);
              },
          .call =
              [data, run] {
                run(*data->problem, data->theta, FoldIn(KeyFromSeed(4), data->window++), kSteps,
                    &data->state, &data->trace);
              }};
}

MetaTrainConfig PresetOptions(const std::string& name) {
  return ReadOptions<MetaTrainConfig>(MetaTrainPresets().Find(name));
}

// Updates of theta as `lopt meta-train` makes them, from the first on: the time of its loop, with
// everything from handing out theta to the metrics, but not what comes before and after.
Workload MetaUpdates(const std::string& name, const MetaTrainConfig& config, int threads,
                     const std::shared_ptr<ScratchDirectory>& out) {
  return {.name = name, .all_threads = true, .unit = "updates", .timed = [=](int64_t updates) {
            MetaTrainConfig run = config;
            run.meta_steps = updates;
            const std::string path = out ? *out / "run" : "";
            return RunMetaTraining(
                       run, {.out_dir = path, .threads = threads, .overwrite = out != nullptr})
                .seconds;
          }};
}

// The tutorial: both estimators, the perturbations, the gradient, theta_opt; with an output
// directory also its metrics, journal and checkpoints.
Workload Tutorial(const std::string& name, const std::string& preset, int64_t num_tasks,
                  int threads, bool writes) {
  Workload workload = MetaUpdates(name, PresetOptions(preset), threads,
                                  writes ? std::make_shared<ScratchDirectory>("bench") : nullptr);
  const double replica_flop =
      50 * (MakeImageTask(SmallImages())->flops() + MlpLoptFlop(2410) + MlpLoptFlop(10));
  workload.flop = replica_flop * 2 * static_cast<double>(num_tasks);
  return workload;
}

// The tutorial's PES estimator of quadratics with 16 tasks.
Workload Quadratics(int threads) {
  MetaTrainConfig alone = PresetOptions("tutorial-16");
  alone.estimators.resize(1);
  Workload workload = MetaUpdates("quadratic-10", alone, threads, nullptr);
  workload.unit = "inner steps";
  workload.units = 2 * 16 * 50;
  workload.flop = workload.units * MlpLoptFlop(10);
  return workload;
}

Workload Normals() {
  auto out = std::make_shared<std::vector<float>>(1 << 16);
  auto calls = std::make_shared<uint64_t>(0);
  return {.name = "normals",
          .unit = "normals",
          .units = static_cast<double>(out->size()),
          .call = [out, calls] { Normal(FoldIn(KeyFromSeed(1), (*calls)++), *out); }};
}

// The checkpoint of a tutorial run, flushed to disk.
Workload CheckpointWrite(int threads) {
  struct Data {
    ScratchDirectory directory{"bench"};
    Checkpoint checkpoint;
    std::unique_ptr<CheckpointStore> store;
  };
  auto data = std::make_shared<Data>();
  MetaTrainConfig config = PresetOptions("tutorial");
  config.meta_steps = 1;
  RunMetaTraining(config, {.out_dir = data->directory.path(), .threads = threads});
  data->store =
      std::make_unique<CheckpointStore>(data->directory / "checkpoints", CheckpointRetention{});
  data->checkpoint = *data->store->ReadNewest();
  const auto write = [data] {
    ++data->checkpoint.learner.outer_step;
    data->store->Write(data->checkpoint);
  };
  return {.name = "checkpoint", .unit = "checkpoints", .call = write};
}

// A process of its own: the tutorial's first update, from the start of the process to its end,
// files written.
Workload FirstUpdate(int threads) {
  auto directory = std::make_shared<ScratchDirectory>("bench");
  return {.name = "first_update",
          .all_threads = true,
          .own_process = true,
          .unit = "runs",
          .call = [directory, threads] {
            const std::string out = *directory / "run";
            const std::string thread_count = std::to_string(threads);
            std::vector<std::string> words = OwnCommand();
            const std::vector<std::string> command = {
                "meta-train",  "--preset",  "tutorial",   "--steps", "1",
                "--overwrite", "--threads", thread_count, "--out",   out};
            words.insert(words.end(), command.begin(), command.end());
            std::vector<char*> arguments;
            for (std::string& word : words) {
              arguments.push_back(word.data());
            }
            arguments.push_back(nullptr);
            posix_spawn_file_actions_t actions;
            posix_spawn_file_actions_init(&actions);
            posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
            posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
            pid_t child = 0;
            const int error =
                posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
            posix_spawn_file_actions_destroy(&actions);
            int status = 0;
            Require(error == 0 && waitpid(child, &status, 0) == child && status == 0,
                    "bench: lopt meta-train for first_update failed with status {}", status);
          }};
}

}  // namespace

std::vector<WorkloadMaker> Workloads(int threads) {
  std::vector<WorkloadMaker> makers;
  const auto add = [&](const std::string& name, std::function<Workload()> make) {
    makers.push_back({name, std::move(make)});
  };
  for (const int64_t size : {10, 2410, 118282}) {
    const std::string name = "mlp_lopt/" + std::to_string(size);
    add(name, [=] { return OptimizerUpdate(name, Layout({{"x", {size}}}), BenchMlpLopt()); });
  }
  for (const int64_t hidden : {4, 8, 16, 64}) {
    const std::string name = "mlp_lopt/2410/hidden-" + std::to_string(hidden);
    add(name, [=] {
      return OptimizerUpdate(name, Layout({{"x", {2410}}}), BenchMlpLopt({.hidden_size = hidden}));
    });
  }
  const MLPLOptOptions bfloat16 = {.precision = Precision::kBfloat16};
  for (const int64_t size : {2410, 118282}) {
    const std::string name = "mlp_lopt/" + std::to_string(size) + "/bf16";
    add(name, [=] {
      return OptimizerUpdate(name, Layout({{"x", {size}}}), BenchMlpLopt(bfloat16));
    });
  }
  for (const auto& [shape, rows, columns] :
       {std::tuple("64x32", 64, 32), std::tuple("32x64", 32, 64), std::tuple("32x10", 32, 10),
        std::tuple("784x128", 784, 128)}) {
    const std::string name = std::string("celo2/") + shape;
    const Layout layout({{"w", {rows, columns}}});
    add(name, [=] { return OptimizerUpdate(name, layout, BenchCelo2()); });
  }
  for (const auto& [rows, columns] : {std::pair(64, 32), {128, 128}, {784, 128}, {1000, 1000}}) {
    const std::string name = fmt::format("orthogonal_steps/{}x{}", rows, columns);
    const Layout layout({{"w", {rows, columns}}});
    add(name, [=] { return OptimizerUpdate(name, layout, BenchOrthogonalSteps()); });
  }
  for (const int64_t hidden : {4, 32}) {
    const std::string name = "adafac/64x32/hidden-" + std::to_string(hidden);
    add(name, [=] {
      return OptimizerUpdate(name, Layout({{"w", {64, 32}}}), BenchAdafac(hidden));
    });
  }
  for (const ImageShape& shape : {SmallImages(), LargeImages()}) {
    const std::string gradient = "image_mlp/" + shape.name;
    add(gradient, [=] { return ImageMlpGradient(shape, "ImageMLP", gradient, 1); });
    const std::string step = "inner_step/" + shape.name;
    const auto add_steps = [&](const std::string& which, const BenchOptimizer& optimizer,
                               int64_t replicas) {
      add(step + which, [=] {
        return InnerSteps(MakeImageTask(shape), optimizer, step + which, replicas, replicas > 1);
      });
    };
    const int64_t many = 8 * threads;
    add_steps("", BenchMlpLopt(), 1);
    add_steps("/all", BenchMlpLopt(), many);
    add_steps("/bf16", BenchMlpLopt(bfloat16), 1);
    add_steps("/celo2", BenchCelo2(), 1);
    add_steps("/celo2/all", BenchCelo2(), many);
  }
  for (const ConvNet& net : ConvNets()) {
    const std::string gradient = "image_conv/" + net.name;
    add(gradient, [=] { return ImageConvGradient(net, gradient); });
  }
  add("quadratic-10", [=] { return Quadratics(threads); });
  add("tutorial", [=] { return Tutorial("tutorial", "tutorial", 4, threads, false); });
  add("tutorial/out", [=] { return Tutorial("tutorial/out", "tutorial", 4, threads, true); });
  add("tutorial-16", [=] { return Tutorial("tutorial-16", "tutorial-16", 16, threads, false); });
  add("normals", Normals);
  add("checkpoint", [=] { return CheckpointWrite(threads); });
  add("first_update", [=] { return FirstUpdate(threads); });
  // Last: LibTorch stays in memory once it is loaded.
  std::ranges::move(TaskWorkloads(), std::back_inserter(makers));
  const char* const torch = "torch_image_mlp/8x8-32";
  makers.push_back({torch,
                    [=] { return ImageMlpGradient(SmallImages(), "TorchImageMLP", torch, 32); },
                    MissingTorchModule(WriteOptions("TorchImageMLP", SmallImages().options))});
  return makers;
}

std::vector<WorkloadMaker> GrowthWorkloads() {
  constexpr int64_t kHidden = 32;
  constexpr int64_t kReplicas = 16;
  std::vector<WorkloadMaker> makers;
  const auto add = [&](const std::string& what, int64_t size, const Config& task, int64_t hidden,
                       int64_t replicas) {
    const std::string name = "growth/" + what + "-" + std::to_string(size);
    makers.push_back({name, [=] {
                        Workload steps =
                            InnerSteps(TaskRegistry().Make(task, TaskResources("")),
                                       BenchMlpLopt({.hidden_size = hidden}), name, replicas, true);
                        steps.check = {};  // it copies all replicas, which would count as memory
                        return steps;
                      }});
  };
  const Config small = WriteOptions("ImageMLP", SmallImages().options);
  for (const int64_t hidden : {4, 8, 16, 32, 64}) add("hidden", hidden, small, hidden, kReplicas);
  for (const int64_t size : {8, 16, 28}) {
    ImageMlpOptions options = SmallImages().options;
    options.images.image_size = size;
    add("image", size, WriteOptions("ImageMLP", options), kHidden, kReplicas);
  }
  for (const int64_t size : {8, 16, 28}) {
    const ImageConvOptions options = {.images = {.image_size = size}};
    add("conv", size, WriteOptions("ImageConv", options), kHidden, kReplicas);
  }
  // Last: many leave the process large.
  for (const int64_t replicas : {1, 4, 16, 64, 256, 1024}) {
    add("replicas", replicas, small, kHidden, replicas);
  }
  return makers;
}

}  // namespace lopt
