#pragma once

#include <memory>
#include <string>

#include "lopt/learner/elastic/grpc_connections.h"

namespace spdlog {
class logger;
}

namespace lopt {

// What the module offers; grpc_connections.h says what the functions do.
struct GrpcModule {
  const char* build;  // LOPT_ABI where the module was compiled; always the first member
  // The program's log; the module has one of its own where spdlog is linked statically.
  void (*log_to)(std::shared_ptr<spdlog::logger> log);
  std::string (*library)();
  std::unique_ptr<Connections> (*listen)(const NetAddress& address, const TlsTexts& tls);
  std::unique_ptr<Connections> (*join)(const NetAddress& address, const TlsTexts& tls);
  void (*check_tls)(const TlsTexts& tls, const TlsFiles& files);
};

// The module's functions, inside it.
namespace grpc_module {

std::string Library();
std::unique_ptr<Connections> Listen(const NetAddress& address, const TlsTexts& tls);
std::unique_ptr<Connections> Join(const NetAddress& address, const TlsTexts& tls);
void CheckTls(const TlsTexts& tls, const TlsFiles& files);

}  // namespace grpc_module
}  // namespace lopt
