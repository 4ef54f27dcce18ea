#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lopt/learner/elastic/grpc_connections.h"
#include "tests/elastic_lies.h"

namespace lopt {

// A connection over gRPC whose frames are changed before they leave.
class LyingConnection final : public Connections {
 public:
  LyingConnection(const std::string& address, Mangle mangle)
      : connection_(JoinGrpc(ParseNetAddress(address), {})), mangle_(std::move(mangle)) {}

  std::string Description() const override { return connection_->Description(); }
  std::optional<Event> Poll() override { return connection_->Poll(); }
  void Send(int64_t connection, Frame frame) override {
    mangle_(&frame);
    connection_->Send(connection, std::move(frame));
  }
  void Trust(int64_t connection, size_t most_bytes) override {
    connection_->Trust(connection, most_bytes);
  }
  int64_t Arrived(int64_t connection) override { return connection_->Arrived(connection); }
  void Close(int64_t connection) override { connection_->Close(connection); }
  bool Idle() const override { return connection_->Idle(); }
  void NotifyOnEvent(Wakeup* wakeup) override { connection_->NotifyOnEvent(wakeup); }

 private:
  std::unique_ptr<Connections> connection_;
  Mangle mangle_;
};

}  // namespace lopt
