#pragma once

#include <memory>
#include <string>

#include "lopt/base/module.h"
#include "lopt/learner/elastic/address.h"
#include "lopt/learner/elastic/connections.h"

namespace lopt {

// What needs gRPC, and OpenSSL for its TLS, lies in a module, which is opened when a job listens,
// joins or has files of TLS. Each function below opens it, and throws Error as OpenModule does.
inline constexpr ModuleKind kGrpcModule = {
    .key = "grpc", .library = "gRPC", .packages = "libgrpc++-dev protobuf-compiler-grpc"};

// TLS with certificates on both sides, as PEM texts. All empty: none.
struct TlsTexts {
  std::string certificate = {};  // of this side
  std::string key = {};          // that goes with it
  std::string authorities = {};  // that have signed the other side's certificate
};

// Where the texts of one side come from, for errors.
struct TlsFiles {
  std::string certificate = {};
  std::string key = {};
  std::string authorities = {};
};

// "gRPC 1.51.1".
std::string GrpcLibrary();

// Connections of workers that come to this address; port 0: one that is free. Throws Error if that
// is not possible.
std::unique_ptr<Connections> ListenGrpc(const NetAddress& address, const TlsTexts& tls);

// One connection, number 1, to the learner at this address: open from the beginning, closed if
// nobody is there.
std::unique_ptr<Connections> JoinGrpc(const NetAddress& address, const TlsTexts& tls);

// Throws Error if this side's texts cannot work together or now: one of them cannot be read, the
// key belongs to another certificate, or a certificate has expired or is not valid yet. What gRPC
// says of the same faults does not name them.
void CheckTls(const TlsTexts& tls, const TlsFiles& files);

}  // namespace lopt
