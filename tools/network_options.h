#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>
#include <string>

#include "lopt/learner/elastic/network.h"

namespace lopt {

// Where another process is, and how the two know each other.
struct NetworkOptions {
  NetAddress address = {};
  NetworkSecrets secrets = {};
};

// The options that say how: --token-file, --tls-cert, --tls-key, --tls-ca, --insecure.
void AddNetworkOptions(boost::program_options::options_description* options);

// What they say for this address, "host:port". Throws UsageError if some are missing (MissingOf),
// Error as ReadSecrets does.
NetworkOptions ReadNetworkOptions(const boost::program_options::variables_map& values,
                                  const std::string& address);

}  // namespace lopt
