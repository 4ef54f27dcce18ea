#include "lopt/tools/network_options.h"

#include <boost/program_options.hpp>

#include "lopt/tools/command_line.h"

namespace lopt {

namespace po = boost::program_options;

void AddNetworkOptions(po::options_description* options) {
  auto add = options->add_options();
  add("token-file", po::value<std::string>()->value_name("FILE"),
      "File with the secret that workers show to the learner; only you may read it. Default on "
      "this "
      "machine: ~/.config/lopt/token, made where it is missing.");
  add("tls-cert", po::value<std::string>()->value_name("FILE"),
      "Certificate of this side (PEM); with --tls-key and --tls-ca, both sides show theirs.");
  add("tls-key", po::value<std::string>()->value_name("FILE"), "Key of the certificate (PEM).");
  add("tls-ca", po::value<std::string>()->value_name("FILE"),
      "Certificates of the authorities that sign the other side's (PEM).");
  add("insecure",
      "Do without a token, unless --token-file names one, and without TLS between machines: "
      "whoever reaches the port can read and change the job.");
}

NetworkOptions ReadNetworkOptions(const po::variables_map& values, const std::string& address) {
  const NetworkFiles files{.token = TextOption(values, "token-file"),
                           .certificate = TextOption(values, "tls-cert"),
                           .key = TextOption(values, "tls-key"),
                           .authorities = TextOption(values, "tls-ca"),
                           .insecure = values.contains("insecure")};
  const NetAddress parsed = ParseNetAddress(address);
  if (const std::string missing = MissingOf(files, parsed); !missing.empty()) {
    throw UsageError(missing);
  }
  return {.address = parsed, .secrets = ReadSecrets(files)};
}

}  // namespace lopt
