#include "lopt/learner/elastic/network.h"

#include <fmt/format.h>

#include <algorithm>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/elastic/secret_file.h"

namespace lopt {
namespace {

// In a time that does not tell where they differ.
bool SameText(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return different == 0;
}

std::string ReadToken(const std::string& file) {
  std::string token = ReadSecretFile(file);
  token.erase(token.find_last_not_of(" \t\r\n") + 1);
  Require(
      !token.empty(),
      "the token in {} is empty; remove the file if lopt is to make a new one, or write a token "
      "into it",
      file);
  Require(token.size() <= kMostTokenBytes, "the token in {} has {} bytes; it may have up to {}",
          file, token.size(), kMostTokenBytes);
  return token;
}

}  // namespace

std::string MissingOf(const NetworkFiles& files, const NetAddress& address) {
  const bool tls = files.certificate && files.key && files.authorities;
  if (!tls && (files.certificate || files.key || files.authorities)) {
    return "TLS wants all of --tls-cert, --tls-key and --tls-ca";
  }
  if ((tls && files.token) || files.insecure || IsLoopback(address)) return "";
  return fmt::format(
      "{} is not this machine alone, so it wants --tls-cert, --tls-key, --tls-ca and --token-file; "
      "or say --insecure",
      address.Text());
}

NetworkSecrets ReadSecrets(const NetworkFiles& files) {
  NetworkSecrets secrets;
  std::optional<std::string> token = files.token;
  if (!token && !files.insecure) {
    token = UsersTokenFile();
    MakeTokenFile(*token);
  }
  if (files.certificate) {
    secrets.tls = {.certificate = ReadTextFile(*files.certificate),
                   .key = ReadSecretFile(*files.key),
                   .authorities = ReadTextFile(*files.authorities)};
    CheckTls(
        secrets.tls,
        {.certificate = *files.certificate, .key = *files.key, .authorities = *files.authorities});
  }
  if (token) {
    secrets.token_file = *token;
    secrets.token = ReadToken(*token);
  }
  return secrets;
}

void CheckToken(const std::string& said, const std::string& wanted) {
  Require(!wanted.empty() || said.empty(), "it says a token, and this job has none (--insecure)");
  Require(SameText(said, wanted), "it does not say the token of this job (--token-file)");
}

}  // namespace lopt
