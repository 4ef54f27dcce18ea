#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "lopt/base/npz.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "tests/golden_dir.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

FinishedProcess Export(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {BuildPath("lopt"), "export"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words);
}

TEST_CASE("Export to npz writes theta's tensors by name and what they are of") {
  const TempDirectory directory;
  ThetaFile file;
  file.learned_optimizer =
      Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 4, "step_mult": 0.5})", "test");
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  file.theta = optimizer->InitTheta(KeyFromSeed(1));
  WriteThetaFile(directory / "theta.safetensors", file);
  const FinishedProcess finished =
      Export({directory / "theta.safetensors", "--format", "npz", "--out", directory / "x.npz"});
  CHECK_EQ(finished.errors, "");
  CHECK_EQ(finished.exit_code, 0);

  const NamedArrays arrays = ReadNpz(directory / "x.npz");
  CHECK_EQ(arrays.size(), 7);
  std::vector<float> theta(static_cast<size_t>(file.theta.size()));
  RowFromArrays(optimizer->theta_layout(), arrays, "", theta);
  CHECK(std::equal(theta.begin(), theta.end(), file.theta.begin()));
  const auto bytes = arrays.At("learned_optimizer").As<uint8_t>();
  CHECK_EQ(std::string(bytes.begin(), bytes.end()), file.learned_optimizer.Dump(-1));
}

TEST_CASE("A theta file that does not name its optimizer is exported with --learned-optimizer") {
  const TempDirectory directory;
  const std::string theta = GoldenPath("mlp_lopt_steps.safetensors");
  const std::string out = directory / "x.npz";
  const FinishedProcess without = Export({theta, "--format", "npz", "--out", out});
  CHECK_EQ(without.exit_code, 1);
  CHECK_NE(without.errors.find("the file does not name its learned optimizer"), std::string::npos);
  CHECK_FALSE(std::filesystem::exists(out));
  const FinishedProcess with = Export(
      {theta, "--format", "npz", "--out", out, "--learned-optimizer", R"({"type": "MLPLOpt"})"});
  CHECK_EQ(with.errors, "");
  CHECK(ReadNpz(out).At("mlp/linear_0/w") ==
        ReadArrayFile(theta).arrays.At("theta/mlp/linear_0/w"));
}

TEST_CASE("What export cannot understand is a usage error") {
  const std::string usage =
      "; usage: lopt export THETA --format torchscript|c|npz|safetensors --out FILE\n";
  const auto error = [](const std::vector<std::string>& arguments) {
    const FinishedProcess finished = Export(arguments);
    CHECK_EQ(finished.exit_code, 2);
    return finished.errors;
  };
  CHECK_EQ(error({}), "lopt: The theta file is missing" + usage);
  CHECK_EQ(error({"x"}), "lopt: --format is missing" + usage);
  CHECK_EQ(error({"x", "--format", "npz"}), "lopt: --out is missing" + usage);
  CHECK_EQ(error({"x", "--format", "onnx", "--out", "y"}),
           "lopt: --format must be torchscript, c, npz or safetensors, got 'onnx'\n");
}

TEST_CASE("Export to TorchScript without the torch module says what is missing") {
  const TempDirectory directory;
  setenv("LOPT_MODULE_DIR", directory.path().c_str(), 1);
  const FinishedProcess finished =
      Export({GoldenPath("mlp_lopt_steps.safetensors"), "--format", "torchscript", "--out",
              directory / "x.pt", "--learned-optimizer", R"({"type": "MLPLOpt"})"});
  unsetenv("LOPT_MODULE_DIR");
  CHECK_EQ(finished.exit_code, 1);
  CHECK_EQ(finished.errors,
           "lopt: lopt export --format torchscript needs the torch module "
           "liblopt_torch_module.so, which is not installed (it is built where LibTorch is found; "
           "Debian: libtorch-dev); looked in: " +
               directory.path() + "\n");
}

}  // namespace
}  // namespace lopt
