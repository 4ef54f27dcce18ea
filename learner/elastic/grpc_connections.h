#pragma once

#include <memory>
#include <string>

#include "lopt/learner/elastic/address.h"
#include "lopt/learner/elastic/connections.h"

namespace lopt {

// TLS with certificates on both sides, as PEM texts. All empty: none.
struct TlsTexts {
  std::string certificate = {};  // of this side
  std::string key = {};          // that goes with it
  std::string authorities = {};  // that have signed the other side's certificate
};

// "gRPC 1.51.1"; empty if this program was built without.
std::string GrpcLibrary();

// Connections of workers that come to this address; port 0: one that is free. Throws Error if that
// is not possible.
std::unique_ptr<Connections> ListenGrpc(const NetAddress& address, const TlsTexts& tls);

// One connection, number 1, to the learner at this address: open from the beginning, closed if
// nobody is there.
std::unique_ptr<Connections> JoinGrpc(const NetAddress& address, const TlsTexts& tls);

}  // namespace lopt
