#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

#include "base/isa.h"

// Tests run on the machine's best instruction set, or on the one that LOPT_TEST_ISA names.
int main(int argc, char** argv) {
  if (const char* isa = std::getenv("LOPT_TEST_ISA"); isa != nullptr) lopt::PinIsa(isa);
  return doctest::Context(argc, argv).run();
}
