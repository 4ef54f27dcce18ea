#include "lopt/learner/transport/local_transport.h"

#include <fmt/format.h>

#include <cstdio>
#include <deque>
#include <mutex>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/wakeup.h"

namespace lopt {
namespace {

// What all ranks of the job share.
struct Hub {
  struct Inbox {
    std::mutex mutex = {};
    std::deque<Message> messages = {};
    Wakeup* wakeup = nullptr;
  };
  explicit Hub(int size) : inboxes(static_cast<size_t>(size)) {}

  std::vector<Inbox> inboxes;
  std::mutex farewell_mutex;
  size_t farewells = 0;
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalTransport() override { NotifyOnArrival(nullptr); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->inboxes.size()); }
  int ranks_on_host() const override { return size(); }
  int rank_on_host() const override { return rank_; }
  std::string Description() const override {
    return size() == 1 ? "one process" : fmt::format("{} ranks in one process", size());
  }

  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    Require(to >= 0 && to < size(), "there is no rank {} among {}", to, size());
    Hub::Inbox& inbox = hub_->inboxes[static_cast<size_t>(to)];
    const std::lock_guard lock(inbox.mutex);
    inbox.messages.push_back({.from = rank_, .kind = kind, .bytes = std::move(bytes)});
    if (inbox.wakeup != nullptr) {
      inbox.wakeup->Notify();
    }
  }

  std::optional<Message> Poll() override {
    Hub::Inbox& inbox = Mine();
    const std::lock_guard lock(inbox.mutex);
    if (inbox.messages.empty()) {
      return std::nullopt;
    }
    Message message = std::move(inbox.messages.front());
    inbox.messages.pop_front();
    return message;
  }

  void BeginFarewell() override {
    const std::lock_guard lock(hub_->farewell_mutex);
    ++hub_->farewells;
  }

  bool FarewellDone() override {
    const std::lock_guard lock(hub_->farewell_mutex);
    return hub_->farewells == hub_->inboxes.size();
  }

  bool NotifyOnArrival(Wakeup* wakeup) override {
    Hub::Inbox& inbox = Mine();
    const std::lock_guard lock(inbox.mutex);
    inbox.wakeup = wakeup;
    return true;
  }

  int Exit(int exit_code) override { return exit_code; }

 private:
  void DoAbort(int /*exit_code*/) override { std::fflush(nullptr); }
  Hub::Inbox& Mine() { return hub_->inboxes[static_cast<size_t>(rank_)]; }

  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeLocalTransports(int size) {
  Require(size >= 1, "a job needs at least one rank, got {}", size);
  const auto hub = std::make_shared<Hub>(size);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<LocalTransport>(hub, rank));
  }
  return transports;
}

}  // namespace lopt
