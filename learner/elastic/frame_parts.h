#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "lopt/learner/elastic/frame.h"

namespace lopt {

// A frame travels in parts, so that a stranger's can be refused before much of it is here, and that
// short urgent ones need not wait for the end of a long one.
inline constexpr size_t kPartBytes = 60 << 10;

// Signs of life, and last words. They are one part each, and overtake what is under way.
constexpr bool IsUrgent(FrameType type) {
  return type == FrameType::kPulse || type == FrameType::kFailed || type == FrameType::kRefused ||
         type == FrameType::kEnd;
}

struct FramePiece {
  FrameType type = FrameType::kPulse;
  int64_t lease = 0;
  int kind = 0;
  std::span<const std::byte> body = {};
  bool goes_on = false;  // the next part that is not urgent has more of the same frame
};

// Frames that are to be sent, as parts.
class FrameSplitter {
 public:
  // Of signs of life only the last is kept. Behind last words nothing else is sent. Throws Error if
  // an urgent frame is longer than a part.
  void Add(const Frame& frame);
  bool Empty() const { return urgent_.empty() && frames_.empty(); }
  // The next part, whose body is valid until the next call; there must be one.
  FramePiece Next();

 private:
  std::deque<Frame> urgent_;
  std::deque<Frame> frames_;
  size_t sent_ = 0;   // bytes of the first
  FrameBody giving_;  // what Next gave last
  bool last_ = false;
};

// Makes frames of parts again.
class FrameJoiner {
 public:
  // The frame that is complete with this part. Throws Error if it would have more bytes than
  // `most`, or if an urgent one has several parts. Takes memory as parts come, twice what they have
  // and `most` at most.
  std::optional<Frame> Add(const FramePiece& part, size_t most);
  // Another number whenever more of a frame was there that is not complete.
  int64_t parts() const { return parts_; }
  // What the parts take of a frame that is not complete.
  size_t capacity() const { return bytes_.capacity(); }

 private:
  std::vector<std::byte> bytes_;
  int64_t parts_ = 0;
};

}  // namespace lopt
