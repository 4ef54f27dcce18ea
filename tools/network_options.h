#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <string>

#include "lopt/learner/elastic/address.h"
#include "lopt/learner/elastic/grpc_connections.h"

namespace lopt {

// Where another process is, and how the two know each other.
struct NetworkOptions {
  NetAddress address = {};
  TlsTexts tls = {};
  std::string token_file = {};  // empty: there is no token
  std::string token = {};
};

// The options that say how: --token-file, --tls-cert, --tls-key, --tls-ca, --insecure.
void AddNetworkOptions(boost::program_options::options_description* options);

// What they say for this address, "host:port". On this machine the token is the user's own unless
// they say otherwise. Throws UsageError if some are missing, or if the address is not of this
// machine and neither TLS and a token nor --insecure are there; Error if a file cannot be read, if
// others may read the token or the key, or if the token is empty.
NetworkOptions ReadNetworkOptions(const boost::program_options::variables_map& values,
                                  const std::string& address);

}  // namespace lopt
