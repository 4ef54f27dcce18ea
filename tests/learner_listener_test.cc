#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/platform.h"
#include "lopt/learner/elastic/listener.h"
#include "lopt/learner/elastic/strangers.h"
#include "tests/wait_until.h"

namespace lopt {
namespace {

using Seconds = std::chrono::seconds;
using TimePoint = std::chrono::steady_clock::time_point;

constexpr StrangerLimits kFew = {.number = 3, .bytes = 1000, .age = Seconds(60)};

TEST_CASE("The oldest stranger ends when there are more than may be") {
  Strangers strangers(kFew);
  for (int64_t i = 1; i <= 3; ++i) CHECK(!strangers.Add(i, {}));
  CHECK(strangers.Add(4, {}) == 1);
  strangers.Remove(2);
  CHECK(!strangers.Add(5, {}));
  CHECK(strangers.Add(6, {}) == 3);
  CHECK_EQ(strangers.size(), 3);
  CHECK_EQ(strangers.TakeEnded(), "2 since there were more than 3");
  CHECK_EQ(strangers.TakeEnded(), "");
}

TEST_CASE("A stranger ends that sends too much, who is none may send more") {
  Strangers strangers(kFew);
  strangers.Add(1, {});
  strangers.Add(2, {});
  CHECK(!strangers.Sent(1, 1000));
  strangers.Remove(2);
  CHECK(!strangers.Sent(2, 1001));
  CHECK(strangers.Sent(1, 1001));
  CHECK(!strangers.Sent(1, 1002));
  CHECK_EQ(strangers.size(), 0);
  CHECK_EQ(strangers.TakeEnded(), "1 that sent more than 1000 bytes");
}

TEST_CASE("A stranger ends that has been one for too long") {
  Strangers strangers(kFew);
  const TimePoint start{};
  CHECK(!strangers.NextOverdue());
  strangers.Add(1, start);
  strangers.Add(2, start + Seconds(10));
  strangers.Add(3, start + Seconds(20));
  CHECK(strangers.NextOverdue() == start + Seconds(60));
  CHECK(strangers.TakeOverdue(start + Seconds(59)).empty());
  CHECK_EQ(strangers.TakeOverdue(start + Seconds(70)), std::vector<int64_t>{1, 2});
  strangers.Remove(3);
  CHECK(strangers.TakeOverdue(start + Seconds(1000)).empty());
  CHECK_EQ(strangers.TakeEnded(), "2 that took 60 s");
}

// A listener without gRPC, which keeps what it is handed.
class Door {
 public:
  explicit Door(const StrangerLimits& limits, const std::string& host = "127.0.0.1")
      : listener_({.host = host, .port = 0}, limits, [this] { return now_.load(); }) {
    listener_.Start([this](int connection, int /*socket*/) {
      const std::lock_guard lock(mutex_);
      taken_.push_back(connection);
    });
  }
  ~Door() {
    listener_.Stop();
    for (const int connection : taken_) ::close(connection);
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  Listener& listener() { return listener_; }
  void SetTime(Seconds since_start) { now_ = TimePoint(since_start); }
  void WaitForTaken(size_t count) {
    WaitUntil("the connections are there", [&] {
      const std::lock_guard lock(mutex_);
      return taken_.size() >= count;
    });
  }

 private:
  std::atomic<TimePoint> now_ = TimePoint();
  std::mutex mutex_;
  std::vector<int> taken_;
  Listener listener_;
};

// The other end of a connection.
class Caller {
 public:
  explicit Caller(const NetAddress& address) {
    const bool v6 = address.host.find(':') != std::string::npos;
    socket_ = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in v4_to{};
    v4_to.sin_family = AF_INET;
    v4_to.sin_port = htons(static_cast<uint16_t>(address.port));
    v4_to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6_to{};
    v6_to.sin6_family = AF_INET6;
    v6_to.sin6_port = v4_to.sin_port;
    v6_to.sin6_addr = in6addr_loopback;
    const auto* to =
        v6 ? reinterpret_cast<const sockaddr*>(&v6_to) : reinterpret_cast<const sockaddr*>(&v4_to);
    CHECK_EQ(::connect(socket_, to, v6 ? sizeof v6_to : sizeof v4_to), 0);
  }
  ~Caller() { ::close(socket_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // As the listener names it.
  std::string name() const {
    sockaddr_storage here{};
    socklen_t size = sizeof here;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&here), &size);
    return here.ss_family == AF_INET
               ? "127.0.0.1:" +
                     std::to_string(ntohs(reinterpret_cast<const sockaddr_in*>(&here)->sin_port))
               : "[::1]:" +
                     std::to_string(ntohs(reinterpret_cast<const sockaddr_in6*>(&here)->sin6_port));
  }
  void Say(size_t bytes) {
    const std::string text(bytes, 'x');
    [[maybe_unused]] const ssize_t sent =
        ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Whether the other side has ended it. Nothing else ever comes.
  bool Ended() const {
    pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
    return ::poll(&wait, 1, 0) == 1;
  }
  void WaitForEnd() const {
    WaitUntil("the connection has ended", [&] { return Ended(); });
  }

 private:
  int socket_ = -1;
};

TEST_CASE("A connection that sends too much before it is trusted is broken off, whoever reads it") {
  Door door({.bytes = 1000});
  const Caller quiet(door.listener().address());
  Caller modest(door.listener().address());
  Caller loud(door.listener().address());
  door.WaitForTaken(3);
  modest.Say(1000);
  loud.Say(500);
  loud.Say(501);
  loud.WaitForEnd();
  CHECK_EQ(door.listener().strangers(), 2);
  CHECK(!quiet.Ended());
  CHECK(!modest.Ended());
  CHECK_EQ(door.listener().TakeEnded(), "1 that sent more than 1000 bytes");
}

TEST_CASE("Who is trusted may send what it likes, over IPv6, too") {
  for (const char* host : {"127.0.0.1", "::1"}) {
    Door door({.bytes = 1000}, host);
    Caller trusted(door.listener().address());
    door.WaitForTaken(1);
    door.listener().Trust(trusted.name());
    CHECK_EQ(door.listener().strangers(), 0);
    trusted.Say(3000);
    Caller loud(door.listener().address());
    loud.Say(1001);
    loud.WaitForEnd();
    CHECK(!trusted.Ended());
  }
}

TEST_CASE("A connection that is not trusted in time is broken off, another stays") {
  Door door({.age = Seconds(60)});
  const Caller early(door.listener().address());
  const Caller trusted(door.listener().address());
  door.WaitForTaken(2);
  door.listener().Trust(trusted.name());
  door.SetTime(Seconds(59));
  const Caller late(door.listener().address());
  door.WaitForTaken(3);
  CHECK(!early.Ended());
  door.SetTime(Seconds(60));
  const Caller latest(door.listener().address());  // so that the listener looks at its clock
  early.WaitForEnd();
  CHECK(!late.Ended());
  CHECK(!trusted.Ended());
  CHECK_EQ(door.listener().TakeEnded(), "1 that took 60 s");
}

TEST_CASE("The oldest connections that are not trusted make room for others") {
  Door door({.number = 2});
  const Caller trusted(door.listener().address());
  door.WaitForTaken(1);
  door.listener().Trust(trusted.name());
  std::vector<std::unique_ptr<Caller>> callers;
  for (size_t i = 0; i < 6; ++i) {
    callers.push_back(std::make_unique<Caller>(door.listener().address()));
    door.WaitForTaken(i + 2);
  }
  for (size_t i = 0; i < 4; ++i) callers[i]->WaitForEnd();
  CHECK(!callers[4]->Ended());
  CHECK(!callers[5]->Ended());
  CHECK(!trusted.Ended());
  CHECK_EQ(door.listener().strangers(), 2);
  CHECK_EQ(door.listener().accepted(), 7);
}

TEST_CASE("A second call ends its connection, trusted or not, and one that has gone has none") {
  Door door({});
  auto one = std::make_unique<Caller>(door.listener().address());
  const Caller other(door.listener().address());
  door.WaitForTaken(2);
  const std::string name = one->name();
  CHECK(door.listener().BeginCall(name));
  CHECK(door.listener().BeginCall(other.name()));
  door.listener().Trust(name);
  CHECK(!door.listener().BeginCall(name));
  one->WaitForEnd();
  CHECK(!door.listener().BeginCall(name));
  CHECK(!other.Ended());
  CHECK(!door.listener().BeginCall("127.0.0.1:1"));
}

}  // namespace
}  // namespace lopt
