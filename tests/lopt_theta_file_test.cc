#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/lopt/theta_file.h"
#include "tests/error_of.h"
#include "tests/golden_dir.h"
#include "tests/logged_lines.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

ThetaFile Trained(const std::string& optimizer) {
  ThetaFile file;
  file.learned_optimizer = Config::Parse(optimizer, "test");
  file.theta =
      OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(FoldIn(KeyFromSeed(3), 1));
  file.config = Config::Parse(R"({"seed": 3, "estimators": []})", "test");
  file.seed = 3;
  file.meta_steps = 500;
  file.trained_horizon = 300;
  file.trained_range = {.shortest_training = 30,
                        .longest_training = 300,
                        .smallest_batch = 8,
                        .largest_batch = 16,
                        .fewest_params = 100,
                        .most_params = 2000,
                        .largest_tensor = 1024};
  file.chosen_on = "outer_valid";
  file.version = "0.1.0";
  return file;
}

const char* const kMlp = R"({"type": "MLPLOpt", "hidden_size": 8, "step_mult": 0.01})";

std::string ReadError(const std::string& path, const std::optional<Config>& optimizer = {}) {
  try {
    ReadThetaFile(path, optimizer);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("A theta file gives back what it was written from") {
  const TempDirectory directory;
  for (const char* optimizer : {kMlp, R"({"type": "LearnableSGD"})", R"({"type": "LearnableSGDM"})",
                                R"({"type": "LearnableAdam"})"}) {
    CAPTURE(optimizer);
    const ThetaFile file = Trained(optimizer);
    WriteThetaFile(directory / "theta.safetensors", file);
    const ThetaFile read = ReadThetaFile(directory / "theta.safetensors");
    CHECK(read.learned_optimizer.Dump() == file.learned_optimizer.Dump());
    CHECK(read.theta == file.theta);
    CHECK(read.config.Dump() == file.config.Dump());
    CHECK(read.seed == 3);
    CHECK(read.meta_steps == 500);
    CHECK(read.trained_horizon == 300);
    CHECK(read.trained_range == file.trained_range);
    CHECK(read.chosen_on == "outer_valid");
    CHECK(read.version == "0.1.0");
    CHECK(ReadThetaFile(directory / "theta.safetensors", file.learned_optimizer).theta ==
          file.theta);
  }
}

TEST_CASE("A file that does not say what it was trained for has an unknown horizon") {
  const TempDirectory directory;
  ThetaFile file = Trained(kMlp);
  file.trained_horizon = 0;
  file.trained_range = {};
  file.chosen_on = "";
  WriteThetaFile(directory / "theta.safetensors", file);
  const auto metadata = ReadArrayFile(directory / "theta.safetensors").metadata;
  CHECK_FALSE(metadata.contains("trained_horizon"));
  CHECK_FALSE(metadata.contains("trained_range"));
  CHECK_FALSE(metadata.contains("chosen_on"));
  const ThetaFile read = ReadThetaFile(directory / "theta.safetensors");
  CHECK(read.trained_horizon == 0);
  CHECK_FALSE(read.trained_range.known());
  CHECK(read.chosen_on.empty());
}

TEST_CASE("A range of training that cannot be is an error of the reader and of the writer") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Trained(kMlp));
  const ArrayFile written = ReadArrayFile(path);
  const std::string range = written.metadata.at("trained_range");
  CHECK(range ==
        R"({"shortest_training":30,"longest_training":300,"smallest_batch":8,"largest_batch":16,)"
        R"("fewest_params":100,"most_params":2000,"largest_tensor":1024})");
  const auto with = [&](const std::string& old, const std::string& other) {
    ArrayFile changed = written;
    changed.metadata["trained_range"].replace(range.find(old), old.size(), other);
    WriteArrayFile(path, changed);
    return ReadError(path);
  };
  const std::string begin = path + ": metadata trained_range: ";
  CHECK(with(R"("most_params":2000,)", "").starts_with(begin));
  CHECK(with(R"("most_params")", R"("params")").starts_with(begin));
  CHECK(with("2000", "2e3").starts_with(begin));
  CHECK(with("2000", "-1") == begin + "most_params must be at least 0, got -1");
  CHECK(with(":30,", ":301,") ==
        begin + "shortest_training must be at most longest_training, got 301 and 300");
  CHECK(with(":8,", ":17,") ==
        begin + "smallest_batch must be at most largest_batch, got 17 and 16");
  CHECK(with(":100,", ":2001,") ==
        begin + "fewest_params must be at most most_params, got 2001 and 2000");
  CHECK(with("1024", "2001") ==
        begin + "largest_tensor must be at most most_params, got 2001 and 2000");
  const std::string horizon =
      begin + "longest_training must be trained_horizon, which is 300, got 299";
  CHECK(with(":300,", ":299,") == horizon);

  std::filesystem::remove(path);
  ThetaFile file = Trained(kMlp);
  file.trained_range.longest_training = 299;
  CHECK(ErrorOf([&] { WriteThetaFile(path, file); }) == horizon);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("A training is unlike those of a range where it is far outside") {
  const TrainedRange range = Trained(kMlp).trained_range;
  const auto unlike = [](const TrainedRange& trained, int64_t num_steps,
                         const std::vector<int64_t>& tensors, int64_t batch_size = 0) {
    return UnlikeTrained(trained, num_steps, tensors, batch_size);
  };
  CHECK(unlike(range, 15, {10240, 9760}).empty());
  CHECK(unlike(range, 0, {}).empty());
  CHECK(unlike(range, 300, {1}, 4).empty());
  CHECK(unlike(range, 300, {1}, 160).empty());
  const std::string begin = "this training is unlike all that the optimizer was trained on: ";
  CHECK(unlike(range, 14, {1}) == begin + "num_steps 14 (there at least 30)");
  CHECK(unlike(range, 301, {1}) == begin + "num_steps 301 (there at most 300)");
  CHECK(unlike(range, 20000, {1}, 3) ==
        begin + "num_steps 20,000 (there at most 300), batches of 3 (there at least 8)");
  CHECK(unlike(range, 0, {1}, 161) == begin + "batches of 161 (there at most 16)");
  CHECK(unlike(range, 0, {10000, 10001}) == begin + "20,001 parameters (there at most 2,000)");
  CHECK(unlike(range, 0, {10241}) == begin + "a tensor of 10,241 numbers (there at most 1,024)");
  CHECK(unlike(range, 1, {3000000}) ==
        begin +
            "num_steps 1 (there at least 30), 3,000,000 parameters (there at most 2,000), a tensor "
            "of 3,000,000 numbers (there at most 1,024)");
  CHECK(unlike({}, 1, {3000000}, 1).empty());
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  CHECK(unlike({.longest_training = kHuge,
                .largest_batch = kHuge,
                .most_params = kHuge,
                .largest_tensor = kHuge},
               kHuge, {kHuge}, kHuge)
            .empty());
  CHECK(!unlike({.shortest_training = kHuge}, 1, {}).empty());
}

TEST_CASE("A theta that is not finite is neither written nor read") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  const std::string wanted = path + ": weights must be finite numbers; theta/mlp/linear_";
  ThetaFile file = Trained(kMlp);
  file.theta.setConstant(std::numeric_limits<float>::quiet_NaN());
  CHECK(ErrorOf([&] { WriteThetaFile(path, file); }) ==
        wanted +
            "0/w [19, 8] has 152 numbers that are not finite, the first is nan at 0; 5 other "
            "tensors have some");
  CHECK_FALSE(std::filesystem::exists(path));

  WriteThetaFile(path, Trained(kMlp));
  ArrayFile written = ReadArrayFile(path);
  written.arrays.At("theta/mlp/linear_1/b").As<float>()[3] =
      -std::numeric_limits<float>::infinity();
  WriteArrayFile(path, written);
  const std::string error =
      wanted + "1/b [8] has 1 number that is not finite, the first is -inf at 3";
  CHECK(ReadError(path) == error);
  CHECK(ErrorOf([&] { ReadThetaFile(path, {}, FailedCheck::kWarn); }) == error);
  CHECK(ErrorOf([&] { CheckThetaFile(path); }) == error);
}

TEST_CASE("An optimizer that does other steps than the file says is an error") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Trained(kMlp));
  ArrayFile file = ReadArrayFile(path);
  const float limit = file.arrays.At("golden/limit/plain/w").As<float>()[0];
  float& result = file.arrays.At("golden/result/plain/w").As<float>()[5];
  const float before = result;
  result += 2 * limit;
  WriteArrayFile(path, file);
  const std::string error = ReadError(path);
  CHECK(error.starts_with(
      fmt::format("{}: the optimizer does not do what it did when the file was written: "
                  "golden/result/plain/w at 5: {} wanted, got {} on {}, which is ",
                  path, result, before, CurrentIsa())));
  CHECK(error.ends_with(fmt::format(" off; accepted are {:.3g}", limit)));
  // Said with a word, it is opened all the same.
  CHECK(ReadThetaFile(path, {}, FailedCheck::kWarn).theta == Trained(kMlp).theta);
  for (const GoldenDeviation& one : CheckThetaFile(path)) CHECK_FALSE(one.within);
  result = before + limit / 2;
  WriteArrayFile(path, file);
  CHECK(ReadError(path) == "no error");
  CHECK(std::ssize(CheckThetaFile(path)) == std::ssize(SupportedIsas()));
  for (const GoldenDeviation& one : CheckThetaFile(path)) CHECK(one.within);
  // A changed option is found by the steps it makes.
  result = before;
  file.metadata["learned_optimizer"] =
      R"({"type": "MLPLOpt", "hidden_size": 8, "step_mult": 0.0101})";
  WriteArrayFile(path, file);
  CHECK(ReadError(path).find("the optimizer does not do what it did") != std::string::npos);
}

TEST_CASE("A file whose golden steps check nothing of a tensor is opened with a warning") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Trained(kMlp));
  const LoggedLines lines;
  CHECK(ReadError(path) == "no error");
  CHECK(lines.text().empty());
  ArrayFile file = ReadArrayFile(path);
  file.arrays.At("golden/limit/plain/w").As<float>()[0] = std::numeric_limits<float>::infinity();
  WriteArrayFile(path, file);
  CHECK(ReadError(path) == "no error");
  CHECK(lines.text().find(path + ": the golden steps do not check plain/w: rounding alone may take "
                                 "the result anywhere\n") != std::string::npos);
}

// SGD of vectors and matrices alone.
class Flat : public LearnedOptimizer {
 public:
  Flat() : LearnedOptimizer(LearnableSGD().theta_layout()) {}

 private:
  void DoInitTheta(Key, std::span<float> theta) const override { theta[0] = 0; }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override {
    for (const LayoutEntry& entry : params.entries()) {
      Require(entry.shape.size() < 3, "Flat: {} has more than two axes", entry.name);
    }
    return LearnableSGD().Bind(params, theta);
  }
};

TEST_CASE("An optimizer that cannot make golden steps is written without them") {
  struct NoOptions {
    void Visit(FieldVisitor&) {}
  };
  OptimizerRegistry().Add<NoOptions>("Flat", "SGD of vectors and matrices.",
                                     [](const NoOptions&) { return std::make_shared<Flat>(); });
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  const ThetaFile file = Trained(R"({"type": "Flat"})");
  WriteThetaFile(path, file);
  CHECK(ReadThetaFile(path).theta == file.theta);
  CHECK(CheckThetaFile(path).empty());
  CHECK(ReadArrayFile(path).arrays.Extract("golden/").size() == 0);
}

TEST_CASE("Another optimizer than the one wanted is an error that names the difference") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Trained(kMlp));
  const Config wanted =
      Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 16, "step_mult": 0.01})", "test");
  CHECK(ReadError(path, wanted) ==
        path +
            ": the file is of another learned optimizer: hidden_size: 8 in the file, 16 wanted; "
            "theta/mlp/linear_0/b: [8] in the file, [16] wanted; "
            "theta/mlp/linear_0/w: [19, 8] in the file, [19, 16] wanted; "
            "theta/mlp/linear_1/b: [8] in the file, [16] wanted; "
            "theta/mlp/linear_1/w: [8, 8] in the file, [16, 16] wanted; "
            "theta/mlp/linear_2/w: [8, 2] in the file, [16, 2] wanted");
  const std::string other = ReadError(path, Config::Parse(R"({"type": "LearnableSGD"})", "test"));
  CHECK(other.find("theta/log_lr: absent in the file, [1] wanted; ") != std::string::npos);
  CHECK(other.ends_with("theta/mlp/linear_2/w: [8, 2] in the file, absent wanted"));
  // An option that is left at its default is none.
  CHECK(ReadError(path, Config::Parse(R"({"type": "MLPLOpt", "hidden_size": 8, "exp_mult": 1e-3,
                                          "step_mult": 0.01})",
                                      "test")) == "no error");
}

TEST_CASE("A file that does not fit is an error") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Trained(kMlp));
  ArrayFile file = ReadArrayFile(path);
  SUBCASE("no optimizer named") {
    file.metadata.clear();
    WriteArrayFile(path, file);
    CHECK(ReadError(path) == path +
                                 ": the file does not name its learned optimizer; its type and "
                                 "options must be given");
    CHECK(ReadThetaFile(path, Config::Parse(kMlp, "test")).theta == Trained(kMlp).theta);
  }
  const std::string wanted =
      path +
      ": the tensors theta/... are not those of "
      R"({"type":"MLPLOpt","hidden_size":8,"step_mult":0.01})"
      "; wanted: mlp/linear_0/b [8], mlp/linear_0/w [19, 8], mlp/linear_1/b [8], mlp/linear_1/w "
      "[8, 8], mlp/linear_2/b [2], mlp/linear_2/w [8, 2]; got: ";
  SUBCASE("too many tensors") {
    file.arrays.Set("theta/more", Array(DType::kFloat32, {2}));
    WriteArrayFile(path, file);
    CHECK(ReadError(path) ==
          wanted +
              "mlp/linear_0/b [8], mlp/linear_0/w [19, 8], mlp/linear_1/b [8], mlp/linear_1/w [8, "
              "8], mlp/linear_2/b [2], mlp/linear_2/w [8, 2], more [2]");
  }
  SUBCASE("a tensor of another shape") {
    file.arrays.Set("theta/mlp/linear_0/b", Array(DType::kFloat32, {9}));
    WriteArrayFile(path, file);
    CHECK(ReadError(path).starts_with(wanted + "mlp/linear_0/b [9], "));
  }
  SUBCASE("no tensors") {
    file.arrays = {};
    WriteArrayFile(path, file);
    CHECK(ReadError(path) == wanted + "none");
  }
  SUBCASE("a tensor of another dtype") {
    file.arrays.Set("theta/mlp/linear_0/b", Array(DType::kFloat64, {8}));
    WriteArrayFile(path, file);
    CHECK(ReadError(path) == path +
                                 ": theta: array 'mlp/linear_0/b' must be F32 of shape [8], got "
                                 "F64 of shape [8]");
  }
  SUBCASE("a newer format") {
    file.metadata["format"] = "lopt theta 3";
    WriteArrayFile(path, file);
    CHECK(ReadError(path) == path +
                                 ": the format is 'lopt theta 3'; this program reads 'lopt theta "
                                 "1' and 'lopt theta 2'. A newer file needs a newer program");
  }
  SUBCASE("weights of another float type") {
    file.arrays.Set("theta/mlp/linear_0/b", Array(DType::kFloat32, {4}));
    std::vector<std::byte> bytes = SerializeArrayFile(file);
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string tensor = R"("theta/mlp/linear_0/b":{"dtype":"F32","shape":[4])";
    const size_t at = text.find(tensor);
    REQUIRE(at != std::string::npos);
    text.replace(at, tensor.size(), R"("theta/mlp/linear_0/b":{"dtype":"F16","shape":[8])");
    WriteFile(path, std::as_bytes(std::span(text)));
    CHECK(ReadError(path) == path + ": tensor 'theta/mlp/linear_0/b' has dtype F16, wanted F32");
  }
  SUBCASE("golden steps of another number") {
    file.arrays.Set("golden/gradients/plain/w", Array(DType::kFloat32, {4, 4, 3}));
    WriteArrayFile(path, file);
    CHECK(ReadError(path) ==
          path +
              ": the golden steps are damaged: array 'golden/gradients/plain/w' must "
              "be F32 of shape [10, 7, 4], got F32 of shape [4, 4, 3]");
  }
  SUBCASE("golden steps without what they start from") {
    NamedArrays kept;
    for (const auto& [name, array] : file.arrays) {
      if (!name.starts_with("golden/params/")) kept.Set(name, array);
    }
    file.arrays = kept;
    WriteArrayFile(path, file);
    CHECK(ReadError(path) == path + ": the golden steps are damaged: golden/params is missing");
  }
  SUBCASE("numbers of steps below 0") {
    for (const char* name : {"meta_steps", "trained_horizon"}) {
      ArrayFile negative = file;
      negative.metadata[name] = "-5";
      WriteArrayFile(path, negative);
      CHECK(ReadError(path) ==
            path + ": metadata meta_steps and trained_horizon must be at least 0, got -5");
    }
  }
  SUBCASE("a seed that is no number") {
    file.metadata["seed"] = "3x";
    WriteArrayFile(path, file);
    CHECK(ReadError(path) == path + ": metadata 'seed' must be a whole number, got '3x'");
  }
}

TEST_CASE("A file whose format is another program's is one of before there were formats") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Trained(kMlp));
  ArrayFile file = ReadArrayFile(path);
  file.metadata["format"] = "pt";
  WriteArrayFile(path, file);
  CHECK(ReadThetaFile(path).theta == Trained(kMlp).theta);
}

TEST_CASE("Weights of a golden trace can be read with the optimizer given") {
  const std::string path = GoldenPath("mlp_lopt_steps.safetensors");
  const ThetaFile read = ReadThetaFile(path, Config::Parse(R"({"type": "MLPLOpt"})", "test"));
  CHECK(read.theta.size() == 1762);
  CHECK(read.theta.norm() > 0);
}

}  // namespace
}  // namespace lopt
