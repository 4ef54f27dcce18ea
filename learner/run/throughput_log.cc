#include "lopt/learner/run/throughput_log.h"

#include <chrono>

namespace lopt {
namespace {

constexpr const char* kFile = "throughput.jsonl";
constexpr std::chrono::seconds kInterval{1};

}  // namespace

ThroughputLog::ThroughputLog(const std::string& directory, int64_t updates, double seconds)
    : seconds_(seconds),
      lines_(directory, kFile),
      written_{.updates = updates, .inner_steps = 0, .time = Clock::now()},
      now_(written_) {}

double ThroughputLog::seconds() const {
  return seconds_ + std::chrono::duration<double>(now_.time - written_.time).count();
}

void ThroughputLog::Note(int64_t updates, int64_t inner_steps) {
  now_ = {.updates = updates, .inner_steps = inner_steps, .time = Clock::now()};
  if (now_.time - written_.time >= kInterval) {
    Write();
  }
}

void ThroughputLog::Finish() {
  if (now_.updates > written_.updates) {
    Write();
  }
}

void ThroughputLog::Write() {
  const double seconds = std::chrono::duration<double>(now_.time - written_.time).count();
  seconds_ = this->seconds();
  lines_.Write(
      now_.updates,
      {{"seconds", seconds_},
       {"updates_per_second", static_cast<double>(now_.updates - written_.updates) / seconds},
       {"inner_steps_per_second",
        static_cast<double>(now_.inner_steps - written_.inner_steps) / seconds}});
  lines_.Flush();
  written_ = now_;
}

}  // namespace lopt
