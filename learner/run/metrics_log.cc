#include "learner/run/metrics_log.h"

namespace lopt {
namespace {

constexpr std::chrono::seconds kFlushInterval{1};

double WallTimeSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

MetricsLog::MetricsLog(const std::string& directory)
    : lines_(directory),
      events_(directory, WallTimeSeconds()),
      flushed_(std::chrono::steady_clock::now()) {}

void MetricsLog::Write(int64_t step, const Metrics& metrics) {
  lines_.Write(step, metrics);
  events_.Write(step, WallTimeSeconds(), metrics);
  if (std::chrono::steady_clock::now() - flushed_ >= kFlushInterval) {
    Flush();
  }
}

void MetricsLog::WritePictures(int64_t step, const std::map<std::string, Pictures>& pictures) {
  for (const auto& [name, shown] : pictures) {
    events_.WriteImage(step, WallTimeSeconds(), name, ContactSheet({shown}));
  }
}

void MetricsLog::Flush() {
  lines_.Flush();
  events_.Flush();
  flushed_ = std::chrono::steady_clock::now();
}

}  // namespace lopt
