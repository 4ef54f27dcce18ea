#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

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

TEST_CASE("A theta file keeps its horizon and range by way of npz and import") {
  const TempDirectory directory;
  const std::string theta = directory / "theta.safetensors";
  const std::string npz = directory / "theta.npz";
  const std::string back = directory / "back.safetensors";
  ThetaFile file;
  file.learned_optimizer = Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 4})", "test");
  file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(1));
  file.trained_horizon = 2000;
  file.trained_range = {.shortest_training = 200,
                        .longest_training = 2000,
                        .smallest_batch = 32,
                        .largest_batch = 128,
                        .fewest_params = 100,
                        .most_params = 40000,
                        .largest_tensor = 30000};
  WriteThetaFile(theta, file);
  CHECK_EQ(Export({theta, "--format", "npz", "--out", npz}).errors, "");
  CHECK_EQ(RunProcess({BuildPath("lopt"), "import", npz, "--out", back}).errors, "");
  const ThetaFile read = ReadThetaFile(back);
  CHECK(read.theta == file.theta);
  CHECK_EQ(read.trained_horizon, 2000);
  CHECK(read.trained_range == file.trained_range);

  NamedArrays arrays = ReadNpz(npz);
  arrays.Set("trained_horizon", Array::Of<uint8_t>({1}, std::vector<uint8_t>{'x'}));
  WriteNpz(npz, arrays);
  CHECK_EQ(RunProcess({BuildPath("lopt"), "import", npz, "--out", back}).errors,
           fmt::format("lopt: {}: trained_horizon must be a whole number above 0, got 'x'\n", npz));
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
      "; usage: lopt export THETA --format torchscript|c|npz|safetensors|algoperf|hub --out PATH\n";
  const auto error = [](const std::vector<std::string>& arguments) {
    const FinishedProcess finished = Export(arguments);
    CHECK_EQ(finished.exit_code, 2);
    return finished.errors;
  };
  CHECK_EQ(error({}), "lopt: The theta file is missing" + usage);
  CHECK_EQ(error({"x"}), "lopt: --format is missing" + usage);
  CHECK_EQ(error({"x", "--format", "npz"}), "lopt: --out is missing" + usage);
  CHECK_EQ(
      error({"x", "--format", "onnx", "--out", "y"}),
      "lopt: --format must be torchscript, c, npz, safetensors, algoperf or hub, got 'onnx'\n");
  CHECK(error({"x", "--format", "algopref", "--out", "y"})
            .ends_with("got 'algopref'; did you mean 'algoperf'?\n"));
  for (const char* option : {"licence", "evaluation"}) {
    CHECK_EQ(error({"x", "--format", "npz", "--out", "y", std::string("--") + option, "mit"}),
             fmt::format("lopt: --{} is of --format hub, not of npz\n", option));
  }
}

TEST_CASE("What holds the theta file as it is wants one that its readers take") {
  const TempDirectory directory;
  const std::string out = directory / "out";
  const std::string theta = GoldenPath("mlp_lopt_steps.safetensors");
  for (const std::string format : {"algoperf", "hub"}) {
    const FinishedProcess nameless = Export(
        {theta, "--format", format, "--out", out, "--learned-optimizer", R"({"type": "MLPLOpt"})"});
    CHECK_EQ(nameless.exit_code, 1);
    CHECK_EQ(nameless.errors,
             fmt::format("lopt: {}: the file does not name its learned optimizer, and {} holds it "
                         "as it is; --format safetensors with --learned-optimizer writes one that "
                         "does\n",
                         theta, format));
    const FinishedProcess failed =
        Export({"mlp", "--format", format, "--out", out, "--despite-failed-check"});
    CHECK_EQ(failed.exit_code, 2);
    CHECK(failed.errors.starts_with("lopt: --despite-failed-check: " + format + " holds the"));
  }
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("An optimizer without a PyTorch form is refused for AlgoPerf, with the reason") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  const std::string out = directory / "submission.py";
  const auto errors = [&](const std::string& optimizer) {
    ThetaFile file{.learned_optimizer = Config::Parse(optimizer, "test"), .theta = {}};
    file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(1));
    WriteThetaFile(path, file);
    return Export({path, "--format", "algoperf", "--out", out}).errors;
  };
  CHECK(errors(R"({"type": "RNNMLPLOpt"})")
            .starts_with("lopt: AlgoPerf: a RNNMLPLOpt cannot be exported, for it sees all tensors "
                         "and a script sees one; types that can: AdafacMLPLOpt, Celo, "));
  CHECK(errors(R"({"type": "OrthogonalSteps", "optimizer": {"type": "Lion"}})")
            .starts_with("lopt: AlgoPerf: a Lion cannot be exported; types that can: "));
  CHECK_EQ(errors(R"({"type": "LearnableSGD", "schedule": {"type": "Linear", "total_steps": 9}})"),
           "lopt: AlgoPerf: a LearnableSGD with the schedule "
           R"({"type":"Linear","total_steps":9} cannot be exported; schedules that can: )"
           "constant, linear, cosine, warmup-cosine\n");
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("A pipe or device is nothing to export to, and stays what it is") {
  const TempDirectory directory;
  const std::string pipe = directory / "pipe";
  REQUIRE_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const char* format : {"c", "npz", "safetensors", "algoperf", "hub"}) {
    const FinishedProcess finished = Export({"mlp", "--format", format, "--out", pipe});
    CHECK_EQ(finished.exit_code, 1);
    CHECK_EQ(finished.errors,
             fmt::format("lopt: cannot write {}: it is a named pipe, wanted a file\n", pipe));
    CHECK(std::filesystem::is_fifo(pipe));
  }
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
           "liblopt_torch_module.so, which is not installed; once LibTorch is (apt-get install "
           "libtorch-dev), cmake --preset release && cmake --build build --target "
           "lopt_torch_module builds it in a checkout; looked in: " +
               directory.path() + "\n");
}

}  // namespace
}  // namespace lopt
