#pragma once

#include <doctest/doctest.h>

#include <string>

#include "lopt/base/isa.h"

namespace lopt {

// Pins each instruction set in turn for `body` and gives back the one that was in use.
template <class Body>
void OnEveryIsa(const Body& body) {
  const std::string pinned = CurrentIsa();
  for (const std::string& isa : SupportedIsas()) {
    CAPTURE(isa);
    PinIsa(isa);
    body();
  }
  PinIsa(pinned);
}

}  // namespace lopt
