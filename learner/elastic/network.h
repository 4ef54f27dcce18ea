#pragma once

#include <string>

#include "lopt/learner/elastic/address.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/elastic/network_files.h"

namespace lopt {

// What is in NetworkFiles.
struct NetworkSecrets {
  TlsTexts tls = {};
  std::string token_file = {};  // empty: there is no token
  std::string token = {};
};

// What is missing for this address: some files of TLS, or all that it wants if it is not of this
// machine and nobody said that it is insecure; empty: nothing. Throws Error if the address is not
// found.
std::string MissingOf(const NetworkFiles& files, const NetAddress& address);

// Of files of which nothing is missing. Where neither a token nor `insecure` is named, the token is
// the user's own (learner/elastic/secret_file.h), which is made. Throws Error if a file cannot be
// read, if others may read the token or the key, if the token is empty, or as CheckTls does.
NetworkSecrets ReadSecrets(const NetworkFiles& files);

// Throws Error unless a process says the token that is wanted, in a time that does not tell where
// the two differ. Empty: none.
void CheckToken(const std::string& said, const std::string& wanted);

}  // namespace lopt
