#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/transport/transport.h"

namespace lopt {

// Passes on what it is given, and tells what that is.
class WatchedTransport final : public Transport {
 public:
  using Watch = std::function<void(int rank, int kind)>;

  WatchedTransport(Transport* inner, Watch on_send, Watch on_message)
      : inner_(inner), on_send_(std::move(on_send)), on_message_(std::move(on_message)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  int ranks_on_host() const override { return inner_->ranks_on_host(); }
  int rank_on_host() const override { return inner_->rank_on_host(); }
  std::string Description() const override { return inner_->Description(); }
  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    on_send_(to, kind);
    inner_->Send(to, kind, std::move(bytes));
  }
  std::optional<Message> Poll() override {
    std::optional<Message> message = inner_->Poll();
    if (message) {
      on_message_(message->from, message->kind);
    }
    return message;
  }
  void BeginFarewell() override { inner_->BeginFarewell(); }
  bool FarewellDone() override { return inner_->FarewellDone(); }
  bool NotifyOnArrival(Wakeup* wakeup) override { return inner_->NotifyOnArrival(wakeup); }
  bool RefuseAnswer(int from, const std::string& why) override {
    return inner_->RefuseAnswer(from, why);
  }
  int Exit(int exit_code) override { return inner_->Exit(exit_code); }

 private:
  void DoAbort(int exit_code) override { inner_->Abort(exit_code); }

  Transport* inner_;
  Watch on_send_;
  Watch on_message_;
};

}  // namespace lopt
