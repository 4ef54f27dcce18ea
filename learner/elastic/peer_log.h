#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lopt {

// What the log of a learner says of processes elsewhere: as plain text, cut, and only so much in a
// second; the rest is counted. Those that have not said the token have a share of their own.
class PeerLog {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  enum class Tone { kInfo, kWarning };

  explicit PeerLog(TimePoint now) : second_(now) {}

  void Write(bool stranger, Tone tone, const std::string& line);
  // To be called now and then.
  void Tend(TimePoint now);

 private:
  // Of this second.
  struct Share {
    size_t bytes = 0;
    int64_t left_out = 0;  // lines
  };
  Share strangers_;
  Share others_;
  TimePoint second_;  // its beginning
};

// A text from elsewhere as plain text: such as fits into a line, and a name that is part of one.
std::string PeerLine(const std::string& text);
std::string PeerName(const std::string& text);

}  // namespace lopt
