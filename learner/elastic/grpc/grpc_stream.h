#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "learner/elastic/elastic.grpc.pb.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/elastic/connections.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/elastic/grpc/grpc_module.h"

// What both ends of a connection over gRPC are made of.
namespace lopt {

using wire::FramePart;
using EventOf = Connections::Event;

// Of one message of gRPC.
inline constexpr int kMostPartBytes = 64 << 10;
// Of a connection, frames that nobody has taken, and their bytes: then no more are read.
inline constexpr int kUntaken = 16;
inline constexpr size_t kUntakenBytes = 1 << 20;

// What has happened, until it is polled.
class EventQueue {
 public:
  void Put(EventOf event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (wakeup_ != nullptr) {
      wakeup_->Notify();
    }
  }
  std::optional<EventOf> Take() {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) {
      return std::nullopt;
    }
    EventOf event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void Notify(Wakeup* wakeup) {
    const std::lock_guard lock(mutex_);
    wakeup_ = wakeup;
  }

 private:
  std::mutex mutex_;
  std::deque<EventOf> events_;
  Wakeup* wakeup_ = nullptr;
};

// One end of a stream. What gRPC's threads and the owner's call is guarded by the mutex; gRPC calls
// nothing back from inside an operation that it is asked for.
template <class Reactor>
class Stream : public Reactor {
 public:
  // Frames that come may have so many bytes.
  Stream(int64_t number, size_t most_bytes, EventQueue* events)
      : number_(number), most_bytes_(most_bytes), events_(events) {}

  void Send(const Frame& frame) {
    const std::lock_guard lock(mutex_);
    if (dead_ || closing_) {
      return;
    }
    out_.Add(frame);
    Write();
  }
  void Trust(size_t most_bytes) {
    const std::lock_guard lock(mutex_);
    most_bytes_ = most_bytes;
  }
  int64_t Arrived() {
    const std::lock_guard lock(mutex_);
    return in_.parts();
  }
  // One of its frames was taken.
  void Took(const Frame& frame) {
    const std::lock_guard lock(mutex_);
    --untaken_;
    untaken_bytes_ -= BytesOf(frame).size();
    Read();
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    closing_ = reported_ = true;
    Read();  // whatever comes is dropped, until the other side has closed as well
    EndIfWritten();
  }

  void OnReadDone(bool ok) final {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) {
      Die("");
      return;
    }
    heard_ = true;
    try {
      if (!reported_) {
        TakePart();
      }
    } catch (const std::exception& error) {
      Die(error.what());
      Cancel();
      return;
    }
    Read();
  }
  void OnWriteDone(bool ok) final {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) {
      Die("");
      return;
    }
    Write();
    EndIfWritten();
  }

 protected:
  // What is to be called with the mutex held.
  virtual void Cancel() = 0;
  // All was written, or nothing more can be.
  virtual void EndWriting() = 0;
  bool heard() const { return heard_; }  // something has come
  virtual void Died() {}

  void Read() {
    const bool room = untaken_ < kUntaken && untaken_bytes_ < kUntakenBytes;
    if (!reading_ && !dead_ && !(ended_ && kEndIsAll) && (reported_ || room)) {
      reading_ = true;
      this->StartRead(&part_);
    }
  }
  void TakePart() {
    std::optional<Frame> frame = in_.Add({.type = static_cast<FrameType>(part_.type()),
                                          .lease = part_.lease(),
                                          .kind = part_.kind(),
                                          .body = std::as_bytes(std::span(part_.body())),
                                          .goes_on = part_.goes_on()},
                                         most_bytes_);
    if (frame) {
      ++untaken_;
      untaken_bytes_ += BytesOf(*frame).size();
      events_->Put(
          {.what = EventOf::What::kFrame, .connection = number_, .frame = std::move(*frame)});
    }
  }
  void Write() {
    if (!writing_ && !dead_ && !out_.Empty()) {
      writing_ = true;
      const FramePiece part = out_.Next();
      written_.set_type(static_cast<int>(part.type));
      written_.set_lease(part.lease);
      written_.set_kind(part.kind);
      written_.set_body(part.body.data(), part.body.size());
      written_.set_goes_on(part.goes_on);
      this->StartWrite(&written_);
    }
  }
  void EndIfWritten() {
    if (!ended_ && !writing_ && (dead_ || (closing_ && out_.Empty()))) {
      ended_ = true;
      EndWriting();
    }
  }
  void Report(const std::string& why) {
    if (!std::exchange(reported_, true)) {
      events_->Put({.what = EventOf::What::kClosed, .connection = number_, .text = why});
    }
  }
  // The stream carries nothing more.
  void Die(const std::string& why) {
    if (!std::exchange(dead_, true)) {
      Died();
    }
    if (kEndIsAll || !why.empty()) {
      Report(why);
    }
    EndIfWritten();
  }

  // Whether EndWriting ends the stream, reading included.
  static constexpr bool kEndIsAll =
      std::is_same_v<Reactor, grpc::ServerBidiReactor<FramePart, FramePart>>;

  std::mutex mutex_;
  const int64_t number_;
  size_t most_bytes_;
  bool closing_ = false;   // once all is written
  bool reported_ = false;  // no more events
  bool dead_ = false;
  bool ended_ = false;  // EndWriting was called

 private:
  EventQueue* const events_;
  bool reading_ = false;
  bool writing_ = false;
  bool heard_ = false;
  int untaken_ = 0;  // frames
  size_t untaken_bytes_ = 0;
  FramePart part_;  // that is being read
  FrameJoiner in_;
  FramePart written_;  // that is being written
  FrameSplitter out_;
};

// Sends gRPC's log to spdlog's debug level.
void UseGrpcLog();
// Why a TLS handshake failed last, in OpenSSL's words, which gRPC tells to its log alone; empty if
// none has failed since the last call.
std::string TakeHandshakeFailure();

// gRPC waits for ever for threads that it could not start, so this tries whether there are enough.
// Throws std::system_error as std::thread does if there are not.
void RequireThreads();

inline bool HasTls(const TlsTexts& tls) { return !tls.certificate.empty(); }

}  // namespace lopt
