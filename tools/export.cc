#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options/value_semantic.hpp>
#include <filesystem>
#include <iterator>
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
#include "lopt/base/nearest_name.h"
#include "lopt/base/npz.h"
#include "lopt/base/record.h"
#include "lopt/base/safetensors.h"
#include "lopt/base/wrapped.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/lopt/use/c_source.h"
#include "lopt/lopt/use/one_file.h"
#include "lopt/lopt/use/torch_script.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/export_model.h"
#include "lopt/tools/hub.h"
#include "lopt/tools/trained_theta.h"

namespace lopt {
namespace {

namespace po = boost::program_options;

// Options of one format alone.
constexpr const char* kHub = "hub";
constexpr const char* kLicence = "licence";
constexpr const char* kEvaluation = "evaluation";

// What is exported.
struct Export {
  std::string path;  // of the theta file
  ThetaFile theta_file;
  std::string out;
  const po::variables_map& values;  // the command line

  std::string file_name() const { return std::filesystem::path(path).filename(); }
};

void ExportTorchScript(const Export& what) {
  const ThetaFile& theta_file = what.theta_file;
  ScriptModule script = MakeTorchScript(theta_file);
  OpenTorchModule("lopt export --format torchscript")
      .write_torch_script(
          what.out,
          {.name = theta_file.learned_optimizer.Type(),
           .module = std::move(script),
           .extra_files = {{"learned_optimizer.json", theta_file.learned_optimizer.Dump(-1)},
                           {"version", theta_file.version}}});
}

void ExportC(const Export& what) {
  WriteTextFile(what.out, MakeCSource(what.theta_file, what.file_name()));
}

void ExportNpz(const Export& what) {
  const ThetaFile& theta_file = what.theta_file;
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  NamedArrays arrays =
      ArraysFromRow(optimizer->theta_layout(),
                    {theta_file.theta.data(), static_cast<size_t>(theta_file.theta.size())});
  const auto set_text = [&](const std::string& name, const std::string& text) {
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    arrays.Set(name, Array::Of<uint8_t>({static_cast<int64_t>(bytes.size())}, std::span(bytes)));
  };
  set_text("learned_optimizer", theta_file.learned_optimizer.Dump(-1));
  if (theta_file.trained_horizon > 0) {
    set_text("trained_horizon", fmt::format("{}", theta_file.trained_horizon));
  }
  if (theta_file.trained_range.known()) {
    set_text("trained_range", RecordText(theta_file.trained_range));
  }
  WriteNpz(what.out, arrays);
}

void ExportSafetensors(const Export& what) { WriteThetaFile(what.out, what.theta_file); }

void ExportAlgoperf(const Export& what) {
  WriteTextFile(what.out,
                MakeAlgoperfSubmission(what.theta_file, ReadFile(what.path), what.file_name()));
}

void ExportHub(const Export& what) {
  WriteHubDirectory(what.path, what.theta_file,
                    {.licence = TextOption(what.values, kLicence).value_or(""),
                     .evaluation = TextOption(what.values, kEvaluation).value_or("")},
                    what.out);
}

// A way to leave with weights.
struct ExportFormat {
  const char* name;
  const char* text;  // what it is, for the help
  bool copies;       // whether it holds the bytes of the theta file
  void (*write)(const Export& what);
};

constexpr ExportFormat kExportFormats[] = {
    {"torchscript",
     "a module with the methods init_state and update, for torch::jit::load and torch.jit.load; "
     "docs/using.md shows how to train with it.",
     false, ExportTorchScript},
    {"c",
     "one file in C99 that allocates nothing, for microcontrollers; its first lines say how to use "
     "it.",
     false, ExportC},
    {"npz",
     "the tensors of theta by name, for numpy.load, and learned_optimizer, the bytes of its type "
     "and options in JSON; where they are known, trained_horizon and trained_range in the same "
     "way.",
     false, ExportNpz},
    {"safetensors", "the theta file once more, with golden steps that are made on this machine.",
     false, ExportSafetensors},
    {"algoperf",
     "one file in Python, a submission to the self-tuning ruleset of MLCommons' AlgoPerf, for "
     "PyTorch.",
     true, ExportAlgoperf},
    {kHub,
     "a directory, new or empty, to be uploaded to a model hub: theta.safetensors, a model card "
     "and the one-file optimizer for PyTorch.",
     true, ExportHub},
};

// The names, `between` them, `last` before the last.
std::string FormatNames(const std::string& between, const std::string& last) {
  std::string text;
  for (const ExportFormat& format : kExportFormats) {
    const bool is_last = &format == std::end(kExportFormats) - 1;
    text += (text.empty() ? "" : is_last ? last : between) + format.name;
  }
  return text;
}

std::string ExportSynopsis() {
  return fmt::format("lopt export THETA --format {} --out PATH", FormatNames("|", "|"));
}

std::string ExportExamples() {
  std::string text = fmt::format("THETA is {}.\n\nFormats:\n", kThetaNames);
  for (const ExportFormat& format : kExportFormats) {
    text += fmt::format("  {:<12} {}\n", format.name, format.text);
  }
  return text + "\nExample:\n  lopt export recommended --format torchscript --out theta.pt\n";
}

const ExportFormat& FindFormat(const std::string& name) {
  const auto* const found = std::ranges::find(kExportFormats, name, &ExportFormat::name);
  if (found != std::end(kExportFormats)) return *found;
  std::vector<std::string> names;
  for (const ExportFormat& format : kExportFormats) names.emplace_back(format.name);
  throw UsageError(fmt::format("--format must be {}, got '{}'{}", FormatNames(", ", " or "), name,
                               DidYouMean(name, names)));
}

// Throws UsageError that says how, where a format is written as an option: "--c FILE".
void CheckNoFormatIsAnOption(const std::vector<std::string>& arguments) {
  for (const ExportFormat& format : kExportFormats) {
    const std::string option = fmt::format("--{}", format.name);
    if (std::ranges::none_of(arguments, [&](const std::string& word) {
          return word == option || word.starts_with(option + '=');
        })) {
      continue;
    }
    throw UsageError(fmt::format("{} is not an option here; wanted is --format {} --out {}", option,
                                 format.name, format.name == std::string(kHub) ? "DIR" : "FILE"));
  }
}

// The value of an option that must be given.
std::string Needed(const po::variables_map& values, const std::string& name,
                   const std::string& what) {
  if (!values.contains(name)) {
    throw UsageError(fmt::format("{} is missing; usage: {}", what, ExportSynopsis()));
  }
  return values[name].as<std::string>();
}

void CheckHubOptions(const ExportFormat& format, const po::variables_map& values) {
  for (const char* option : {kLicence, kEvaluation}) {
    if (values.contains(option) && format.name != std::string(kHub)) {
      throw UsageError(fmt::format("--{} is of --format {}, not of {}", option, kHub, format.name));
    }
  }
}

// Throws Error for what no reader of a copy could take.
void CheckCopied(const ExportFormat& format, const Export& what) {
  if (what.values.contains(kDespiteFailedCheck)) {
    throw UsageError(fmt::format(
        "--{}: {} holds the file as it is, which its readers would refuse as well; --format "
        "safetensors writes one with new golden steps",
        kDespiteFailedCheck, format.name));
  }
  Require(ReadArrayFile(what.path).metadata.contains("learned_optimizer"),
          "{}: the file does not name its learned optimizer, and {} holds it as it is; --format "
          "safetensors with --learned-optimizer writes one that does",
          what.path, format.name);
}

}  // namespace

int ExportCommand(const std::vector<std::string>& arguments) {
  CheckNoFormatIsAnOption(arguments);
  po::options_description options;
  auto add = options.add_options();
  const std::string formats = FormatNames("|", "|");
  add("format", po::value<std::string>()->value_name(formats), "What to write; see below.");
  add("out", po::value<std::string>()->value_name("FILE"),
      "The file, or for hub the directory, to write.");
  add("model", po::value<std::string>()->value_name("DIR"),
      "Export the model of this run of lopt train in place of THETA: an image MLP or conv net, as "
      "torchscript, state_dict (for torch.load) or safetensors.");
  add("data-dir", po::value<std::string>()->value_name("DIR"),
      "--model: where the task's data files are now. Default: where they were.");
  add("learned-optimizer", po::value<std::string>()->value_name("JSON"),
      "Type and options in JSON, for a theta file that does not name its learned optimizer.");
  add(kLicence, po::value<std::string>()->value_name("NAME"),
      "hub: the licence of your weights as hubs name it, such as apache-2.0, mit or cc-by-4.0. "
      "Those that come with lopt have lopt's.");
  add(kEvaluation, po::value<std::string>()->value_name("DIR"),
      "hub: what lopt eval --out DIR wrote about these weights, for the model card.");
  add(kDespiteFailedCheck, kDespiteFailedCheckText);
  add("isa", po::value<std::string>()->value_name("NAME"),
      "Instruction set that checks the file, and makes new golden steps. Default: the best.");
  const auto values =
      ParseCommandLine(arguments, options, "theta", 1, ExportSynopsis(), ExportExamples());
  if (!values) return kExitDone;
  if (values->contains("model")) return ExportModel(*values);
  if (values->contains("data-dir")) throw UsageError("--data-dir is for --model, not for THETA");
  if (!values->contains("theta")) {
    throw UsageError(fmt::format("The theta file is missing; usage: {}", ExportSynopsis()));
  }
  const ExportFormat& format = FindFormat(Needed(*values, "format", "--format"));
  const std::string out = Needed(*values, "out", "--out");
  CheckHubOptions(format, *values);
  Export what{.path = ThetaPath(*TextOption(*values, "theta")),
              .theta_file = {},
              .out = out,
              .values = *values};
  std::optional<Config> learned_optimizer;
  if (values->contains("learned-optimizer")) {
    learned_optimizer =
        Config::Parse((*values)["learned-optimizer"].as<std::string>(), "--learned-optimizer");
  }
  if (const auto isa = TextOption(*values, "isa")) PinIsa(*isa);
  std::error_code ignored;
  Require(!std::filesystem::equivalent(what.path, out, ignored), "{}: --out is the file to export",
          out);
  if (format.copies) CheckCopied(format, what);
  what.theta_file = ReadThetaFile(what.path, learned_optimizer, FailedCheckOf(*values));
  RequireFile(out, "cannot write");  // a rename would replace a device
  format.write(what);
  return kExitDone;
}

}  // namespace lopt
