#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/process.h"

namespace lopt {

// Certificates of the names "learner" and "worker", signed by "ca", and "stranger", signed by
// itself, in this directory.
inline void MakeCertificates(const std::string& directory) {
  const std::string script = R"(set -e; cd "$1"
    new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    $new -x509 -keyout ca.key -out ca.pem -subj /CN=ca
    $new -x509 -keyout stranger.key -out stranger.pem -subj /CN=stranger
    echo subjectAltName=IP:127.0.0.1 > names
    for name in learner worker; do
      $new -keyout $name.key -out $name.csr -subj /CN=$name
      sign="openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -extfile names"
      $sign -out $name.pem -days 2
      # OpenSSL 3.0 has no dates here, 3.5 no days of the past.
      $sign -out $name-old.pem -not_before 20200101000000Z -not_after 20200102000000Z ||
        $sign -out $name-old.pem -days -1
      cp $name.key $name-old.key
    done; exec 2>&-)";
  const FinishedProcess made = RunProcess({"/bin/sh", "-c", script, "sh", directory});
  REQUIRE_MESSAGE(made.exit_code == 0, made.errors);
}

}  // namespace lopt
