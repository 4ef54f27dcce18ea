#include "lopt/tools/network_options.h"

#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <optional>

#include "lopt/base/file.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/elastic/tls_check.h"
#include "lopt/tools/command_line.h"
#include "lopt/tools/secret_file.h"

namespace lopt {

namespace po = boost::program_options;

void AddNetworkOptions(po::options_description* options) {
  auto add = options->add_options();
  add("token-file", po::value<std::string>()->value_name("FILE"),
      "File with the text that workers of this job say and its learner wants to hear; only you may "
      "read it. Default on this machine: ~/.config/lopt/token, which is made.");
  add("tls-cert", po::value<std::string>()->value_name("FILE"),
      "Certificate of this side (PEM); with --tls-key and --tls-ca, both sides show theirs.");
  add("tls-key", po::value<std::string>()->value_name("FILE"), "Key of the certificate (PEM).");
  add("tls-ca", po::value<std::string>()->value_name("FILE"),
      "Certificates of those who sign the other side's (PEM).");
  add("insecure",
      "Without a token, unless --token-file names one, and on other machines without TLS: whoever "
      "reaches the port can read and change the job.");
}

NetworkOptions ReadNetworkOptions(const po::variables_map& values, const std::string& address) {
  NetworkOptions network{.address = ParseNetAddress(address)};
  const auto certificate = TextOption(values, "tls-cert");
  const auto key = TextOption(values, "tls-key");
  const auto authorities = TextOption(values, "tls-ca");
  const bool tls = certificate && key && authorities;
  if (!tls && (certificate || key || authorities)) {
    throw UsageError("TLS wants all of --tls-cert, --tls-key and --tls-ca");
  }
  auto token = TextOption(values, "token-file");
  const bool insecure = values.contains("insecure");
  if (!(tls && token) && !insecure && !IsLoopback(network.address)) {
    throw UsageError(
        fmt::format("{} is not this machine alone, so it wants --tls-cert, --tls-key, --tls-ca and "
                    "--token-file; or say --insecure",
                    network.address.Text()));
  }
  if (!token && !insecure) {
    token = UsersTokenFile();
    MakeTokenFile(*token);
  }
  if (tls) {
    network.tls = {.certificate = ReadTextFile(*certificate),
                   .key = ReadSecretFile(*key),
                   .authorities = ReadTextFile(*authorities)};
    CheckTls(network.tls, {.certificate = *certificate, .key = *key, .authorities = *authorities});
  }
  if (token) {
    network.token_file = *token;
    network.token = ReadSecretFile(*token);
    network.token.erase(network.token.find_last_not_of(" \t\r\n") + 1);
    Require(!network.token.empty(), "the token in {} is empty", *token);
    Require(network.token.size() <= kMostTokenBytes,
            "the token in {} has {} bytes; it may have up to {}", *token, network.token.size(),
            kMostTokenBytes);
  }
  return network;
}

}  // namespace lopt
