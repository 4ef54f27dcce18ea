#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/metrics_writer.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("a step is a line with its number first and its metrics by name") {
  const TempDirectory directory;
  MetricsWriter writer(directory.path());
  writer.Write(12, {{"loss/0/quadratic", 0.1}, {"a \"b\"", 0}, {"nan", std::nan("")}});
  writer.Write(13, {{"x", kInfinity}, {"y", -kInfinity}, {"z", -0.0}});
  writer.Write(14, {});
  writer.Flush();
  CHECK(ReadTextFile(directory / "metrics.jsonl") ==
        "{\"step\":12,\"a \\\"b\\\"\":0.0,\"loss/0/quadratic\":0.1,\"nan\":\"nan\"}\n"
        "{\"step\":13,\"x\":\"inf\",\"y\":\"-inf\",\"z\":-0.0}\n"
        "{\"step\":14}\n");
}

TEST_CASE("numbers read back as they were, bit for bit") {
  const TempDirectory directory;
  const std::vector<double> numbers = {0.1 + 0.2, 1.0 / 3,  5e-324, 1.7976931348623157e308,
                                       -0.0,      1e22,     1e23,   9007199254740993.0,
                                       0x1p-1022, 123456.75};
  MetricsWriter writer(directory.path());
  for (double number : numbers) {
    writer.Write(0, {{"x", number}});
  }
  writer.Flush();
  std::string text = ReadTextFile(directory / "metrics.jsonl");
  for (double number : numbers) {
    const size_t end = text.find('\n');
    const double read = nlohmann::json::parse(text.substr(0, end))["x"];
    CHECK(read == number);
    CHECK(std::signbit(read) == std::signbit(number));
    text = text.substr(end + 1);
  }
}

TEST_CASE("lines are appended to those that are there") {
  const TempDirectory directory;
  for (int64_t step = 0; step < 2; ++step) {
    MetricsWriter writer(directory.path());
    writer.Write(step, {{"loss", static_cast<double>(step) / 2}});
  }
  CHECK(ReadTextFile(directory / "metrics.jsonl") ==
        "{\"step\":0,\"loss\":0.0}\n{\"step\":1,\"loss\":0.5}\n");
}

TEST_CASE("a directory that is not there is an Error") {
  const TempDirectory directory;
  const std::string none = directory / "none";
  CHECK_THROWS_WITH_AS(
      MetricsWriter{none},
      ("cannot open " + none + "/metrics.jsonl: No such file or directory").c_str(), Error);
}

TEST_CASE("a full disk is an Error when metrics are flushed") {
  const TempDirectory directory;
  std::filesystem::create_symlink("/dev/full", directory / "metrics.jsonl");
  MetricsWriter writer(directory.path());
  writer.Write(0, {{"loss", 1}});
  CHECK_THROWS_WITH_AS(
      writer.Flush(),
      (directory / "metrics.jsonl: cannot be written: No space left on device").c_str(), Error);
}

TEST_CASE("a metric may not be named step") {
  const TempDirectory directory;
  MetricsWriter writer(directory.path());
  CHECK_THROWS_WITH_AS(writer.Write(0, {{"step", 1}}),
                       (directory / "metrics.jsonl: no metric may be named 'step'").c_str(), Error);
}

}  // namespace lopt
