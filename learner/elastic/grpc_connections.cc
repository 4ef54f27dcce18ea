#include "lopt/learner/elastic/grpc_connections.h"

#include <spdlog/spdlog.h>

#include "lopt/learner/elastic/grpc/grpc_module.h"

namespace lopt {
namespace {

// Once it is open its file is not looked for again: workers join again and again.
const GrpcModule& OpenGrpcModule() {
  static const auto& module =
      *static_cast<const GrpcModule*>(OpenModule(kGrpcModule, "what talks over gRPC"));
  module.log_to(spdlog::default_logger());
  return module;
}

}  // namespace

std::string GrpcLibrary() { return OpenGrpcModule().library(); }

std::unique_ptr<Connections> ListenGrpc(const NetAddress& address, const TlsTexts& tls) {
  return OpenGrpcModule().listen(address, tls);
}

std::unique_ptr<Connections> JoinGrpc(const NetAddress& address, const TlsTexts& tls) {
  return OpenGrpcModule().join(address, tls);
}

void CheckTls(const TlsTexts& tls, const TlsFiles& files) {
  OpenGrpcModule().check_tls(tls, files);
}

}  // namespace lopt
