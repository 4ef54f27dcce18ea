#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/metrics.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void WriteSteps(const std::string& directory, int64_t keep_below, int64_t first, int64_t last) {
  MetricsWriter writer(directory, keep_below);
  for (int64_t step = first; step < last; ++step) {
    writer.Write(step, {{"loss", static_cast<double>(step) / 2}});
  }
  writer.Flush();
}

std::string ErrorOf(const std::string& directory) {
  try {
    MetricsWriter(directory, 5);
  } catch (const Error& error) {
    return error.what();
  }
  return "no Error";
}

}  // namespace

TEST_CASE("a step is a line with its number first and its metrics by name") {
  const TempDirectory directory;
  MetricsWriter writer(directory.path(), -1);
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
  MetricsWriter writer(directory.path(), -1);
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

TEST_CASE("without a step to keep below, lines are appended") {
  const TempDirectory directory;
  WriteSteps(directory.path(), -1, 0, 2);
  WriteSteps(directory.path(), -1, 1, 2);
  CHECK(ReadTextFile(directory / "metrics.jsonl") ==
        "{\"step\":0,\"loss\":0.0}\n{\"step\":1,\"loss\":0.5}\n{\"step\":1,\"loss\":0.5}\n");
}

TEST_CASE("a resumed run has the same lines as one that was never stopped") {
  const TempDirectory straight;
  WriteSteps(straight.path(), -1, 0, 8);
  const TempDirectory resumed;
  WriteSteps(resumed.path(), 0, 0, 6);
  WriteSteps(resumed.path(), 4, 4, 8);
  CHECK(ReadTextFile(resumed / "metrics.jsonl") == ReadTextFile(straight / "metrics.jsonl"));
}

TEST_CASE("a last line that is not complete is dropped on resume") {
  const TempDirectory directory;
  WriteTextFile(directory / "metrics.jsonl", "{\"step\":0}\n{\"step\":1}\n{\"step\":2");
  MetricsWriter(directory.path(), 2);
  CHECK(ReadTextFile(directory / "metrics.jsonl") == "{\"step\":0}\n{\"step\":1}\n");
  MetricsWriter(directory.path(), 0);
  CHECK(ReadTextFile(directory / "metrics.jsonl").empty());
}

TEST_CASE("a file of anything else is an Error and stays as it is") {
  const TempDirectory directory;
  const std::string path = directory / "metrics.jsonl";
  WriteTextFile(path, "{\"step\":0}\n{\"stop\":1}\n");
  CHECK(ErrorOf(directory.path()) == path + ": record 2: not an object with an integer 'step'");
  CHECK(ReadTextFile(path) == "{\"step\":0}\n{\"stop\":1}\n");
  WriteTextFile(path, "{\"step\":0}\n{\"st\n{\"step\":2}\n");
  CHECK(ErrorOf(directory.path()).starts_with(path + ": record 2: line "));
}

TEST_CASE("a directory that is not there is an Error") {
  const TempDirectory directory;
  const std::string none = directory / "none";
  CHECK(ErrorOf(none) == none + "/metrics.jsonl: cannot be opened: No such file or directory");
}

TEST_CASE("a full disk is an Error when metrics are flushed") {
  const TempDirectory directory;
  std::filesystem::create_symlink("/dev/full", directory / "metrics.jsonl");
  MetricsWriter writer(directory.path(), -1);
  writer.Write(0, {{"loss", 1}});
  CHECK_THROWS_WITH_AS(
      writer.Flush(),
      (directory / "metrics.jsonl: cannot be written: No space left on device").c_str(), Error);
}

TEST_CASE("a metric may not be named step") {
  const TempDirectory directory;
  MetricsWriter writer(directory.path(), -1);
  CHECK_THROWS_WITH_AS(writer.Write(0, {{"step", 1}}),
                       (directory / "metrics.jsonl: no metric may be named 'step'").c_str(), Error);
}

}  // namespace lopt
