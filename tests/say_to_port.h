#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <string>

namespace lopt {

// A connection to an IPv4 port of this machine, "127.0.0.1:4711", that says these bytes; -1 once it
// was closed.
inline int Say(const std::string& address, const std::string& bytes) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(::connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  [[maybe_unused]] const ssize_t sent =
      ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return connection;
}

// Random bytes, half a message of HTTP/2 or nothing, by turns.
inline std::string HalfMessage(int turn, std::mt19937_64* random) {
  std::string bytes;
  // HTTP/2's first words and a frame of its settings, so that some of the rest is read as frames.
  if (turn % 3 != 0) bytes = std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  const size_t length = (*random)() % 400;
  for (size_t b = 0; turn % 3 != 2 && b < length; ++b) bytes += static_cast<char>((*random)());
  return bytes;
}

}  // namespace lopt
