#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "lopt/base/device.h"
#include "lopt/base/emulated_device.h"
#include "lopt/base/parallel.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/device/kernel_comparison.h"
#include "tests/skip.h"

namespace lopt {
namespace {

TEST_CASE("Every kernel agrees with the host where the host runs it") {
  const EmulatedDevice device;
  int compared = 0;
  ThreadPool(2).Run([&] {
    CompareKernels(device, 60, [&](const KernelComparison& c) {
      CAPTURE(c.kernel);
      CAPTURE(c.on);
      if (!c.left_out.empty()) {
        CHECK_FALSE(FindModule(kTorchModule).has_value());
        return;
      }
      CHECK_EQ(c.error, "");
      CHECK(c.repeats);
      CHECK_LE(c.losses, c.tolerance);
      CHECK_LE(c.numbers, c.tolerance);
      CHECK(c.passed());
      ++compared;
    });
  });
  CHECK_EQ(compared, FindModule(kTorchModule) ? 34 : 33);
}

TEST_CASE("A comparison fails by an error, other bits or a difference above its tolerance") {
  const KernelComparison good{.losses = 1e-6, .numbers = 1e-6, .tolerance = 1e-5, .repeats = true};
  CHECK(good.passed());
  KernelComparison bad = good;
  bad.repeats = false;
  CHECK_FALSE(bad.passed());
  bad = good;
  bad.numbers = 2e-5;
  CHECK_FALSE(bad.passed());
  bad = good;
  bad.losses = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(bad.passed());
  bad = good;
  bad.error = "no room";
  CHECK_FALSE(bad.passed());
  CHECK(KernelComparison{.left_out = "no torch module"}.passed());
}

TEST_CASE("The command compares what --device names, and exits with 2 for what it cannot") {
  CHECK_EQ(RunProgram({"verify-kernels", "--device", "cpu"}), kExitUsage);
  CHECK_EQ(RunProgram({"verify-kernels", "--device", "emulated", "--steps", "0"}), kExitUsage);
  CHECK_EQ(RunProgram({"verify-kernels", "--device", "gpu"}), kExitError);
  CHECK_EQ(RunProgram({"bench", "--device", "cpu"}), kExitUsage);
}

TEST_CASE("Every kernel of the first GPU agrees with the host") {
  const CudaDevices found = FindCudaDevices();
  if (found.count == 0) {
    SkipTest(found.reason);
    return;
  }
  CHECK_EQ(RunProgram({"verify-kernels"}), kExitDone);
}

}  // namespace
}  // namespace lopt
