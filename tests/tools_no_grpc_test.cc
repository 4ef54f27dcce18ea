#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"

// A program that was built without gRPC.

namespace lopt {
namespace {

TEST_CASE("Workers that come and go are an error that says what is missing") {
  const TempDirectory directory;
  const std::string out = directory / "run";
  ::setenv("XDG_CONFIG_HOME", directory.path().c_str(), 1);  // of the token
  const auto fails = [&](const std::vector<std::string>& words) {
    const FinishedProcess finished = RunProcess(words);
    CHECK_EQ(finished.exit_code, 1);
    CHECK_EQ(finished.errors,
             "lopt: this program was built without gRPC, over which elastic workers and parameter "
             "servers talk: build it where gRPC is installed (libgrpc++-dev, "
             "protobuf-compiler-grpc)\n");
    CHECK(!std::filesystem::exists(out));
  };
  const std::string lopt = BuildPath("lopt");
  fails({lopt, "meta-train", "--preset", "smoke", "--out", out, "--listen", "127.0.0.1:0"});
  fails({"/usr/bin/env", "WORLD_SIZE=2", "RANK=1", lopt, "meta-train", "--preset", "smoke", "--out",
         out, "--init-method", "tcp://127.0.0.1:1"});
  fails({lopt, "worker", "--join", "127.0.0.1:1"});
}

TEST_CASE("lopt version says so") {
  const FinishedProcess finished = RunProcess({BuildPath("lopt"), "version"});
  CHECK(finished.output.find("gRPC:             not built\n") != std::string::npos);
}

}  // namespace
}  // namespace lopt
