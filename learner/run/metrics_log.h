#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/metrics.h"
#include "base/tensorboard.h"

namespace lopt {

// Both metrics files of a run, handed to the system at least every second.
class MetricsLog {
 public:
  // Appends to metrics.jsonl, and begins an event file.
  explicit MetricsLog(const std::string& directory);

  void Write(int64_t step, const Metrics& metrics);
  void Flush();

 private:
  MetricsWriter lines_;
  TensorBoardWriter events_;
  std::chrono::steady_clock::time_point flushed_;
};

}  // namespace lopt
