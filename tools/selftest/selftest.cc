#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/program_options.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/npz.h"
#include "lopt/base/print.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/workspace.h"
#include "lopt/base/wrapped.h"
#include "lopt/learner/transport/mpi_transport.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/scratch_directory.h"
#include "lopt/tools/selftest/known.h"
#include "lopt/tools/selftest/trainings.h"
#include "lopt/tools/stop_signal.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {

namespace po = boost::program_options;
namespace fs = std::filesystem;

namespace {

constexpr const char* kSynopsis = "lopt selftest [OPTIONS]";

constexpr const char* kExamples =
    "Checks this installation against known results, in less than half a minute and from the\n"
    "installed files alone: random numbers, steps of every optimizer, the trained optimizers, a\n"
    "meta-training, files, and a job of two ranks, on every instruction set of the machine. "
    "Prints\n"
    "a table. Exits with 1 if a check failed. Skips what is not installed, with the reason.\n"
    "\n"
    "Examples:\n"
    "  lopt selftest\n"
    "  lopt selftest --mpiexec 'srun --mpi=pmi2'\n";

// What a check throws that cannot be made here, with the reason.
class Skipped : public Error {
 public:
  using Error::Error;
};

// The checks with their results, a line for each as it ends; none begins once `stop` is set.
class Table {
 public:
  explicit Table(const std::atomic<bool>* stop) : stop_(stop) {
    PrintOut("{:<61} {:<8} {:>9}\n", "check", "result", "seconds");
  }

  void Check(const std::string& name, const std::function<void()>& check) {
    if (*stop_) return;
    const auto start = std::chrono::steady_clock::now();
    const char* result = "ok";
    std::string reason;
    try {
      check();
    } catch (const Skipped& skipped) {
      result = "skipped";
      reason = skipped.what();
      ++skipped_;
    } catch (const std::exception& error) {
      result = *stop_ ? "stopped" : "FAILED";
      reason = error.what();
      if (!*stop_) ++failed_;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    ++checks_;
    PrintOut("{:<61} {:<8} {:>9.2f}\n", name, result, seconds.count());
    if (!reason.empty()) PrintOut("{}", Wrapped("      ", reason));
    std::fflush(stdout);
  }

  // The last line. Returns the exit code.
  int Finish() const {
    const std::string skipped = skipped_ > 0 ? fmt::format(", {} skipped", skipped_) : "";
    if (failed_ > 0) {
      PrintOut("{} of {} checks failed{}\n", failed_, checks_, skipped);
      return kExitError;
    }
    if (*stop_) {
      PrintOut("Stopped after {} checks{}\n", checks_, skipped);
      return kExitInterrupted;
    }
    PrintOut("{} checks passed{}\n", checks_ - skipped_, skipped);
    return kExitDone;
  }

 private:
  const std::atomic<bool>* stop_;
  int checks_ = 0;
  int failed_ = 0;
  int skipped_ = 0;
};

// Nothing but warnings is logged.
class OnlyWarnings {
 public:
  OnlyWarnings() { spdlog::set_level(spdlog::level::warn); }
  ~OnlyWarnings() { spdlog::set_level(before_); }
  OnlyWarnings(const OnlyWarnings&) = delete;
  OnlyWarnings& operator=(const OnlyWarnings&) = delete;

 private:
  spdlog::level::level_enum before_ = spdlog::get_level();
};

// Pins an instruction set and, at the end, the one of before.
class OnIsa {
 public:
  explicit OnIsa(const std::string& isa) : before_(CurrentIsa()) { PinIsa(isa); }
  ~OnIsa() { PinIsa(before_); }
  OnIsa(const OnIsa&) = delete;
  OnIsa& operator=(const OnIsa&) = delete;

 private:
  std::string before_;
};

// Known answers of jax.random for the key of seed 42.
void CheckKeys() {
  const Key key = KeyFromSeed(42);
  const auto require = [](bool ok, const char* what) {
    Require(ok, "{} of the key of seed 42 are not what JAX draws", what);
  };
  require(FoldIn(key, 7) == Key{2547012911, 1371500959}, "the words folded with 7");
  std::vector<uint32_t> bits(5);
  Bits(key, bits);
  require(bits == std::vector<uint32_t>{2098992034, 2919706841, 2646866425, 2409546199, 1935504149},
          "bits");
  std::vector<float> uniforms(5);
  Uniform(key, uniforms);
  require(uniforms == std::vector<float>{0.488709569F, 0.679797173F, 0.616271496F, 0.561016083F,
                                         0.450644612F},
          "uniform numbers");
  std::vector<float> normals(5);
  Normal(key, normals);
  const std::vector<float> known = {-0.028304616F, 0.467131853F, 0.295702964F, 0.153545916F,
                                    -0.124032818F};
  for (size_t i = 0; i < known.size(); ++i) {
    require(std::abs(normals[i] - known[i]) <= 1e-6F, "normal numbers");
  }
  std::vector<int32_t> integers(5);
  Randint(key, 0, 10000, integers);
  require(integers == std::vector<int32_t>{2644, 914, 8071, 2369, 5709}, "integers");
}

void CheckFiles(const ScratchDirectory& scratch) {
  NamedArrays arrays;
  const std::vector<float> floats = {0,     -0.0F,
                                     1.5F,  std::numeric_limits<float>::denorm_min(),
                                     3e38F, std::numeric_limits<float>::infinity()};
  const std::vector<int64_t> integers = {std::numeric_limits<int64_t>::min(), -1, 1};
  const std::vector<uint8_t> bytes = {0, 127, 255};
  arrays.Set("floats", Array::Of<float>({2, 3}, floats));
  arrays.Set("integers", Array::Of<int64_t>({3}, integers));
  arrays.Set("bytes", Array::Of<uint8_t>({1, 3, 1}, bytes));
  const std::string safetensors = scratch / "arrays.safetensors";
  WriteArrayFile(safetensors, {.arrays = arrays, .metadata = {{"what", "a selftest"}}});
  const ArrayFile read = ReadArrayFile(safetensors);
  Require(read.arrays == arrays && read.metadata.at("what") == "a selftest",
          "what was written as safetensors is not what is read");
  const std::string npz = scratch / "arrays.npz";
  WriteNpz(npz, arrays);
  Require(ReadNpz(npz) == arrays, "what was written as npz is not what is read");
}

// Every optimizer's theta file, written and read; reading repeats the golden steps in it.
void CheckThetaFiles(const ScratchDirectory& scratch) {
  for (const KnownSteps& known : KnownOptimizerSteps()) {
    const Config config = KnownConfig(known.type);
    ThetaFile file;
    file.learned_optimizer = config;
    file.theta = OptimizerRegistry().Make(config)->InitTheta(KeyFromSeed(36));
    const std::string path = scratch / "theta.safetensors";
    WriteThetaFile(path, file);
    Require(ReadThetaFile(path).theta == file.theta, "theta of {} is not what was written",
            known.type);
  }
}

void CheckTraining(const std::string& isa, const std::vector<float>& theta, std::string* name) {
  const KnownTraining& known = KnownMetaTraining();
  const std::vector<float> weights = SomeWeights(theta);
  Require(weights.size() == known.weights.size(), "theta has {} weights, another number than known",
          theta.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    Require(std::abs(weights[i] - known.weights[i]) <= kWeightTolerance,
            "a weight is {:.9g} after 20 updates, {:.9g} is known; they may differ by {}",
            weights[i], known.weights[i], kWeightTolerance);
  }
  for (const KnownTraining::Bits& bits : known.bits) {
    if (bits.isa == isa && bits.hash == HashOf(theta)) {
      *name += ", known bits";
      return;
    }
  }
  *name += fmt::format(", within {} of the known one", kWeightTolerance);
}

// The program that starts ranks; throws Skipped if there is none.
std::string FindMpiexec(const std::optional<std::string>& told) {
  const std::string library = MpiLibrary();
  if (library.empty()) throw Skipped("this program is built without MPI");
  if (told) return *told;
  const char* path = std::getenv("PATH");
  std::vector<std::string> names = {"mpiexec"};
  if (library.find("MPICH") != std::string::npos) names.insert(names.begin(), "mpiexec.mpich");
  if (library.find("Open MPI") != std::string::npos) names.insert(names.begin(), "mpiexec.openmpi");
  for (const std::string& name : names) {
    std::string rest = path == nullptr ? "" : path;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(':'), rest.size());
      const fs::path file = fs::path(rest.substr(0, end)) / name;
      if (::access(file.c_str(), X_OK) == 0) return name;
      rest.erase(0, end + 1);
    }
  }
  throw Skipped(fmt::format("no {} is in PATH (--mpiexec names it)", fmt::join(names, " or ")));
}

void CheckTorch() {
  if (!FindModule(kTorchModule)) throw Skipped("it is " + WhyNoModule(kTorchModule));
  const auto task = TaskRegistry().Make(
      Config::Parse(R"({"type": "TorchImageMLP", "hidden": [8], "batch_size": 16,
                        "data": "glyphs"})",
                    "lopt selftest"),
      TaskResources(""));
  const std::vector<Key> keys = {KeyFromSeed(37)};
  std::vector<float> params(static_cast<size_t>(task->params_layout().size()), 0.01F);
  std::vector<float> losses(1);
  std::vector<float> gradients(params.size());
  Workspace scratch;
  task->Evaluate(
      {.rows = 1, .params = params, .keys = keys, .losses = losses, .gradients = gradients},
      scratch);
  Require(std::isfinite(losses[0]) && losses[0] > 0, "the loss of a torch task is {}", losses[0]);
}

}  // namespace

int SelftestCommand(const std::vector<std::string>& arguments) {
  po::options_description options("Options");
  auto add = options.add_options();
  add("mpiexec", po::value<std::string>()->value_name("COMMAND"),
      "The program that starts ranks, with options of its own after spaces; it gets -n 2. Default: "
      "the mpiexec in PATH.");
  add("trained", po::value<std::string>()->value_name("DIR"),
      "Directory of the trained optimizers. Default: that of the installation.");
  add("print-known",
      "For developers: print what this program computes, as tools/selftest/known.inc holds it.");
  const auto values = ParseCommandLine(arguments, options, "", 0, kSynopsis, kExamples);
  if (!values) return kExitDone;
  if (values->contains("print-known")) {
    PrintOut("{}", PrintKnown());
    return kExitDone;
  }

  const OnlyWarnings quiet;
  const std::atomic<bool>* stop = StopOnSignals("this check");  // which removes what it wrote
  const ScratchDirectory scratch("selftest");
  const std::string best = CurrentIsa();
  PrintOut("lopt {} on {}\n", VersionAndCommit(GetBuildInfo()), fmt::join(SupportedIsas(), ", "));
  Table table(stop);
  std::vector<float> on_best;
  table.Check("files: what is written is read", [&] { CheckFiles(scratch); });
  for (const std::string& isa : SupportedIsas()) {
    const OnIsa pinned(isa);
    table.Check(fmt::format("{}: random numbers of JAX", isa), CheckKeys);
    table.Check(fmt::format("{}: steps of {} optimizers", isa, KnownOptimizerSteps().size()), [] {
      for (const KnownSteps& known : KnownOptimizerSteps()) CheckOptimizerSteps(known);
    });
    table.Check(fmt::format("{}: theta files of these", isa), [&] { CheckThetaFiles(scratch); });
    table.Check(fmt::format("{}: trained optimizers", isa), [&] {
      for (const std::string& file : TrainedFiles(TextOption(*values, "trained"))) {
        ReadThetaFile(file);
      }
    });
    std::string name = fmt::format("{}: a meta-training", isa);
    std::vector<float> theta;
    table.Check(name, [&] {
      theta = TrainSmoke(isa);
      CheckTraining(isa, theta, &name);
    });
    if (isa == best) on_best = theta;
  }
  table.Check("the same bits after a stop, on two threads", [&] {
    Require(TrainSmokeWithAStop(best, scratch / "resumed") == on_best,
            "theta has other bits than after an uninterrupted training");
  });
  table.Check("the same bits on two ranks (mpiexec)", [&] {
    const std::string mpiexec = FindMpiexec(TextOption(*values, "mpiexec"));
    Require(TrainOnTwoRanks(best, mpiexec, scratch / "ranks", stop) == TrainTwoWorkers(best),
            "theta has other bits than from one process");
  });
  table.Check("the torch module", CheckTorch);
  return table.Finish();
}

}  // namespace lopt
