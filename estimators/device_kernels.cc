#include "lopt/estimators/device_kernels.h"

#include <cstddef>
#include <memory>
#include <new>

#include "lopt/base/emulated_device.h"
#include "lopt/base/parallel.h"
#include "lopt/base/progress.h"

namespace lopt {
namespace {

// The memory of a block: these floats and none more, so that a sanitizer sees what goes beyond.
class BlockMemory {
 public:
  explicit BlockMemory(int floats)
      : floats_(static_cast<float*>(
            ::operator new(static_cast<size_t>(floats) * sizeof(float), kAlignment))) {}
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;
  ~BlockMemory() { ::operator delete(floats_, kAlignment); }

  float* floats() const { return floats_; }

 private:
  static constexpr std::align_val_t kAlignment{16};

  float* floats_;
};

}  // namespace

void RunEmulatedWindow(const DeviceTask& task, const DeviceRule& rule, const DeviceWindow& window,
                       ThreadOrder order) {
  const auto run = [&](const auto& of_task, const auto& of_rule) {
    using Task = typename std::decay_t<decltype(of_task)>::Functions;
    using Rule = typename std::decay_t<decltype(of_rule)>::Functions;
    ParallelFor(window.replicas, [&](int64_t replica) {
      const BlockMemory memory(window.plan.total);
      const Block block(window.threads, memory.floats(), order);
      DeviceReplica<Task, Rule>(block, window, of_task.args, of_rule.args, replica).Run();
      NoteProgress();
    });
  };
  std::visit(run, task, rule);
}

void RunWindowKernel(const Device& device, const DeviceTask& task, const DeviceRule& rule,
                     const DeviceWindow& window) {
  if (device.kind() == Device::Kind::kEmulated) {
    RunEmulatedWindow(task, rule, window, static_cast<const EmulatedDevice&>(device).order());
  } else {
    RunCudaWindow(device, task, rule, window);
  }
}

void RunGradientKernels(const Device& device, const DeviceGradient& of) {
  if (device.kind() != Device::Kind::kEmulated) {
    RunCudaGradient(device, of);
    return;
  }
  const ThreadOrder order = static_cast<const EmulatedDevice&>(device).order();
  const auto run = [&](int64_t blocks, const auto& program) {
    ParallelFor(blocks, [&](int64_t b) {
      const BlockMemory memory(kGradientFloats);
      program(Block(kGradientThreads, memory.floats(), order), of, b);
    });
  };
  if (of.accumulator != nullptr) run(of.pairs, SquareAccumulator);
  run(TilesOf(of.size), SumTile);
}

}  // namespace lopt
