#pragma once

#include <cstdint>
#include <string>

#include "lopt/base/metrics.h"
#include "lopt/base/output_file.h"

namespace lopt {

// `<dir>/metrics.jsonl`, or another file: one object per step, {"step": 12, "<name>": number, ...};
// a number that is not finite is written as the text "nan", "inf" or "-inf", any other so that it
// reads back exactly.
class MetricsWriter {
 public:
  // Appends to the file. Throws Error if it cannot be opened.
  explicit MetricsWriter(const std::string& directory, const std::string& file = "metrics.jsonl");
  // Throws Error if a metric is named "step".
  void Write(int64_t step, const Metrics& metrics);
  // Hands what was written to the system; throws Error if that fails (a full disk).
  void Flush();
  // As for OutputFile.
  void Drop() { file_.Drop(); }

 private:
  OutputFile file_;
};

}  // namespace lopt
