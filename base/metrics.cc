#include "base/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

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

}  // namespace

MetricsWriter::MetricsWriter(const std::string& directory, const std::string& file)
    : path_(directory + "/" + file) {
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
