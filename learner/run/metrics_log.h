#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lopt/base/environment.h"
#include "lopt/base/metrics_writer.h"
#include "lopt/base/pictures.h"
#include "lopt/base/tensorboard.h"

namespace lopt {

// Both metrics files of a run, handed to the system at least every second.
class MetricsLog {
 public:
  // Appends to metrics.jsonl, and begins an event file.
  explicit MetricsLog(const std::string& directory);

  void Write(int64_t step, const Metrics& metrics);
  // To the event file alone.
  void WritePictures(int64_t step, const std::map<std::string, Pictures>& pictures);
  // Likewise; nothing if there are no nodes.
  void WriteGraph(const std::vector<GraphNode>& nodes);
  void Flush();
  // Forgets what was not handed over: the files are another process's now.
  void Drop();

 private:
  MetricsWriter lines_;
  TensorBoardWriter events_;
  SteadyClock::time_point flushed_;
};

}  // namespace lopt
