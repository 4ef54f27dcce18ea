#include "base/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/strict_json.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kStep[] = "step";

Json NumberOrText(double value) {
  if (std::isfinite(value)) {
    return value;
  }
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

int64_t StepOf(std::string_view line, const std::string& source) {
  const Json json = ParseStrictJson(line, source, false);
  Require(json.is_object() && json.contains(kStep) && json[kStep].is_number_integer(),
          "{}: not an object with an integer '{}'", source, kStep);
  return json[kStep].get<int64_t>();
}

// The complete lines of `text` whose step is below `keep_below`.
std::string LinesBelow(std::string_view text, int64_t keep_below, const std::string& path) {
  std::string kept;
  int64_t number = 0;
  for (size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    ++number;
    const std::string_view line = text.substr(0, end + 1);
    if (StepOf(line, fmt::format("{}: record {}", path, number)) < keep_below) {
      kept += line;
    }
  }
  return kept;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& directory, int64_t keep_below,
                             const std::string& file)
    : path_(directory + "/" + file) {
  if (keep_below >= 0 && std::filesystem::exists(path_)) {
    const std::string text = ReadTextFile(path_);
    const std::string kept = LinesBelow(text, keep_below, path_);
    if (kept.size() != text.size()) {
      WriteTextFile(path_, kept);
    }
  }
  errno = 0;
  stream_.open(path_, std::ios::binary | std::ios::app);
  Require(stream_.is_open(), "{}: cannot be opened: {}", path_, std::strerror(errno));
}

void MetricsWriter::Write(int64_t step, const Metrics& metrics) {
  // Not as one object: inserting into it takes time that is quadratic in the number of metrics.
  std::string line = fmt::format(R"({{"{}":{})", kStep, step);
  for (const auto& [name, value] : metrics) {
    Require(name != kStep, "{}: no metric may be named '{}'", path_, kStep);
    line += ',' + Json(name).dump() + ':' + NumberOrText(value).dump();
  }
  stream_ << line << "}\n";
}

void MetricsWriter::Flush() {
  errno = 0;
  stream_.flush();
  Require(stream_.good(), "{}: cannot be written: {}", path_, std::strerror(errno));
}

}  // namespace lopt
