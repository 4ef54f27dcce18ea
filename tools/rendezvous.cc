#include "lopt/tools/rendezvous.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <system_error>

#include "lopt/tools/commands.h"

namespace lopt {
namespace {

std::string FromEnvironment(const char* name, const std::string& method) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    throw UsageError(fmt::format("--init-method {} wants {} in the environment", method, name));
  }
  return value;
}

int NumberFromEnvironment(const char* name, const std::string& method, int least, int most) {
  const std::string text = FromEnvironment(name, method);
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || next != end || number < least || number > most) {
    throw UsageError(fmt::format("{} in the environment is '{}'; wanted is a number from {} to {}",
                                 name, text, least, most));
  }
  return number;
}

}  // namespace

Rendezvous ReadRendezvous(const std::string& method) {
  static constexpr std::string_view kTcp = "tcp://";
  const bool tcp = method.starts_with(kTcp);
  if (!tcp && method != "env://") {
    throw UsageError(
        fmt::format("--init-method wants env:// or tcp://HOST:PORT, not '{}'", method));
  }
  Rendezvous found;
  found.world_size = NumberFromEnvironment("WORLD_SIZE", method, 1, 1000000);
  found.rank = NumberFromEnvironment("RANK", method, 0, found.world_size - 1);
  if (std::getenv("LOCAL_WORLD_SIZE") != nullptr) {
    found.processes_on_host =
        NumberFromEnvironment("LOCAL_WORLD_SIZE", method, 1, found.world_size);
  }
  if (std::getenv("LOCAL_RANK") != nullptr) {
    const bool counted = std::getenv("LOCAL_WORLD_SIZE") != nullptr;
    const int processes = counted ? found.processes_on_host : found.world_size;
    found.place_on_host = NumberFromEnvironment("LOCAL_RANK", method, 0, processes - 1);
  }
  if (tcp) {
    found.address = method.substr(kTcp.size());
    return found;
  }
  const std::string host = FromEnvironment("MASTER_ADDR", method);
  const char* store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  const bool taken = store != nullptr && std::string_view(store) == "True";
  const int port = NumberFromEnvironment("MASTER_PORT", method, 1, 65534) + (taken ? 1 : 0);
  const bool brackets = host.find(':') != std::string::npos;
  found.address = fmt::format("{}{}{}:{}", brackets ? "[" : "", host, brackets ? "]" : "", port);
  return found;
}

}  // namespace lopt
