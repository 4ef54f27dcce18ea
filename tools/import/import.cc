#include <fmt/core.h>

#include <boost/program_options.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/npz.h"
#include "lopt/base/print.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/commands.h"
#include "lopt/tools/import/haiku_params.h"
#include "lopt/tools/import/pylo.h"

namespace lopt {

namespace po = boost::program_options;

namespace {

constexpr const char* kLearnedOptimizer = "learned_optimizer";
constexpr const char* kThetaFormats = "lopt theta ";  // what lopt's formats begin with, newer too

// Celo, the predecessor, has files of the same names for another network.
void CheckIsNotCelo1(const std::vector<FoundArray>& arrays, const std::string& type,
                     const std::string& file) {
  if (type != "Celo2" && type != "Celo2Base") return;
  for (const FoundArray& array : arrays) {
    Require(!array.path.ends_with("w0__0") || array.shape.size() < 3,
            "{}: the weights are of Celo, not of Celo2: {} is {}; a {} has no leading axis and 8 "
            "hidden units: [1, 8]",
            file, array.path, ToString(array.shape), type);
  }
}

// What a file of lopt says beside its tensors. Files of other programs say nothing of it.
struct Origin {
  std::optional<std::string> learned_optimizer;  // type and options, JSON
  ThetaFile made = {};                           // how the weights were made
};

// The bytes of an array, as lopt export --format npz writes texts; none where there is no such.
std::optional<std::string> TextIn(const NamedArrays& arrays, const std::string& name) {
  if (!arrays.Contains(name) || arrays.At(name).dtype() != DType::kUint8) return std::nullopt;
  const auto text = arrays.At(name).As<uint8_t>();
  return std::string(text.begin(), text.end());
}

int64_t ParseHorizon(const std::string& text, const std::string& file) {
  int64_t horizon = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), horizon);
  Require(error == std::errc() && end == text.data() + text.size() && horizon > 0,
          "{}: trained_horizon must be a whole number above 0, got '{}'", file, text);
  return horizon;
}

Origin OriginInNpz(const std::vector<std::byte>& bytes, const std::string& file) {
  std::vector<OtherArray> others;
  const NamedArrays arrays = ParseNpz(bytes, file, &others);
  Origin origin{.learned_optimizer = TextIn(arrays, kLearnedOptimizer)};
  if (!origin.learned_optimizer) return {};
  if (const auto horizon = TextIn(arrays, "trained_horizon")) {
    origin.made.trained_horizon = ParseHorizon(*horizon, file);
  }
  if (const auto range = TextIn(arrays, "trained_range")) {
    origin.made.trained_range = ParseTrainedRange(*range, file + ": trained_range");
  }
  return origin;
}

// Of a theta file of lopt, its own checks are made. `given`: its optimizer, should it name none.
Origin OriginInSafetensors(const std::vector<std::byte>& bytes, const std::string& file,
                           const Config& given, FailedCheck failed_check) {
  std::vector<OtherArray> others;
  const ArrayFile read = ParseArrayFile(bytes, file, &others);
  const auto named = read.metadata.find(kLearnedOptimizer);
  const auto format = read.metadata.find("format");
  if (format != read.metadata.end() && format->second.starts_with(kThetaFormats)) {
    const bool nameless = named == read.metadata.end() || named->second.empty();
    ThetaFile made =
        ReadThetaFile(file, nameless ? std::optional(given) : std::nullopt, failed_check);
    std::string optimizer = made.learned_optimizer.Dump(-1);
    return {.learned_optimizer = std::move(optimizer), .made = std::move(made)};
  }
  if (named == read.metadata.end()) return {};
  return {.learned_optimizer = named->second};
}

Origin OriginIn(const std::string& file, const Config& given, FailedCheck failed_check) {
  const std::vector<std::byte> bytes = ReadFile(file);
  if (std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
          .starts_with("PK")) {
    return OriginInNpz(bytes, file);
  }
  if (!file.ends_with(".safetensors")) return {};
  return OriginInSafetensors(bytes, file, given, failed_check);
}

}  // namespace

int ImportCommand(const std::vector<std::string>& arguments) {
  const char* synopsis = "lopt import FILE --out THETA [OPTIONS]";
  po::options_description options("Options");
  std::string out;
  std::string optimizer_text;
  std::string key;
  std::string decays;
  options.add_options()("out", po::value(&out)->value_name("THETA"),
                        "Theta file to write (.safetensors).")(
      "learned-optimizer",
      po::value(&optimizer_text)->value_name("JSON")->default_value(R"({"type": "MLPLOpt"})"),
      "Type and options of the optimizer that the weights are of; files of lopt say them.")(
      "key", po::value(&key)->value_name("PATH"),
      "Where in the file the weights are, if there are several that fit; '.' is the top.")(
      "decays", po::value(&decays)->value_name("JSON"),
      "The offsets of the decays, for weights of PyLO: '{\"momentum_decays\": [...], "
      "\"rms_decays\": [...], \"adafactor_decays\": [...]}'.")(kDespiteFailedCheck,
                                                               kDespiteFailedCheckText);
  const auto values = ParseCommandLine(
      arguments, options, "file", 1, synopsis,
      "FILE holds haiku params as google/learned_optimization has them: an .npz file, the msgpack\n"
      "of flax (checkpoints.save_state), or a .safetensors file; or the theta.state of Celo2;\n"
      "or, for an AdafacMLPLOpt, the .safetensors file of a network of PyLO.\n\n"
      "Example:\n  lopt import params.msgpack --out theta.safetensors\n");
  if (!values) return kExitDone;
  if (!values->contains("file") || out.empty()) {
    throw UsageError(fmt::format("The file to import or --out is missing; usage: {}", synopsis));
  }
  const std::string file = *TextOption(*values, "file");
  std::error_code ignored;
  Require(!std::filesystem::equivalent(file, out, ignored), "{}: --out is the file to import", out);

  const Config given = Config::Parse(optimizer_text, "--learned-optimizer");
  Origin origin = OriginIn(file, given, FailedCheckOf(*values));
  const auto own =
      (*values)["learned-optimizer"].defaulted() ? origin.learned_optimizer : std::nullopt;
  // Other options or another name do not change how the weights were made.
  ThetaFile theta_file = std::move(origin.made);
  try {
    theta_file.learned_optimizer =
        ResolvedOptimizer(own ? Config::Parse(*own, file + ": " + kLearnedOptimizer) : given);
  } catch (const Error& error) {
    if (!own) throw;
    Fail("{}; give --learned-optimizer", error.what());
  }
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  const Layout& layout = optimizer->theta_layout();
  theta_file.theta.resize(layout.size());
  std::vector<FoundArray> arrays = ReadHaikuParams(file);
  const bool pylo = theta_file.learned_optimizer.Type() == "AdafacMLPLOpt" && IsPylo(arrays);
  if (pylo) arrays = FromPylo(std::move(arrays), decays, file);
  Require(pylo || decays.empty(),
          "--decays is for an AdafacMLPLOpt whose weights are in a file of PyLO; {} is none", file);
  CheckIsNotCelo1(arrays, theta_file.learned_optimizer.Type(), file);
  RowFromArrays(layout, FindTensors(arrays, layout, key, file), "",
                {theta_file.theta.data(), static_cast<size_t>(theta_file.theta.size())});
  theta_file.version = GetBuildInfo().version;
  WriteThetaFile(out, theta_file);
  PrintOut("{}: {} numbers of a {}\n", out, layout.size(), theta_file.learned_optimizer.Type());
  return kExitDone;
}

}  // namespace lopt
