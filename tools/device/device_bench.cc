#include "lopt/tools/device/device_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/estimators/device_program.h"
#include "lopt/estimators/lopt_problem.h"
#include "lopt/estimators/registry.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/registry.h"
#include "lopt/tools/device/task_on_device.h"

namespace lopt {
namespace {

struct DeviceWorkload {
  const char* name;
  const char* task;
  int64_t hidden;  // of an MLPLOpt of two layers
  int64_t replicas;
};

// A multiple of an H100's 132 multiprocessors each.
constexpr DeviceWorkload kDeviceWorkloads[] = {
    {"image-mlp 64-32-10, 32 units", R"({"type": "ImageMLP", "data": "glyphs"})", 32, 1056},
    {"image-mlp 64-32-10, 16 units", R"({"type": "ImageMLP", "data": "glyphs"})", 16, 1056},
    {"image-mlp 784-128-10, 32 units",
     R"({"type": "ImageMLP", "data": "glyphs", "image_size": 28, "hidden": [128]})", 32, 132},
    {"torch image-mlp 64-32-10, 32", R"({"type": "TorchImageMLP", "data": "glyphs"})", 32, 1056},
    {"quadratic-10, 32 units", R"({"type": "FixedDimQuadraticFamily", "dim": 10})", 32, 16896},
    {"quadratic-2410, 32 units", R"({"type": "FixedDimQuadraticFamily", "dim": 2410})", 32, 1056},
    {"quadratic-2410, 16 units", R"({"type": "FixedDimQuadraticFamily", "dim": 2410})", 16, 1056},
    {"quadratic-100,000, 32 units", R"({"type": "FixedDimQuadraticFamily", "dim": 100000})", 32,
     132},
};

DeviceBenchResult Measure(const DeviceWorkload& workload, const Device& device, int repeats) {
  const auto [task, left_out] = MakeTaskOnDevice(workload.task, device);
  if (task == nullptr) return {.name = workload.name, .left_out = left_out};
  constexpr int64_t kSteps = 50;
  const auto parsed = [](const std::string& text) { return Config::Parse(text, "device bench"); };
  const MLPLOptOptions options = {.hidden_size = workload.hidden};
  const auto optimizer = std::make_shared<MLPLOpt>(options);
  const LoptProblem problem(
      task, optimizer,
      ScheduleRegistry().Make(parsed(R"({"type": "NeverEndingTruncationSchedule"})")), {}, &device);
  const bool emulated = device.kind() == Device::Kind::kEmulated;
  const int64_t pairs = std::max<int64_t>(1, workload.replicas / 2 / (emulated ? 100 : 1));
  const Eigen::VectorXf theta = optimizer->InitTheta(KeyFromSeed(1));
  const std::vector<Key> keys = SplitKey(KeyFromSeed(3), 2 * pairs);
  UnrollState state;
  UnrollTrace trace;
  std::vector<double> seconds;
  for (int i = 0; i <= repeats; ++i) {
    const Perturbations perturbations(SplitKey(KeyFromSeed(static_cast<uint64_t>(i)), pairs), 0.01,
                                      theta.size());
    const ThetaRows rows = {
        .theta = AsSpan(theta), .rows = 2 * pairs, .perturbations = &perturbations};
    if (i == 0) state = problem.Start(rows, {}, keys);
    const auto start = std::chrono::steady_clock::now();
    problem.Run({.theta = rows, .keys = keys, .steps = kSteps, .state = &state, .trace = &trace});
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (i > 0) seconds.push_back(passed.count());
  }
  std::ranges::sort(seconds);
  const DeviceProgram program(problem, device);
  const auto hidden = static_cast<double>(options.hidden_size);
  const double flop =
      task->flops() + static_cast<double>(task->params_layout().size()) * 2 *
                          (MLPLOpt::kNormalized * hidden + hidden * hidden + 2 * hidden);
  DeviceBenchResult result{.name = workload.name, .replicas = 2 * pairs, .steps = kSteps};
  result.window_seconds = seconds[seconds.size() / 2];
  result.steps_per_second = static_cast<double>(2 * pairs * kSteps) / result.window_seconds;
  result.gflops = result.steps_per_second * flop / 1e9;
  result.launches = program.GivesGradients() ? kSteps : 1;
  result.shared_bytes = program.plan().total * static_cast<int64_t>(sizeof(float));
  result.resident = program.plan().resident;
  return result;
}

}  // namespace

void BenchDevice(const Device& device, int repeats,
                 const std::function<void(const DeviceBenchResult&)>& each) {
  for (const DeviceWorkload& workload : kDeviceWorkloads) each(Measure(workload, device, repeats));
}

}  // namespace lopt
