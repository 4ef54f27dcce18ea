#include "lopt/lopt/use/one_file.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "lopt/base/error.h"
#include "lopt/base/presets.h"
#include "lopt/base/utf8.h"
#include "lopt/lopt/use/torch_script.h"

namespace lopt {
namespace {

constexpr EmbeddedFile kOneFile[] = {
#include "lopt/lopt/one_file.inc"
};
constexpr EmbeddedFile kSubmission[] = {
#include "lopt/lopt/algoperf.inc"
};

// A file of Python with its docstring apart.
struct Module {
  std::string_view docstring;  // with its quotes
  std::string_view code;
};

Module SplitModule(std::string_view text) {
  constexpr std::string_view kQuotes = R"(""")";
  const size_t end = text.find(kQuotes, kQuotes.size());
  Require(text.starts_with(kQuotes) && end != std::string_view::npos,
          "a file of python/ begins with its docstring");
  return {text.substr(0, end + kQuotes.size()), text.substr(end + kQuotes.size())};
}

// Without what makes a program of it.
std::string_view WithoutMain(std::string_view code) {
  const size_t main = code.find("\n\n\ndef _main(");
  Require(main != std::string_view::npos, "python/lopt_optimizer.py ends with _main");
  return code.substr(0, main);
}

// The bytes in hexadecimal, in lines that Python's bytes.fromhex reads.
std::string Hexadecimal(std::span<const std::byte> bytes) {
  constexpr size_t kInALine = 48;
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % kInALine == 0) text += '\n';
    fmt::format_to(std::back_inserter(text), "{:02x}", std::to_integer<unsigned>(bytes[i]));
  }
  return text;
}

// What a user of a submission may set.
constexpr const char* kSettings =
    "# What multiplies every step, and a weight decay as AdamW's.\n"
    "_LR, _WEIGHT_DECAY = 1.0, 0.0";

}  // namespace

std::string_view OneFileOptimizer() { return kOneFile[0].text; }

std::string MakeAlgoperfSubmission(const ThetaFile& theta_file, std::span<const std::byte> content,
                                   const std::string& name) {
  const std::string objection = ObjectionToTorch(theta_file.learned_optimizer);
  Require(objection.empty(), "AlgoPerf: {}", objection);
  const Module submission = SplitModule(kSubmission[0].text);
  return fmt::format("{}\n\n{}{}\n{}\n\n_NAME = {}\n_WEIGHTS = \"\"\"{}\n\"\"\"\n",
                     submission.docstring, kSettings,
                     WithoutMain(SplitModule(OneFileOptimizer()).code), submission.code,
                     nlohmann::json(Utf8Text(name)).dump(), Hexadecimal(content));
}

}  // namespace lopt
