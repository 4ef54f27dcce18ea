#include "learner/run/throughput_log.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/strict_json.h"

namespace lopt {
namespace {

constexpr const char* kFile = "throughput.jsonl";
constexpr const char* kSeconds = "seconds";
constexpr std::chrono::seconds kInterval{1};

// Of the last line; 0 without one.
double LastSeconds(const std::string& path) {
  std::string text = ReadTextFile(path);
  if (text.empty()) {
    return 0;
  }
  text.pop_back();
  const size_t end = text.rfind('\n');
  const auto line = ParseStrictJson(
      std::string_view(text).substr(end == std::string::npos ? 0 : end + 1), path, false);
  Require(line.contains(kSeconds) && line[kSeconds].is_number(),
          "{}: the last line has no number '{}'", path, kSeconds);
  return line[kSeconds].get<double>();
}

}  // namespace

ThroughputLog::ThroughputLog(const std::string& directory, int64_t updates)
    : lines_(directory, updates + 1, kFile),
      written_{.updates = updates, .inner_steps = 0, .time = Clock::now()},
      now_(written_) {
  seconds_ = LastSeconds(directory + "/" + kFile);
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
  seconds_ += seconds;
  lines_.Write(
      now_.updates,
      {{kSeconds, seconds_},
       {"updates_per_second", static_cast<double>(now_.updates - written_.updates) / seconds},
       {"inner_steps_per_second",
        static_cast<double>(now_.inner_steps - written_.inner_steps) / seconds}});
  lines_.Flush();
  written_ = now_;
}

}  // namespace lopt
