#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/connections.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {

// One connection, whose frames are the parts of an input: a frame's type, its lease, the kind of
// its message, above `first_kind`, and the message.
class GivenFrames final : public Connections {
 public:
  GivenFrames(std::string_view input, size_t frames, int first_kind = 0)
      : events_{{.what = Event::What::kOpened, .connection = 1, .peer = "there"}} {
    for (const std::string& part : SplitParts(input, frames)) {
      if (part.size() < 3) continue;
      const auto body = AsBytes(part).subspan(3);
      events_.push_back({.connection = 1,
                         .frame = {.type = static_cast<FrameType>(part[0]),
                                   .lease = part[1],
                                   .kind = first_kind + part[2],
                                   .body = MakeBody({body.begin(), body.end()})}});
    }
  }

  std::string Description() const override { return "given"; }
  std::optional<Event> Poll() override {
    if (events_.empty()) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void Send(int64_t, Frame) override {}
  void Trust(int64_t, size_t) override {}
  int64_t Arrived(int64_t) override { return 0; }
  void Close(int64_t) override { events_.clear(); }
  bool Idle() const override { return events_.empty(); }
  void NotifyOnEvent(Wakeup*) override {}

 private:
  std::deque<Event> events_;
};

// A part of such an input; its kind is above the first.
inline std::string FrameInput(FrameType type, int lease, int kind,
                              const std::vector<std::byte>& body) {
  return std::string{static_cast<char>(type), static_cast<char>(lease), static_cast<char>(kind)} +
         AsText(body);
}

}  // namespace lopt
