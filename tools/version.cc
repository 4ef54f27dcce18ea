#include <fmt/core.h>
#include <fmt/ranges.h>
#include <hwy/highway.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "lopt/base/cores.h"
#include "lopt/base/device.h"
#include "lopt/base/isa.h"
#include "lopt/base/platform.h"
#include "lopt/base/print.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/plugin.h"
#include "lopt/learner/transport/mpi_transport.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/progress_line.h"

namespace lopt {

namespace {

std::string OrElse(const std::string& text, const char* other) {
  return text.empty() ? other : text;
}

// "1.13.1 (/usr/lib/lopt/liblopt_torch_module.so)", or why there is no module.
template <class VersionOf>
std::string ModuleLine(const ModuleKind& module, const VersionOf& version_of) {
  const auto path = FindModule(module);
  if (!path) return fmt::format("{} module {}", module.key, WhyNoModule(module));
  try {
    return fmt::format("{} ({})", version_of(), *path);
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
    try {
      gpus.push_back(fmt::format("{} is {}", name, FindDevice(name)->description()));
    } catch (const Error& error) {
      gpus.push_back(fmt::format("{} cannot be opened: {}", name, error.what()));
    }
  }
  return fmt::format("{}; {}", found.version, fmt::join(gpus, "; "));
}

std::string ProcessorLine() {
  return fmt::format("{}, {} for this process", ProcessorName(), Counted(AvailableCores(), "core"));
}

// "Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64".
std::string SystemLine() {
  const std::string key = "PRETTY_NAME=";
  std::string name;
  std::ifstream release("/etc/os-release");
  for (std::string line; std::getline(release, line);) {
    if (line.starts_with(key)) name = line.substr(key.size()) + ", ";
  }
  std::erase(name, '"');
  utsname kernel = {};
  if (::uname(&kernel) != 0) return name + "unknown kernel";
  return fmt::format("{}{} {} {}", name, kernel.sysname, kernel.release, kernel.machine);
}

// "glibc 2.36".
std::string CLibrary() {
#ifdef _CS_GNU_LIBC_VERSION
  char text[64];
  const size_t size = ::confstr(_CS_GNU_LIBC_VERSION, text, sizeof text);
  if (size > 0 && size <= sizeof text) return text;
#endif
  return "not glibc";
}

// All that Highway finds in the processor, whether or not the kernels were compiled for it.
std::string HighwayLine() {
  std::vector<std::string> targets;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    targets.emplace_back(hwy::TargetName(left & -left));
  }
  return fmt::format("{}.{}.{}, processor has {}", HWY_MAJOR, HWY_MINOR, HWY_PATCH,
                     fmt::join(targets, " "));
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
  PrintOut("processor:        {}\n", ProcessorLine());
  PrintOut("system:           {}\n", SystemLine());
  PrintOut("C library:        {}\n", CLibrary());
  PrintOut("instruction sets: {} (in use: {}){}\n", fmt::join(SupportedIsas(), " "), CurrentIsa(),
           KernelsAreNative() ? "; kernels of one processor" : "");
  PrintOut("Highway:          {}\n", HighwayLine());
  PrintOut("MPI:              {}\n", OrElse(MpiLibrary(), "not built"));
  PrintOut("gRPC:             {}\n", ModuleLine(kGrpcModule, GrpcLibrary));
  PrintOut("CUDA:             {}\n", CudaLine());
  PrintOut("LibTorch:         {}\n",
           ModuleLine(kTorchModule, [] { return OpenTorchModule("lopt version").torch_version; }));
  PrintOut("plug-ins:         built for {}\n", LOPT_ABI);
  return kExitDone;
}

}  // namespace lopt
