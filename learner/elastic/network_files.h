#pragma once

#include <optional>
#include <string>

namespace lopt {

// The files by which two processes of a job know each other, named by the options of `lopt`.
struct NetworkFiles {
  std::optional<std::string> token = {};        // --token-file: the text that both know
  std::optional<std::string> certificate = {};  // --tls-cert: of this side (PEM)
  std::optional<std::string> key = {};          // --tls-key: of the certificate
  std::optional<std::string> authorities = {};  // --tls-ca: who signed the other's certificate
  bool insecure = false;                        // --insecure: whoever reaches the port may do all
};

}  // namespace lopt
