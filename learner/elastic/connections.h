#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// A connection has so long to say who it is, and so many that have not may be open.
inline constexpr double kStrangerSeconds = 10;
inline constexpr int64_t kStrangers = 256;

// The worker processes that are connected to a learner, by numbers that are never used twice. No
// call blocks; all come from one thread.
class Connections {
 public:
  struct Event {
    enum class What { kOpened, kFrame, kClosed };
    What what = What::kFrame;
    int64_t connection = 0;
    std::string peer = {};  // of kOpened: where from, for people
    Frame frame = {};       // of kFrame
    std::string text = {};  // of kClosed: why
  };

  virtual ~Connections() = default;
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // "gRPC 1.51.1 on 127.0.0.1:4711", for the log.
  virtual std::string Description() const = 0;
  // The next that has happened. A connection's frames come complete and in the order sent, between
  // its kOpened and its kClosed, which is its last; but signs of life and last words may overtake
  // others, and what they overtake at the end does not come (learner/elastic/frame_parts.h).
  virtual std::optional<Event> Poll() = 0;
  // The frame arrives if the connection lives; else nothing comes of it.
  virtual void Send(int64_t connection, Frame frame) = 0;
  // It is no stranger: from now on its frames may have so many bytes. Those of strangers may have
  // kPartBytes (learner/elastic/frame_parts.h).
  virtual void Trust(int64_t connection, size_t most_bytes) = 0;
  // Another number whenever more has come of a frame of it that is not complete yet: a long one on
  // a slow link.
  virtual int64_t Arrived(int64_t connection) = 0;
  // Ends the connection once what was sent has left. Nothing more comes of it.
  virtual void Close(int64_t connection) = 0;
  // Whether no connection is open and what was sent has left.
  virtual bool Idle() const = 0;
  // Events notify this; null: nothing.
  virtual void NotifyOnEvent(Wakeup* wakeup) = 0;

 protected:
  Connections() = default;
};

}  // namespace lopt
