#include "lopt/base/metrics_writer.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lopt/base/error.h"

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
    : file_(directory + "/" + file, OpenFor::kAppend) {}

void MetricsWriter::Write(int64_t step, const Metrics& metrics) {
  // Not as one object: inserting into it takes time that is quadratic in the number of metrics.
  std::string line = fmt::format(R"({{"{}":{})", kStep, step);
  for (const auto& [name, value] : metrics) {
    Require(name != kStep, "{}: no metric may be named '{}'", file_.path(), kStep);
    line += ',' + Json(name).dump() + ':' + NumberOrText(value).dump();
  }
  file_.Write(line + "}\n");
}

void MetricsWriter::Flush() { file_.Flush(); }

}  // namespace lopt
