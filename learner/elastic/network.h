#pragma once

#include <optional>
#include <string>

#include "lopt/learner/elastic/address.h"
#include "lopt/learner/elastic/grpc_connections.h"

namespace lopt {

// The files by which two processes of a job know each other, named by the options of `lopt`.
struct NetworkFiles {
  std::optional<std::string> token = {};        // --token-file
  std::optional<std::string> certificate = {};  // --tls-cert
  std::optional<std::string> key = {};          // --tls-key
  std::optional<std::string> authorities = {};  // --tls-ca
  bool insecure = false;                        // --insecure
};

// What is in them.
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
