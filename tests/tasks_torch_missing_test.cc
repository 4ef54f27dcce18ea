#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "lopt/base/abi.h"
#include "lopt/base/describe_fields.h"
#include "lopt/base/error.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/tasks/torch/torch_module.h"
#include "tests/paths.h"

namespace lopt {
namespace {

// A directory that is the only place where the module is looked for.
class ModuleDirectory {
 public:
  explicit ModuleDirectory(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    setenv("LOPT_MODULE_DIR", path_.c_str(), 1);
  }
  ~ModuleDirectory() {
    unsetenv("LOPT_MODULE_DIR");
    std::filesystem::remove_all(path_);
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void MakeTorchTask() {
  TaskRegistry().Make(Config::Parse(R"({"type": "TorchImageMLP"})", "test"), TaskResources(""));
}

}  // namespace

TEST_CASE("A torch task without the torch module says what is missing and where it was sought") {
  const ModuleDirectory directory("lopt_torch_missing");
  CHECK_FALSE(FindModule(kTorchModule).has_value());
  CHECK_THROWS_WITH_AS(
      MakeTorchTask(),
      ("task 'TorchImageMLP' needs the torch module liblopt_torch_module.so, which is not "
       "installed; once LibTorch is (apt-get install libtorch-dev), cmake --preset release && "
       "cmake --build build --target lopt_torch_module builds it in a checkout; looked in: " +
       directory.path())
          .c_str(),
      Error);
}

TEST_CASE(
    "Derivatives without the torch module say what is missing, other tasks that they have none") {
  const ModuleDirectory directory("lopt_torch_derivatives");
  const auto make = [](const char* task) {
    MakeTaskDerivatives("estimator 'FullGrad'", Config::Parse(task, "test"), TaskResources(""));
  };
  CHECK_THROWS_WITH_AS(
      make(R"({"type": "QuadraticTask"})"),
      ("estimator 'FullGrad' needs the torch module liblopt_torch_module.so, which is not "
       "installed; once LibTorch is (apt-get install libtorch-dev), cmake --preset release && "
       "cmake --build build --target lopt_torch_module builds it in a checkout; looked in: " +
       directory.path())
          .c_str(),
      Error);
  CHECK_THROWS_WITH_AS(
      make(R"({"type": "ESTask"})"),
      "estimator 'FullGrad': a task of type 'ESTask' cannot be differentiated twice, which "
      "gradients through unrolled training need; types that can: QuadraticTask, "
      "FixedDimQuadraticFamily, LogQuadraticTask, ImageMLP, ImageConv, ByteLM, "
      "TorchImageAutoencoder, TorchImageConv, TorchImageMLP, TorchRowLSTM, "
      "TorchSequenceRegression",
      Error);
}

TEST_CASE("A module file that cannot be loaded is an error with the system's reason") {
  const ModuleDirectory directory("lopt_torch_damaged");
  const std::string file = directory.path() + "/liblopt_torch_module.so";
  std::ofstream(file) << "not a library, and long enough to hold the header of one: "
                      << std::string(100, '.');
  CHECK_EQ(FindModule(kTorchModule), file);
  CHECK_THROWS_WITH_AS(MakeTorchTask(),
                       ("task 'TorchImageMLP' needs the torch module " + file +
                        ", which cannot be loaded: " + file + ": invalid ELF header")
                           .c_str(),
                       Error);
}

TEST_CASE("A module that was compiled with other headers than the program is not called") {
  const ModuleDirectory directory("lopt_torch_stale");
  const std::string file = directory.path() + "/liblopt_torch_module.so";
  std::filesystem::copy_file(BuildPath("tests/stale_torch_module.so"), file);
  CHECK_THROWS_WITH_AS(MakeTorchTask(),
                       ("task 'TorchImageMLP' needs the torch module " + file +
                        ", which is built for another program than this; build it again: lopt "
                        "0.1.0 (headers 00000000) there, " LOPT_ABI " here")
                           .c_str(),
                       Error);
}

TEST_CASE("Torch tasks are listed with their options whether or not the module is there") {
  const ModuleDirectory directory("lopt_torch_listed");
  const TypeEntry& entry =
      TaskRegistry().table().Find(Config::Parse(R"({"type": "TorchImageMLP"})", "test"));
  CHECK_NE(DescribeFields(entry.fields).find("batch_size"), std::string::npos);
}

TEST_CASE(
    "The module is sought beside the program, in ../lib/lopt and where lopt is installed, and in "
    "no directory of the build but the program's own") {
  const std::vector<std::string> directories = ModuleDirectories();
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  REQUIRE_GE(directories.size(), 3);
  CHECK_EQ(directories[0], program.string());
  CHECK_EQ(directories[1], (program.parent_path() / "lib/lopt").string());
  CHECK_EQ(directories.back(), LOPT_INSTALL_LIBDIR "/lopt");
  for (size_t i = 1; i < directories.size(); ++i) CHECK_NE(directories[i], BuildPath("lib"));
}

}  // namespace lopt
