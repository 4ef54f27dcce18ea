#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "lopt/base/cores.h"
#include "lopt/base/device.h"
#include "lopt/base/parallel.h"
#include "lopt/base/print.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/device/kernel_comparison.h"

namespace lopt {

namespace po = boost::program_options;

int VerifyKernelsCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  auto add = options.add_options();
  add("device", po::value<std::string>()->value_name("NAME")->default_value("cuda"),
      "The device whose kernels are compared with the host: cuda, cuda:<number of a GPU>, or "
      "emulated.");
  add("steps", po::value<int64_t>()->value_name("N")->default_value(2000),
      "Inner steps over which rules are fed the same gradients.");
  const auto values = ParseCommandLine(
      arguments, options, "", 0, "lopt verify-kernels [OPTIONS]",
      "Examples:\n"
      "  lopt verify-kernels\n"
      "  lopt verify-kernels --device emulated --steps 100\n"
      "\n"
      "Exits with 1 if a difference is above its tolerance, or a second run has other bits. Torch\n"
      "tasks are left out where there is no torch module, or no CUDA in its LibTorch.\n");
  if (!values) return kExitDone;
  const std::string name = (*values)["device"].as<std::string>();
  const auto steps = (*values)["steps"].as<int64_t>();
  if (steps < 1 || steps > 4000) {
    throw UsageError(fmt::format("verify-kernels: --steps must be 1 to 4000, got {}", steps));
  }
  const Device* device = FindDevice(name);
  if (device == nullptr) {
    throw UsageError(
        "verify-kernels: --device 'cpu' is what kernels are compared with; choose "
        "cuda, cuda:<number of a GPU> or emulated");
  }
  PrintOut("{}: {}\n\n", device->name(), device->description());
  PrintOut("{:<9} {:<9} {:<9} {:<9} {:>6} {:>6}  {}\n", "losses", "numbers", "tolerance", "",
           "steps", "of", "kernel");
  int failed = 0;
  ThreadPool(AvailableCores()).Run([&] {
    CompareKernels(*device, steps, [&](const KernelComparison& c) {
      if (!c.left_out.empty()) {
        PrintOut("left out: {} on {}\n  {}\n", c.kernel, c.on, c.left_out);
        return;
      }
      failed += c.passed() ? 0 : 1;
      const char* word = c.passed() ? "" : c.error.empty() && !c.repeats ? "OTHER" : "FAILED";
      PrintOut("{:<9.2g} {:<9.2g} {:<9.2g} {:<9} {:>6} {:>6}  {} on {}\n", c.losses, c.numbers,
               c.tolerance, word, c.steps, c.replicas, c.kernel, c.on);
      if (!c.error.empty()) PrintOut("  {}\n", c.error);
      std::fflush(stdout);
    });
  });
  PrintOut(
      "\nLargest differences from the host, relative to the largest number of a kind{}\n",
      failed == 0 ? "; all are inside their tolerances, and second runs have the same bits." : ".");
  if (failed > 0) {
    PrintOut("{} kernels FAILED (OTHER: a second run has other bits).\n", failed);
  }
  return failed == 0 ? kExitDone : kExitError;
}

}  // namespace lopt
