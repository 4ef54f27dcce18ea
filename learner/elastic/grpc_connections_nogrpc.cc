#include "lopt/base/error.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/elastic/tls_check.h"

namespace lopt {
namespace {

[[noreturn]] void FailWithoutGrpc() {
  Fail(
      "this program was built without gRPC, over which elastic workers and parameter servers talk: "
      "build it where gRPC is installed (libgrpc++-dev, protobuf-compiler-grpc)");
}

}  // namespace

std::string GrpcLibrary() { return ""; }

std::unique_ptr<Connections> ListenGrpc(const NetAddress&, const TlsTexts&) { FailWithoutGrpc(); }

std::unique_ptr<Connections> JoinGrpc(const NetAddress&, const TlsTexts&) { FailWithoutGrpc(); }

void CheckTls(const TlsTexts&, const TlsFiles&) {}

}  // namespace lopt
