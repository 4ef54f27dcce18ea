#include "lopt/tools/simulate/network.h"

#include <algorithm>
#include <utility>

#include "lopt/base/wakeup.h"
#include "lopt/learner/job/messages.h"

namespace lopt {
namespace {

constexpr SimTime kLook{20};
// The longest delays are 2 s.
constexpr int kLateBits = 21;

}  // namespace

struct Network::Inbox {
  struct Arriving {
    SimTime at;
    Message message;
  };
  std::vector<std::deque<Arriving>> from = {};  // by rank
  Wakeup* wakeup = nullptr;
};

class Network::RankTransport final : public Transport {
 public:
  RankTransport(Network* network, int rank) : network_(network), rank_(rank) {}
  ~RankTransport() override { NotifyOnArrival(nullptr); }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(network_->ranks_.size()); }
  int ranks_on_host() const override { return 1; }
  int rank_on_host() const override { return 0; }
  std::string Description() const override { return "simulated"; }

  void Send(int to, int kind, std::vector<std::byte> bytes) override {
    if (!Mine().Point()) return;
    World& world = *network_->world_;
    world.Trace("{} sends kind {} to rank {}, {} bytes", Mine().name(), kind, to, bytes.size());
    Process* const receiver = network_->ranks_[static_cast<size_t>(to)];
    if (receiver->dead()) return;
    auto& queue = Boxes()[static_cast<size_t>(to)].from[static_cast<size_t>(rank_)];
    const bool late = world.random().Chance(network_->options_.late);
    const int bits = late ? kLateBits : network_->options_.delay_bits;
    SimTime at = world.now() + SimTime(world.random().AnySize(bits));
    if (!queue.empty()) at = std::max(at, queue.back().at);
    queue.push_back(
        {.at = at, .message = {.from = rank_, .kind = kind, .bytes = std::move(bytes)}});
    if (network_->options_.notifies) {
      world.At(at, [network = network_, to] {
        Wakeup* const wakeup = network->inboxes_[static_cast<size_t>(to)].wakeup;
        if (wakeup != nullptr) wakeup->Notify();
      });
    }
  }

  std::optional<Message> Poll() override {
    const SimTime now = network_->world_->now();
    std::deque<Inbox::Arriving>* first = nullptr;
    for (auto& queue : Boxes()[static_cast<size_t>(rank_)].from) {
      if (queue.empty() || queue.front().at > now) continue;
      if (first == nullptr || queue.front().at < first->front().at) first = &queue;
    }
    if (first == nullptr || !Mine().Point()) {
      // A look takes time: who looks all the time would never end otherwise.
      if (!network_->options_.notifies || Mine().dead()) Mine().WaitOrDie(kLook);
      return std::nullopt;
    }
    Message message = std::move(first->front().message);
    first->pop_front();
    network_->world_->Trace("{} takes kind {} from rank {}", Mine().name(), message.kind,
                            message.from);
    return message;
  }

  void BeginFarewell() override { network_->farewells_ += Mine().dead() ? 0 : 1; }
  bool FarewellDone() override { return network_->farewells_ == network_->ranks_.size(); }
  bool NotifyOnArrival(Wakeup* wakeup) override {
    Boxes()[static_cast<size_t>(rank_)].wakeup = wakeup;
    return network_->options_.notifies;
  }
  int Exit(int exit_code) override { return exit_code; }

 private:
  void DoAbort(int exit_code) override {
    Mine().Kill(fmt::format("ends the job with code {}", exit_code));
    network_->EndJob("another rank has ended the job");
    Mine().WaitOrDie(SimTime(0));
  }
  Process& Mine() const { return *network_->ranks_[static_cast<size_t>(rank_)]; }
  std::vector<Inbox>& Boxes() { return network_->inboxes_; }

  Network* network_;
  int rank_;
};

Network::Network(World* world, const Options& options, std::vector<Process*> ranks)
    : world_(world), options_(options), ranks_(std::move(ranks)), inboxes_(ranks_.size()) {
  for (Inbox& inbox : inboxes_) inbox.from.resize(ranks_.size());
}

Network::~Network() = default;

std::unique_ptr<Transport> Network::TransportOf(int rank) {
  return std::make_unique<RankTransport>(this, rank);
}

void Network::EndJob(const char* why) {
  if (std::exchange(ended_, true)) return;
  for (Process* const rank : ranks_) {
    world_->At(world_->now() + SimTime(world_->random().AnySize(20)),
               [rank, why] { rank->Kill(why); });
  }
}

int64_t Network::Left() const {
  int64_t left = 0;
  for (const Inbox& inbox : inboxes_) {
    for (const auto& queue : inbox.from) {
      left += std::ranges::count_if(queue, [](const auto& arriving) {
        const int kind = arriving.message.kind;
        return kind != kHeartbeat && kind != kStop;
      });
    }
  }
  return left;
}

}  // namespace lopt
