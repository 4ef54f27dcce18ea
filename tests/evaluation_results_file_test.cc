#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "lopt/evaluation/results_file.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A file that is gone after the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) : path_(directory_ / "results.jsonl") {
    WriteTextFile(path_, text);
  }
  const std::string& path() const { return path_; }

 private:
  TempDirectory directory_;
  std::string path_;
};

RunResult SomeResult() {
  return {.task = "image \"8x8\", \xC3\xA9",
          .optimizer = "Adam-cosine",
          .seed = 3,
          .steps = {2, 4},
          .train_loss = {2.3f, 0.1f, 1e-45f, 3.4028235e38f},
          .final_train_loss = {1.1, 1.0 / 3},
          .final_train_accuracy = {0.5, 0.1},
          .mean_train_loss = {1.2, 5e-324},
          .test_loss = {0.9, -0.0},
          .test_part_loss = {0.5f, 1.5f, 2.5f, 0.1f},
          .test_accuracy = {0.25, 1},
          .steps_to_adam = {0, 3},
          .seconds = {0.001, 0.002},
          .learning_rate = {1e-3, 3e-3},
          .at_edge = {false, true},
          .hyperparameters = {{"beta1", {0.9, 0.5}}, {"weight_decay", {1e-3, 1.0 / 3}}},
          .tuning_loss = {0.5, 0.25},
          .trials = 14,
          .blew_up = {false, true}};
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = std::isnan(a[i]) ? std::isnan(b[i])
                            : std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]);
  }
  return same;
}

bool SameBits(const std::vector<double>& a, const std::vector<double>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    same = std::isnan(a[i]) ? std::isnan(b[i])
                            : std::bit_cast<uint64_t>(a[i]) == std::bit_cast<uint64_t>(b[i]);
  }
  return same;
}

void CheckSame(const RunResult& a, const RunResult& b) {
  CHECK(a.task == b.task);
  CHECK(a.optimizer == b.optimizer);
  CHECK(a.seed == b.seed);
  CHECK(a.steps == b.steps);
  CHECK(SameBits(a.train_loss, b.train_loss));
  CHECK(SameBits(a.final_train_loss, b.final_train_loss));
  CHECK(SameBits(a.final_train_accuracy, b.final_train_accuracy));
  CHECK(SameBits(a.mean_train_loss, b.mean_train_loss));
  CHECK(SameBits(a.test_loss, b.test_loss));
  CHECK(SameBits(a.test_accuracy, b.test_accuracy));
  CHECK(a.steps_to_adam == b.steps_to_adam);
  CHECK(SameBits(a.seconds, b.seconds));
  CHECK(SameBits(a.learning_rate, b.learning_rate));
  CHECK(a.at_edge == b.at_edge);
  CHECK(a.hyperparameters == b.hyperparameters);
  CHECK(SameBits(a.test_part_loss, b.test_part_loss));
  CHECK(a.tuning_loss == b.tuning_loss);
  CHECK(a.trials == b.trials);
  CHECK(a.blew_up == b.blew_up);
}

// A line with one member replaced by `value`, or removed if it is empty.
std::string LineWith(const char* member, const std::string& value) {
  nlohmann::ordered_json line = nlohmann::ordered_json::parse(ResultLine(SomeResult()));
  if (value.empty()) {
    line.erase(member);
  } else {
    line[member] = nlohmann::ordered_json::parse(value);
  }
  return line.dump() + "\n";
}

std::string ReadError(const std::string& text) {
  const TemporaryFile file(text);
  try {
    ReadResults(file.path());
  } catch (const Error& error) {
    const std::string what = error.what();
    REQUIRE(what.starts_with(file.path()));
    return what.substr(file.path().size());
  }
  return "no error";
}

TEST_CASE("results read back to the bit") {
  RunResult first = SomeResult();
  RunResult second{.task = "quadratic",
                   .optimizer = "my_theta",
                   .seed = 0,
                   .steps = {20000},
                   .final_train_loss = {std::nextafter(1.0, 2.0)},
                   .final_train_accuracy = {kNan},
                   .mean_train_loss = {1e300},
                   .test_loss = {0.1 + 0.2},
                   .test_accuracy = {kNan},
                   .seconds = {12.5},
                   .blew_up = {false}};
  // Any bits that are a finite number.
  std::vector<uint32_t> bits(20000);
  Bits(KeyFromSeed(1), bits);
  for (const uint32_t word : bits) {
    const auto value = std::bit_cast<float>(word);
    second.train_loss.push_back(std::isfinite(value) ? value : 1.0f);
  }
  // The floats whose shortest digits do not survive a double.
  second.train_loss[0] = 0x1.5c87fap-84f;
  second.train_loss[1] = -0x1.5c87fap-84f;
  const TemporaryFile file(ResultLine(first) + "\n" + ResultLine(second) + "\n");
  const Results read = ReadResults(file.path());
  CHECK(read.damage.empty());
  REQUIRE(read.runs.size() == 2);
  CheckSame(read.runs[0], first);
  CheckSame(read.runs[1], second);
}

TEST_CASE("a line is one JSON object with the names and numbers that readers expect") {
  const std::string text = ResultLine(SomeResult());
  CHECK(text.find('\n') == std::string::npos);
  const auto line = nlohmann::json::parse(text);
  CHECK(line.at("task") == "image \"8x8\", \xC3\xA9");
  CHECK(line.at("test_loss") == nlohmann::json::parse("[0.9, -0.0]"));
  CHECK(line.at("steps_to_adam") == nlohmann::json::parse("[null, 3]"));
  CHECK(line.at("at_edge") == nlohmann::json::parse("[false, true]"));
  CHECK(line.at("diverged") == nlohmann::json::parse("[false, false]"));
  // The shortest digits of a float, not those of the double it becomes.
  CHECK(text.find("\"train_loss\":[2.3,0.1,1e-45,3.4028235e+38]") != std::string::npos);
  CHECK(line.size() == 20);
}

TEST_CASE("numbers that are not finite are written as text, told in diverged, and read back") {
  RunResult result = SomeResult();
  result.train_loss = {1, 2, kInfinity, kNan};
  result.final_train_loss = {1.5, kNan};
  result.test_loss = {2, -kInfinity};
  const std::string text = ResultLine(result);
  const auto line = nlohmann::json::parse(text);
  CHECK(line.at("train_loss") == nlohmann::json::parse(R"([1.0, 2.0, "inf", "nan"])"));
  CHECK(line.at("test_loss") == nlohmann::json::parse(R"([2.0, "-inf"])"));
  CHECK(line.at("diverged") == nlohmann::json::parse("[false, true]"));
  const TemporaryFile file(text + "\n");
  CheckSame(ReadResults(file.path()).runs.at(0), result);
}

TEST_CASE("a file cut anywhere in its last line gives the lines before it and says so") {
  const std::string line = ResultLine(SomeResult()) + "\n";
  for (const size_t cut : {size_t{2}, size_t{30}, line.size() / 2, line.size() - 2}) {
    CAPTURE(cut);
    const TemporaryFile file(line + line.substr(0, line.size() - cut));
    const Results read = ReadResults(file.path());
    CHECK(read.runs.size() == 1);
    CHECK(read.damage ==
          file.path() + ": line 2, the last, is cut off and left out (1 results are whole)");
  }
  // Only the newline is gone: nothing is lost.
  const TemporaryFile file(line + line.substr(0, line.size() - 1));
  CHECK(ReadResults(file.path()).runs.size() == 2);
  CHECK(ReadResults(file.path()).damage.empty());
}

TEST_CASE("an empty file has no results") {
  const TemporaryFile file("");
  CHECK(ReadResults(file.path()).runs.empty());
  CHECK(ReadResults(file.path()).damage.empty());
  CHECK_THROWS_AS(ReadResults("/no/such/results.jsonl"), Error);
}

TEST_CASE("a bad line that is not the cut one is an error with its number and the reason") {
  const std::string line = ResultLine(SomeResult()) + "\n";
  CHECK(ReadError(line + "{\"task\": \n" + line) == ", line 2: not JSON");
  CHECK(ReadError(line + "\n" + line) == ", line 2: not JSON");
  CHECK(ReadError(line + line + "{\"task\": \n") == ", line 3: not JSON");
  CHECK(ReadError("[1]\n") == ", line 1: not a JSON object");
  CHECK(ReadError("{}") ==
        ", line 1: missing: task, optimizer, seed, steps, train_loss, final_train_loss, "
        "final_train_accuracy, mean_train_loss, test_loss, test_part_loss, test_accuracy, "
        "steps_to_adam, seconds, "
        "learning_rate, at_edge, hyperparameters, tuning_loss, trials, blew_up");
  CHECK(ReadError(LineWith("test_loss", "")) == ", line 1: missing: test_loss");
}

TEST_CASE("members of a wrong kind or length are errors that name them") {
  CHECK(ReadError(LineWith("task", "3")) == ", line 1: task must be text, got 3");
  CHECK(ReadError(LineWith("seed", "1.5")) == ", line 1: seed must be a whole number, got 1.5");
  CHECK(ReadError(LineWith("test_loss", "1")) == ", line 1: test_loss must be a list, got 1");
  CHECK(ReadError(LineWith("test_loss", "[1, null]")) ==
        R"(, line 1: test_loss must be a number, "nan", "inf" or "-inf", got null)");
  CHECK(ReadError(LineWith("train_loss", "[1, 2]")) ==
        ", line 1: train_loss has 2 numbers, wanted 4");
  CHECK(ReadError(LineWith("test_accuracy", "[1]")) ==
        ", line 1: test_accuracy has 1 numbers, wanted 2");
  CHECK(ReadError(LineWith("at_edge", "[]")) == ", line 1: at_edge has 0 numbers, wanted 2");
  CHECK(ReadError(LineWith("test_part_loss", "[1, 2, 3]")) ==
        ", line 1: test_part_loss has 3 numbers, wanted as many for each of 2 numbers of steps");
  CHECK(ReadError(LineWith("tuning_loss", "[]")) ==
        ", line 1: tuning_loss has 0 numbers, wanted 2");
  CHECK(ReadError(LineWith("hyperparameters", "[]")) ==
        ", line 1: hyperparameters must be an object, got []");
  CHECK(ReadError(LineWith("hyperparameters", R"({"beta1": [1]})")) ==
        ", line 1: beta1 has 1 numbers, wanted 2");
  CHECK(ReadError(LineWith("at_edge", "[0, 1]")) ==
        ", line 1: at_edge must be true or false, got 0");
  CHECK(ReadError(LineWith("steps", "[4, 4]")) ==
        ", line 1: steps must be ascending from 1, got 4 after 4");
  CHECK(ReadError(LineWith("steps", "[]")) == ", line 1: steps is empty");
}

TEST_CASE("a name that is not UTF-8 is an error before anything is written") {
  RunResult result = SomeResult();
  result.optimizer = std::string("\xFF");
  CHECK_THROWS_WITH_AS(ResultLine(result), doctest::Contains("is not UTF-8"), Error);
}

}  // namespace
}  // namespace lopt
