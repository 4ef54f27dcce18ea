#include "lopt/learner/elastic/carrier.h"

#include <exception>
#include <iterator>
#include <limits>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/job/wire.h"

namespace lopt {
namespace {

// A frame as bytes.
struct CarriedFrame {
  FrameType type = FrameType::kPulse;
  int64_t lease = 0;
  int64_t kind = 0;
  std::vector<std::byte> body = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("type", type);
    visit("lease", lease);
    visit("kind", kind);
    visit("body", body);
  }
};

std::vector<std::byte> BytesToCarry(const Frame& frame) {
  return ToWire(CarriedFrame{
      .type = frame.type, .lease = frame.lease, .kind = frame.kind, .body = BytesOf(frame)});
}

Frame CarriedFrameOf(std::span<const std::byte> bytes, size_t most_bytes) {
  auto carried = FromWire<CarriedFrame>(bytes);
  Require(carried.body.size() <= most_bytes,
          "it sent a frame that is too long: it may have {} bytes", most_bytes);
  return {.type = carried.type,
          .lease = carried.lease,
          .kind = static_cast<int>(carried.kind),
          .body = MakeBody(std::move(carried.body))};
}

}  // namespace

int64_t Carrier::Open(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  open_[++opened_] = kPartBytes;
  Put({.what = Connections::Event::What::kOpened, .connection = opened_, .peer = peer});
  return opened_;
}

void Carrier::HandIn(int64_t connection, std::span<const std::byte> frame) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(connection);
  if (found == open_.end()) return;
  try {
    Put({.connection = connection, .frame = CarriedFrameOf(frame, found->second)});
  } catch (const Error& error) {
    open_.erase(found);
    Put({.what = Connections::Event::What::kClosed,
         .connection = connection,
         .text = error.what()});
    AddErrand({.connection = connection});
  }
}

void Carrier::End(int64_t connection, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (open_.erase(connection) == 0) return;
  std::erase_if(errands_, [&](const Errand& errand) { return errand.connection == connection; });
  Put({.what = Connections::Event::What::kClosed, .connection = connection, .text = why});
}

void Carrier::Fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
  if (wakeup_ != nullptr) wakeup_->Notify();
}

std::vector<Carrier::Errand> Carrier::Take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !errands_.empty(); });
  std::vector<Errand> taken(std::move_iterator(errands_.begin()),
                            std::move_iterator(errands_.end()));
  errands_.clear();
  return taken;
}

void Carrier::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Carrier::Put(Connections::Event event) {
  events_.push_back(std::move(event));
  if (wakeup_ != nullptr) wakeup_->Notify();
}

void Carrier::Forget(int64_t connection) {
  std::erase_if(events_, [&](const auto& event) { return event.connection == connection; });
  if (open_.erase(connection) > 0) AddErrand({.connection = connection});
}

void Carrier::AddErrand(Errand errand) {
  errands_.push_back(std::move(errand));
  changed_.notify_all();
}

class CarriedConnections final : public Connections {
 public:
  explicit CarriedConnections(std::shared_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}
  // One that is open from the beginning, whose frames may have any length.
  void OpenToLearner() {
    const std::lock_guard lock(carrier_->mutex_);
    Require(carrier_->opened_ == 0, "a carrier joins a learner once");
    carrier_->open_[++carrier_->opened_] = std::numeric_limits<size_t>::max();
  }
  ~CarriedConnections() override {
    NotifyOnEvent(nullptr);
    carrier_->Close();
  }

  std::string Description() const override { return carrier_->description_; }
  std::optional<Event> Poll() override {
    const std::lock_guard lock(carrier_->mutex_);
    if (carrier_->failure_ && !carrier_->ending_) throw Error(*carrier_->failure_);
    if (carrier_->events_.empty()) return std::nullopt;
    Event event = std::move(carrier_->events_.front());
    carrier_->events_.pop_front();
    return event;
  }
  void Send(int64_t connection, Frame frame) override {
    const std::lock_guard lock(carrier_->mutex_);
    carrier_->ending_ = carrier_->ending_ || frame.type == FrameType::kEnd;
    if (carrier_->open_.contains(connection)) {
      carrier_->AddErrand({.connection = connection, .frame = BytesToCarry(frame)});
    }
  }
  void Trust(int64_t connection, size_t most_bytes) override {
    const std::lock_guard lock(carrier_->mutex_);
    const auto found = carrier_->open_.find(connection);
    if (found != carrier_->open_.end()) found->second = most_bytes;
  }
  int64_t Arrived(int64_t /*connection*/) override { return 0; }
  void Close(int64_t connection) override {
    const std::lock_guard lock(carrier_->mutex_);
    carrier_->Forget(connection);
  }
  bool Idle() const override {
    const std::lock_guard lock(carrier_->mutex_);
    return carrier_->open_.empty() && carrier_->errands_.empty();
  }
  void NotifyOnEvent(Wakeup* wakeup) override {
    const std::lock_guard lock(carrier_->mutex_);
    carrier_->wakeup_ = wakeup;
  }

 private:
  std::shared_ptr<Carrier> carrier_;
};

std::unique_ptr<Connections> ListenCarried(std::shared_ptr<Carrier> carrier) {
  return std::make_unique<CarriedConnections>(std::move(carrier));
}

std::unique_ptr<Connections> JoinCarried(std::shared_ptr<Carrier> carrier) {
  auto connection = std::make_unique<CarriedConnections>(std::move(carrier));
  connection->OpenToLearner();
  return connection;
}

}  // namespace lopt
