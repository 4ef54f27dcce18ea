#include <fmt/format.h>

#include <boost/program_options/value_semantic.hpp>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/npz.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/lopt/use/c_source.h"
#include "lopt/lopt/use/torch_script.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/export_model.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {
namespace {

namespace po = boost::program_options;

constexpr const char* kExportSynopsis =
    "lopt export THETA --format torchscript|c|npz|safetensors --out FILE";
constexpr const char* kExportExamples =
    "THETA is a file, or recommended or another that comes with lopt.\n\n"
    "torchscript: a module with the methods init_state and update, for torch::jit::load and\n"
    "torch.jit.load; docs/using.md shows how to train with it. c: one file in C99 that allocates\n"
    "nothing, for microcontrollers; its first lines say how to use it. npz: the tensors of theta "
    "by\nname, for numpy.load, and learned_optimizer, the bytes of its type and options in JSON.\n"
    "safetensors: the theta file once more, with golden steps that are made on this machine.\n\n"
    "Example:\n  lopt export recommended --format torchscript --out theta.pt\n";

// The value of an option that must be given.
std::string Needed(const po::variables_map& values, const std::string& name,
                   const std::string& what) {
  if (!values.contains(name)) {
    throw UsageError(fmt::format("{} is missing; usage: {}", what, kExportSynopsis));
  }
  return values[name].as<std::string>();
}

void ExportTorchScript(const ThetaFile& theta_file, const std::string& path) {
  ScriptModule script = MakeTorchScript(theta_file);
  OpenTorchModule("lopt export --format torchscript")
      .write_torch_script(
          path, {.name = theta_file.learned_optimizer.Type(),
                 .module = std::move(script),
                 .extra_files = {{"learned_optimizer.json", theta_file.learned_optimizer.Dump(-1)},
                                 {"version", theta_file.version}}});
}

void ExportNpz(const ThetaFile& theta_file, const std::string& path) {
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  NamedArrays arrays =
      ArraysFromRow(optimizer->theta_layout(),
                    {theta_file.theta.data(), static_cast<size_t>(theta_file.theta.size())});
  const std::string config = theta_file.learned_optimizer.Dump(-1);
  const std::vector<uint8_t> bytes(config.begin(), config.end());
  arrays.Set("learned_optimizer",
             Array::Of<uint8_t>({static_cast<int64_t>(bytes.size())}, std::span(bytes)));
  WriteNpz(path, arrays);
}

}  // namespace

int ExportCommand(const std::vector<std::string>& arguments) {
  po::options_description options;
  auto add = options.add_options();
  add("format", po::value<std::string>(), "torchscript, c, npz or safetensors.");
  add("out", po::value<std::string>(), "The file to write.");
  add("model", po::value<std::string>()->value_name("DIR"),
      "Export the model of this run of lopt train in place of THETA: an image MLP or conv net, as "
      "torchscript or state_dict (.safetensors, names and layouts of PyTorch).");
  add("learned-optimizer", po::value<std::string>(),
      "Type and options in JSON, for a theta file that does not name its learned optimizer.");
  add(kDespiteFailedCheck, kDespiteFailedCheckText);
  add("isa", po::value<std::string>(),
      "Instruction set that checks the file, and makes new golden steps. Default: the best.");
  const auto values =
      ParseCommandLine(arguments, options, "theta", 1, kExportSynopsis, kExportExamples);
  if (!values) return kExitDone;
  if (values->contains("model")) return ExportModel(*values);
  if (!values->contains("theta")) {
    throw UsageError(fmt::format("The theta file is missing; usage: {}", kExportSynopsis));
  }
  const std::string format = Needed(*values, "format", "--format");
  const std::string out = Needed(*values, "out", "--out");
  if (format != "torchscript" && format != "c" && format != "npz" && format != "safetensors") {
    throw UsageError(
        fmt::format("--format must be torchscript, c, npz or safetensors, got '{}'", format));
  }
  const std::string theta = ThetaPath(*TextOption(*values, "theta"));
  std::optional<Config> learned_optimizer;
  if (values->contains("learned-optimizer")) {
    learned_optimizer =
        Config::Parse((*values)["learned-optimizer"].as<std::string>(), "--learned-optimizer");
  }
  if (const auto isa = TextOption(*values, "isa")) PinIsa(*isa);
  std::error_code ignored;
  Require(!std::filesystem::equivalent(theta, out, ignored), "{}: --out is the file to export",
          out);
  const ThetaFile theta_file = ReadThetaFile(theta, learned_optimizer, FailedCheckOf(*values));
  if (format == "c") {
    WriteTextFile(out, MakeCSource(theta_file, std::filesystem::path(theta).filename().string()));
  }
  if (format == "npz") ExportNpz(theta_file, out);
  if (format == "torchscript") ExportTorchScript(theta_file, out);
  if (format == "safetensors") WriteThetaFile(out, theta_file);
  return kExitDone;
}

}  // namespace lopt
