#include "lopt/learner/elastic/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>

#include "lopt/base/error.h"

namespace lopt {

std::string NetAddress::Text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

NetAddress ParseNetAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string::npos) {
    host.clear();
  }
  int port = -1;
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data() + colon + 1, end, port);
    if (error != std::errc() || next != end) {
      port = -1;
    }
  }
  Require(!host.empty() && port >= 0 && port <= 65535,
          "'{}' is no address; wanted is HOST:PORT, such as 127.0.0.1:4711 or [::1]:4711", text);
  return {.host = std::move(host), .port = port};
}

bool IsLoopback(const NetAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), nullptr, &hints, &first);
  Require(error == 0, "the host of {} is not found: {}", address.Text(), ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(first, &::freeaddrinfo);
  for (const addrinfo* at = first; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(at->ai_addr);
      if (ntohl(v4->sin_addr.s_addr) >> 24 != 127) {
        return false;
      }
    } else {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(at->ai_addr);
      if (at->ai_family != AF_INET6 || !IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace lopt
