#pragma once

#include <string>

#include "lopt/learner/elastic/grpc_connections.h"

namespace lopt {

// Where the texts of one side come from, for errors.
struct TlsFiles {
  std::string certificate = {};
  std::string key = {};
  std::string authorities = {};
};

// Throws Error if this side's texts cannot work together or now: one of them cannot be read, the
// key belongs to another certificate, or a certificate has expired or is not valid yet. What gRPC
// says of the same faults does not name them. Checks nothing in a program without gRPC, which has
// no connections either.
void CheckTls(const TlsTexts& tls, const TlsFiles& files);

}  // namespace lopt
