#include <fmt/core.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "lopt/base/device.h"
#include "lopt/base/isa.h"
#include "lopt/base/print.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/plugin.h"
#include "lopt/learner/transport/mpi_transport.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"

namespace lopt {

namespace {

std::string OrElse(const std::string& text, const char* other) {
  return text.empty() ? other : text;
}

std::string TorchLine() {
  const auto path = FindTorchModule();
  if (!path) return "torch module " + WhyNoTorchModule();
  try {
    return fmt::format("{} ({})", OpenTorchModule("lopt version").torch_version, *path);
  } catch (const Error& error) {
    return error.what();
  }
}

std::string CudaLine() {
  const CudaDevices found = FindCudaDevices();
  if (found.version.empty()) return "not built";
  if (found.count == 0) return fmt::format("{} ({})", found.version, found.reason);
  std::vector<std::string> gpus;
  for (int i = 0; i < found.count; ++i) {
    const std::string name = fmt::format("cuda:{}", i);
    gpus.push_back(fmt::format("{} is {}", name, FindDevice(name)->description()));
  }
  return fmt::format("{}; {}", found.version, fmt::join(gpus, "; "));
}

}  // namespace

int VersionCommand(const std::vector<std::string>& arguments) {
  if (!ParseCommandLine(arguments, {}, "", 0, "lopt version", "")) return kExitDone;
  const BuildInfo build = GetBuildInfo();
  PrintOut("lopt {}\n", build.version);
  PrintOut("commit:           {}\n",
           OrElse(build.commit, "unknown (not built from a git checkout)"));
  PrintOut("compiler:         {}, {}\n", build.compiler, build.build_type);
  PrintOut("sanitizers:       {}\n", OrElse(build.sanitizers, "none"));
  PrintOut("instruction sets: {} (in use: {})\n", fmt::join(SupportedIsas(), " "), CurrentIsa());
  PrintOut("MPI:              {}\n", OrElse(MpiLibrary(), "not built"));
  PrintOut("gRPC:             {}\n", OrElse(GrpcLibrary(), "not built"));
  PrintOut("CUDA:             {}\n", CudaLine());
  PrintOut("LibTorch:         {}\n", TorchLine());
  PrintOut("plug-ins:         built for {}\n", LOPT_ABI);
  return kExitDone;
}

}  // namespace lopt
