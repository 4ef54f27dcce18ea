# Writes OUTPUT: the VERSION and a hash of HEADERS; only where they have changed.
set(all "")
foreach(header ${HEADERS})
  file(SHA256 ${header} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 8 hash)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once

#define LOPT_HEADERS \"lopt ${VERSION} (headers ${hash})\"
")
