#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/torch/torch_module.h"
#include "lopt/tools/bench/bench_workload.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

using Words = std::vector<std::string>;

FinishedProcess Bench(const Words& arguments) {
  Words words = {BuildPath("lopt"), "bench"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProcess(words);
}

TEST_CASE("The bench of transports prints updates per second and the learner's own time") {
  const TempDirectory directory;
  const std::string out = directory / "run";
  const FinishedProcess bench = Bench({"transport", "--workers", "9", "--theta", "70", "--updates",
                                       "20", "--threads", "2", "--out", out});
  INFO(bench.errors);
  REQUIRE(bench.exit_code == 0);
  CHECK(bench.output.find("1 ranks, 9 workers, theta 70: ") != std::string::npos);
  CHECK(bench.output.find(" updates/s; the learner's own time ") != std::string::npos);
  CHECK(bench.output.find("metrics.jsonl: ") != std::string::npos);
  CHECK(ReadArrayFile(out + "/theta.safetensors").arrays.At("theta/weights").size() == 70);
}

TEST_CASE("The bench of transports refuses what does not go together") {
  const auto error = [](const Words& more) {
    Words words = {"transport"};
    words.insert(words.end(), more.begin(), more.end());
    const FinishedProcess bench = Bench(words);
    CHECK(bench.exit_code == 2);
    return bench.errors;
  };
  CHECK(error({"--workers", "0"}).find("--workers must be at least 1, got 0") != std::string::npos);
  CHECK(error({"--updates", "-3"}).find("--updates must be at least 1, got -3") !=
        std::string::npos);
  for (const Words& more :
       {Words{"--workers", "2"}, Words{"--theta", "1762"}, Words{"--gradient-sum", "tree"},
        Words{"--threads", "2"}, Words{"--out", "run"}}) {
    CHECK(error({"--frame", "10", more[0], more[1]}) ==
          "lopt: bench transport: " + more[0] + " does not go with --frame\n");
  }
  CHECK(error({"--threads", "0"}).find("--threads must be in [1, 1024], got 0") !=
        std::string::npos);
  CHECK(error({"--filter", "x"}).find("--filter") != std::string::npos);
  CHECK(error({"--frame", "99999999999"}) ==
        "lopt: bench transport: --frame must be at most 1073741824, got 99999999999\n");
  CHECK(Bench({"transport", "--gradient-sum", "heap", "--updates", "1"}).errors.find("in_order") !=
        std::string::npos);
}

TEST_CASE("The bench checks kernels and prints what it measured") {
  const FinishedProcess bench = Bench({"--short", "--json", "--threads", "2", "--filter",
                                       "mlp_lopt/(10|2410)|(image_mlp|inner_step)/8x8-32(/"
                                       "all)?|tutorial(/out)?|quadratic-10|normals|"
                                       "checkpoint|first_update"});
  INFO(bench.errors);
  REQUIRE(bench.exit_code == 0);
  const auto result = nlohmann::json::parse(bench.output);
  const auto& machine = result.at("machine");
  CHECK(machine.at("cpu").is_string());
  CHECK(machine.at("isa").is_string());
  CHECK(machine.at("threads") == 2);
  CHECK(machine.at("peak_gflops_1") > 0);
  CHECK(machine.at("peak_gflops_all") > 0);
  std::set<std::string> names;
  for (const auto& workload : result.at("workloads")) {
    names.insert(workload.at("name"));
    CAPTURE(workload.dump());
    CHECK(workload.size() == 9);
    CHECK(workload.at("seconds") > 0);
    CHECK(workload.at("per_second") > 0);
    CHECK(workload.at("unit").is_string());
    if (workload.at("name") == "first_update") {  // another process
      CHECK(workload.at("peak_memory_bytes").is_null());
    } else {
      CHECK(workload.at("peak_memory_bytes") > 0);
    }
    CHECK((workload.at("threads") == 1 || workload.at("threads") == 2));
    const double flop = workload.at("flop");
    CHECK((workload.at("gflops") > 0) == (flop > 0));
    CHECK((workload.at("fraction_of_peak") > 0) == (flop > 0));
    if (workload.at("name") == "mlp_lopt/2410") {
      CHECK(flop == 2688.0 * 2410);
    }
    if (workload.at("name") == "image_mlp/8x8-32") {
      CHECK(flop == doctest::Approx(1.294e6).epsilon(1e-3));
    }
    if (workload.at("name") == "tutorial") {
      CHECK(flop == doctest::Approx(2 * 4 * 50 * (7.772e6 + 26880)).epsilon(1e-3));
    }
  }
  CHECK(names == std::set<std::string>{"mlp_lopt/10", "mlp_lopt/2410", "image_mlp/8x8-32",
                                       "inner_step/8x8-32", "inner_step/8x8-32/all", "tutorial",
                                       "tutorial/out", "quadratic-10", "normals", "checkpoint",
                                       "first_update"});
}

TEST_CASE("The bench of tiles checks shapes against a plain loop and times them") {
  std::set<std::string> names;
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    const FinishedProcess bench = Bench({"tiles", "--short", "--json", "--isa", isa, "--filter",
                                         "tile/(3x[48]|2x12)/(8|32)(/paced)?"});
    INFO(bench.errors);
    REQUIRE(bench.exit_code == 0);
    const auto result = nlohmann::json::parse(bench.output);
    for (const auto& workload : result.at("workloads")) {
      CAPTURE(workload.dump());
      CHECK(workload.at("fraction_of_peak") > 0);
      names.insert(workload.at("name"));
    }
  }
  CHECK(names.size() == 12);
  CHECK(Bench({"tiles", "--device", "emulated"}).exit_code == 2);
  CHECK(Bench({"tiles", "--threads", "1"}).exit_code == 2);
  CHECK(Bench({"tiles", "--runs", "5"}).exit_code == 2);
}

TEST_CASE("The bench of growth times inner steps of every size") {
  const FinishedProcess bench = Bench({"growth", "--short", "--json", "--threads", "2", "--filter",
                                       "growth/(replicas-(1|4)|hidden-4|image-16|conv-8)"});
  INFO(bench.errors);
  REQUIRE(bench.exit_code == 0);
  const auto rows = nlohmann::json::parse(bench.output).at("workloads");
  REQUIRE(rows.size() == 5);
  for (const auto& row : rows) {
    CAPTURE(row.dump());
    CHECK(row.at("threads") == 2);
    CHECK(row.at("unit") == "inner steps");
    CHECK(row.at("per_second") > 0);
  }
  const auto flop = [&](const char* name) {
    const auto row = std::ranges::find_if(
        rows, [&](const auto& r) { return r.at("name") == std::string("growth/") + name; });
    return row == rows.end() ? 0. : row->at("flop").template get<double>();
  };
  const double one = flop("replicas-1");
  CHECK(one == doctest::Approx(50 * 7.772e6).epsilon(1e-3));
  CHECK(flop("replicas-4") == 4 * one);
  CHECK(flop("hidden-4") > 0);
  CHECK(flop("hidden-4") < 16 * one);
  CHECK(flop("image-16") > 16 * one);
  CHECK(Bench({"growth", "--device", "emulated"}).exit_code == 2);
  CHECK(Bench({"growth", "tiles"}).exit_code == 2);
}

TEST_CASE("What the bench says beside its JSON goes to stderr") {
  if (!FindModule(kTorchModule)) {
    SkipTest("there is no torch module");
    return;
  }
  const FinishedProcess bench =
      Bench({"--short", "--json", "--threads", "1", "--filter", "task/bytes-bigram"});
  REQUIRE(bench.exit_code == 0);
  CHECK(bench.errors.find("[info] the generated text") != std::string::npos);
  CHECK(nlohmann::json::parse(bench.output).at("workloads").size() == 1);
}

TEST_CASE("Rows that need a torch module that is missing are skipped with the reason") {
  const TempDirectory scratch;
  const auto bench = [&](Words arguments) {
    const Words words = {"/usr/bin/env",
                         "LOPT_MODULE_DIR=" + scratch.path(),
                         BuildPath("lopt"),
                         "bench",
                         "--short",
                         "--filter",
                         "task/(torch-conv|quadratic)|torch_image_mlp/.*"};
    arguments.insert(arguments.begin(), words.begin(), words.end());
    return RunProcess(arguments);
  };
  const FinishedProcess table = bench({});
  CAPTURE(table.errors);
  REQUIRE(table.exit_code == 0);
  const std::string reason =
      "needs the torch module liblopt_torch_module.so, which is not installed (Debian: "
      "libtorch-dev)";
  CHECK(table.output.find(fmt::format("{:<28} skipped: TorchImageConv {}\n", "task/torch-conv",
                                      reason)) != std::string::npos);
  const FinishedProcess json = bench({"--json"});
  REQUIRE(json.exit_code == 0);
  const auto rows = nlohmann::json::parse(json.output).at("workloads");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].at("name") == "task/quadratic");
  CHECK(rows[0].at("seconds") > 0);
  CHECK(rows[1] ==
        nlohmann::json{{"name", "task/torch-conv"}, {"skipped", "TorchImageConv " + reason}});
  CHECK(rows[2] ==
        nlohmann::json{{"name", "torch_image_mlp/8x8-32"}, {"skipped", "TorchImageMLP " + reason}});
}

TEST_CASE("A workload that fails costs no other row") {
  const auto fails = [] { return Workload{.name = "wrong", .check = [] { Fail("wrong by 1"); }}; };
  const BenchResult wrong = RunWorkload({"wrong", fails}, {.repeats = 1, .seconds = 0});
  CHECK(wrong.name == "wrong");
  CHECK(wrong.failed == "wrong by 1");
  CHECK(wrong.skipped.empty());
  CHECK(RunWorkload({"away", fails, "it is away"}, {}).skipped == "it is away");
}

TEST_CASE("A bench that is stopped ends after the running workload and removes its files") {
  const TempDirectory directory;
  bool sent = false;
  const FinishedProcess stopped =
      RunProcess({"/bin/sh", "-c",
                  fmt::format("TMPDIR='{}' exec '{}' bench --short --json --filter "
                              "'tutorial/out|tutorial-16|checkpoint|first_update'",
                              directory.path(), BuildPath("lopt"))},
                 [&](pid_t child, const std::string&) {
                   if (!sent) ::kill(child, SIGINT);
                   sent = true;
                 });
  CHECK(stopped.exit_code == 75);
  CHECK(stopped.errors.find("Stopping after this workload; once more to stop at once.") !=
        std::string::npos);
  CHECK(nlohmann::json::parse(stopped.output).at("workloads").size() < 4);
  CHECK(std::filesystem::is_empty(directory.path()));
}

TEST_CASE("The bench names its workloads when the filter matches none") {
  const FinishedProcess bench = Bench({"--filter", "nothing"});
  CHECK(bench.exit_code == 2);
  CHECK(bench.errors.find(
            "bench: no workload matches 'nothing'; there are: mlp_lopt/10, mlp_lopt/2410") !=
        std::string::npos);
  CHECK(Bench({"--filter", "("}).exit_code == 2);
  CHECK(Bench({"--repeats", "0"}).exit_code == 2);
  CHECK(Bench({"--device", "emulated", "--filter", "x"}).errors ==
        "lopt: bench: --filter does not go with --device\n");
  for (const Words& more : {Words{"--device", "emulated"}, Words{"--filter", "x"},
                            Words{"--repeats", "3"}, Words{"--short"}}) {
    Words words = {"--estimators", "config.json"};
    words.insert(words.end(), more.begin(), more.end());
    CHECK(Bench(words).errors == "lopt: bench: " + more[0] + " does not go with --estimators\n");
  }
}

}  // namespace
}  // namespace lopt
