#include "lopt/learner/elastic/frame_parts.h"

#include <algorithm>
#include <utility>

#include "lopt/base/error.h"

namespace lopt {

void FrameSplitter::Add(const Frame& frame) {
  if (last_) {
    return;
  }
  if (!IsUrgent(frame.type)) {
    frames_.push_back(frame);
    return;
  }
  Require(BytesOf(frame).size() <= kPartBytes, "a frame of type {} may have {} bytes, got {}",
          static_cast<int>(frame.type), kPartBytes, BytesOf(frame).size());
  if (frame.type == FrameType::kPulse) {
    urgent_.clear();  // last words are never here: they are behind all
  } else {
    last_ = true;
    urgent_.clear();
    frames_.clear();
  }
  urgent_.push_back(frame);
}

FramePiece FrameSplitter::Next() {
  std::deque<Frame>& from = urgent_.empty() ? frames_ : urgent_;
  const bool urgent = !urgent_.empty();
  const Frame& frame = from.front();
  giving_ = frame.body;
  const std::span<const std::byte> bytes = BytesOf(frame);
  const size_t at = urgent ? 0 : sent_;
  const size_t size = std::min(kPartBytes, bytes.size() - at);
  const FramePiece part{.type = frame.type,
                        .lease = frame.lease,
                        .kind = frame.kind,
                        .body = bytes.subspan(at, size),
                        .goes_on = at + size < bytes.size()};
  if (!urgent) {
    sent_ = part.goes_on ? at + size : 0;
  }
  if (!part.goes_on) {
    from.pop_front();
  }
  return part;
}

std::optional<Frame> FrameJoiner::Add(const FramePiece& part, size_t most) {
  const bool urgent = IsUrgent(part.type);
  Require(!urgent || !part.goes_on, "it sent a frame of type {} in several parts",
          static_cast<int>(part.type));
  const size_t before = urgent ? 0 : bytes_.size();
  Require(part.body.size() <= most && before <= most - part.body.size(),
          "it sent a frame that is too long: it may have {} bytes", most);
  std::vector<std::byte> bytes = urgent ? std::vector<std::byte>() : std::exchange(bytes_, {});
  if (const size_t size = before + part.body.size(); size > bytes.capacity()) {
    bytes.reserve(part.goes_on ? std::min(2 * size, most) : size);
  }
  bytes.insert(bytes.end(), part.body.begin(), part.body.end());
  if (part.goes_on) {
    ++parts_;
    bytes_ = std::move(bytes);
    return std::nullopt;
  }
  return Frame{.type = part.type,
               .lease = part.lease,
               .kind = part.kind,
               .body = MakeBody(std::move(bytes))};
}

}  // namespace lopt
