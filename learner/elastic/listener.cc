#include "lopt/learner/elastic/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/platform.h"

namespace lopt {
namespace {

// Connections are closed at once that leave fewer descriptors to the rest of the process, or that
// would be more than this.
constexpr rlim_t kSpareDescriptors = 64;
constexpr rlim_t kMostDescriptors = 32768;
constexpr int kSegmentBytes = 1024;
// What the watch calls the one that is no connection.
constexpr int64_t kChangedName = 0;

// An IPv4 address that IPv6 has wrapped is shown as what it is.
std::string PeerOf(int connection) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(connection, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    ::inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    return NetAddress{.host = text.data(), .port = ntohs(v4->sin_port)}.Text();
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  const bool wrapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
  const unsigned char* const bytes = v6->sin6_addr.s6_addr;
  ::inet_ntop(wrapped ? AF_INET : AF_INET6, wrapped ? bytes + 12 : bytes, text.data(), text.size());
  return NetAddress{.host = text.data(), .port = ntohs(v6->sin6_port)}.Text();
}

int CopyOf(int descriptor) { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

int PortOf(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

// A socket that listens there.
int OpenListening(const NetAddress& wanted) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* first = nullptr;
  const int error =
      ::getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &first);
  Require(error == 0, "cannot listen on {}: {}", wanted.Text(), ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(first, &::freeaddrinfo);
  const int socket = OpenStreamSocket(first->ai_family);
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (IsLoopback(wanted)) {
    // There a whole window comes in one segment otherwise, before it can be looked at.
    ::setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &kSegmentBytes, sizeof kSegmentBytes);
  }
  if (socket < 0 || ::bind(socket, first->ai_addr, first->ai_addrlen) != 0 ||
      ::listen(socket, SOMAXCONN) != 0) {
    const std::string why = SystemReason(errno);
    ::close(socket);
    Fail("cannot listen on {}: {}", wanted.Text(), why);
  }
  return socket;
}

// Returns how many descriptors the process may have.
rlim_t RaiseDescriptorLimit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMostDescriptors));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return std::min(limit.rlim_cur, kMostDescriptors);
}

}  // namespace

Listener::Listener(const NetAddress& wanted, const StrangerLimits& limits,
                   std::function<Clock::time_point()> now)
    : now_(std::move(now)),
      address_(wanted),
      socket_(OpenListening(wanted)),
      stop_(OpenEvent()),
      changed_(OpenEvent()),
      watch_(OpenWatch()),
      most_(RaiseDescriptorLimit() - kSpareDescriptors),
      strangers_(limits) {
  address_.port = PortOf(socket_.number());
  Require(stop_.number() >= 0 && watch_.number() >= 0 &&
              Watch(watch_.number(), changed_.number(), kChangedName, true),
          "cannot watch what comes to {}: {}", address_.Text(), SystemReason(errno));
}

void Listener::Start(std::function<void(int connection, int socket)> take) {
  take_ = std::move(take);
  accepting_ = std::thread([this] { Accept(); });
  watching_ = std::thread([this] { WatchStrangers(); });
}

void Listener::Stop() {
  if (accepting_.joinable()) {
    RaiseEvent(stop_.number());
    accepting_.join();
    stopping_ = true;
    RaiseEvent(changed_.number());
    watching_.join();
  }
}

void Listener::Accept() {
  for (;;) {
    std::array<pollfd, 2> waits = {{{.fd = stop_.number(), .events = POLLIN, .revents = 0},
                                    {.fd = socket_.number(), .events = POLLIN, .revents = 0}}};
    ::poll(waits.data(), waits.size(), -1);
    if (waits[0].revents != 0) {
      return;
    }
    const int connection = AcceptConnection(socket_.number());
    if (connection >= 0) {
      Take(connection);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

void Listener::Take(int connection) {
  ++accepted_;
  // The lowest that is free is taken, so this many are open.
  if (static_cast<rlim_t>(connection) >= most_ || !Keep(connection)) {
    ::close(connection);
    return;
  }
  const int yes = 1;
  ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  take_(connection, socket_.number());
}

// Whether the connection is watched now.
bool Listener::Keep(int connection) {
  const std::string from = PeerOf(connection);
  const int copy = CopyOf(connection);
  if (from.empty() || copy < 0) {
    ::close(copy);
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (const auto before = Find(from); before != connections_.end()) {
    End(before);  // the address is used again, so that one has ended
  }
  const int64_t number = ++numbers_;
  connections_.try_emplace(number, copy, from);
  number_of_[from] = number;
  if (const std::optional<int64_t> oldest = strangers_.Add(number, now_())) {
    End(connections_.find(*oldest));
  }
  NarrowReceiving(connection);
  const bool too_much = strangers_.Sent(number, ReadTcpStatus(copy).received);
  if (too_much || !Watch(watch_.number(), copy, number, true)) {
    End(connections_.find(number));
    return false;
  }
  RaiseEvent(changed_.number());
  return true;
}

void Listener::WatchStrangers() {
  std::array<int64_t, 64> names{};
  while (!stopping_) {
    const size_t count = WaitForNews(watch_.number(), MillisecondsToNext(), names);
    for (const int64_t name : std::span(names).first(count)) {
      Look(name);
    }
    EndOverdue();
  }
}

int Listener::MillisecondsToNext() const {
  const std::lock_guard lock(mutex_);
  const std::optional<Clock::time_point> next = strangers_.NextOverdue();
  if (!next) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now_());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void Listener::Look(int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = connections_.find(number);
  if (found == connections_.end()) {
    return;
  }
  const TcpStatus status = ReadTcpStatus(found->second.copy.number());
  if (!status.open) {
    Forget(found);
  } else if (strangers_.Sent(number, status.received)) {
    End(found);
  }
}

void Listener::EndOverdue() {
  const std::lock_guard lock(mutex_);
  for (const int64_t number : strangers_.TakeOverdue(now_())) {
    End(connections_.find(number));
  }
}

bool Listener::BeginCall(const std::string& from) {
  const std::lock_guard lock(mutex_);
  const auto found = Find(from);
  if (found == connections_.end()) {
    return false;
  }
  if (std::exchange(found->second.called, true)) {
    End(found);
    return false;
  }
  return true;
}

void Listener::Trust(const std::string& from) {
  const std::lock_guard lock(mutex_);
  if (const auto found = Find(from); found != connections_.end()) {
    strangers_.Remove(found->first);
    WidenReceiving(found->second.copy.number());
    WatchEndOnly(watch_.number(), found->second.copy.number(), found->first);
  }
}

int64_t Listener::strangers() const {
  const std::lock_guard lock(mutex_);
  return strangers_.size();
}

std::string Listener::TakeEnded() {
  const std::lock_guard lock(mutex_);
  return strangers_.TakeEnded();
}

void Listener::End(Kept::iterator connection) {
  BreakConnection(connection->second.copy.number());
  Forget(connection);
}

// The watch has copies of the descriptor elsewhere, too.
void Listener::Forget(Kept::iterator connection) {
  Unwatch(watch_.number(), connection->second.copy.number());
  strangers_.Remove(connection->first);
  number_of_.erase(connection->second.from);
  connections_.erase(connection);
}

Listener::Kept::iterator Listener::Find(const std::string& from) {
  const auto number = number_of_.find(from);
  return number == number_of_.end() ? connections_.end() : connections_.find(number->second);
}

}  // namespace lopt
