#pragma once

#include <string>

namespace lopt {

// Where a process listens.
struct NetAddress {
  std::string host;  // a name or a number, without brackets
  int port = 0;

  // "10.0.0.7:4711", "[::1]:4711".
  std::string Text() const;
};

// Reads "host:port"; IPv6 numbers stand in brackets. Throws Error if it is nothing of the kind.
NetAddress ParseNetAddress(const std::string& text);

// Whether all that the host's name stands for is this machine alone (127.0.0.0/8, ::1). Throws
// Error if it stands for nothing.
bool IsLoopback(const NetAddress& address);

}  // namespace lopt
