#include "lopt/learner/run/metrics_log.h"

#include <chrono>

namespace lopt {
namespace {

constexpr std::chrono::seconds kFlushInterval{1};

}  // namespace

MetricsLog::MetricsLog(const std::string& directory)
    : lines_(directory), events_(directory, SecondsSince1970()), flushed_(SteadyClock::now()) {}

void MetricsLog::Write(int64_t step, const Metrics& metrics) {
  lines_.Write(step, metrics);
  events_.Write(step, SecondsSince1970(), metrics);
  if (SteadyClock::now() - flushed_ >= kFlushInterval) {
    Flush();
  }
}

void MetricsLog::WritePictures(int64_t step, const std::map<std::string, Pictures>& pictures) {
  for (const auto& [name, shown] : pictures) {
    events_.WriteImage(step, SecondsSince1970(), name, ContactSheet({shown}));
  }
}

void MetricsLog::WriteGraph(const std::vector<GraphNode>& nodes) {
  if (!nodes.empty()) events_.WriteGraph(SecondsSince1970(), nodes);
}

void MetricsLog::Drop() {
  lines_.Drop();
  events_.Drop();
}

void MetricsLog::Flush() {
  lines_.Flush();
  events_.Flush();
  flushed_ = SteadyClock::now();
}

}  // namespace lopt
