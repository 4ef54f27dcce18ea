#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

// A program without the module that needs gRPC.

namespace lopt {
namespace {

std::string NotInstalled(const std::string& directory) {
  return "not installed; once gRPC is (apt-get install libgrpc++-dev protobuf-compiler-grpc), "
         "cmake "
         "--preset release && cmake --build build --target lopt_grpc_module builds it in a "
         "checkout; looked in: " +
         directory;
}

TEST_CASE("Workers that come and go are an error that says what is missing") {
  const TempDirectory directory;
  const std::string out = directory / "run";
  ::setenv("XDG_CONFIG_HOME", directory.path().c_str(), 1);  // of the token
  ::setenv("LOPT_MODULE_DIR", directory.path().c_str(), 1);
  const auto fails = [&](const std::vector<std::string>& words) {
    const FinishedProcess finished = RunProcess(words);
    CHECK_EQ(finished.exit_code, 1);
    CHECK_EQ(finished.errors,
             "lopt: what talks over gRPC needs the grpc module "
             "liblopt_grpc_module.so, which is " +
                 NotInstalled(directory.path()) + "\n");
    CHECK(!std::filesystem::exists(out));
  };
  const std::string lopt = BuildPath("lopt");
  fails({lopt, "meta-train", "--preset", "smoke", "--out", out, "--listen", "127.0.0.1:0"});
  fails({"/usr/bin/env", "WORLD_SIZE=2", "RANK=1", lopt, "meta-train", "--preset", "smoke", "--out",
         out, "--init-method", "tcp://127.0.0.1:1"});
  fails({lopt, "worker", "--join", "127.0.0.1:1"});
}

TEST_CASE("lopt version says so") {
  const TempDirectory directory;
  ::setenv("LOPT_MODULE_DIR", directory.path().c_str(), 1);
  const FinishedProcess finished = RunProcess({BuildPath("lopt"), "version"});
  CHECK_NE(finished.output.find("gRPC:             grpc module " + NotInstalled(directory.path())),
           std::string::npos);
}

// The name is cleared by an empty value in container files and shells; else modules would be taken
// from the directory in which the program is called.
TEST_CASE("An empty LOPT_MODULE_DIR names no directory") {
  const TempDirectory directory;
  const FinishedProcess finished = RunProcess(
      {"/usr/bin/env", "-C", directory.path(), "LOPT_MODULE_DIR=", BuildPath("lopt"), "version"});
  CHECK_EQ(finished.exit_code, 0);
  CHECK_EQ(finished.output.find("looked in"), std::string::npos);
}

}  // namespace
}  // namespace lopt
