#include <doctest/doctest.h>

#include "lopt/base/processor.h"

namespace lopt {
namespace {

// Signatures as the makers publish them, and what they stand for.
TEST_CASE("A signature gives the family and the model of the maker's lists") {
  struct Known {
    uint32_t signature;
    int family;
    int model;
  };
  for (const auto& [signature, family, model] : {
           Known{0x00A00F11, 25, 0x01},  // EPYC 7003
           Known{0x00A20F10, 25, 0x21},  // Ryzen 5000
           Known{0x00A10F11, 25, 0x11},  // EPYC 9004
           Known{0x00830F10, 23, 0x31},  // EPYC 7002
           Known{0x00B00F21, 26, 0x02},  // EPYC 9005
           Known{0x000806F8, 6, 0x8f},   // Xeon, Sapphire Rapids
           Known{0x00000F4A, 15, 0x04},  // Pentium 4
       }) {
    CAPTURE(signature);
    const Processor processor = ProcessorOf("a maker", signature);
    CHECK(processor.vendor == "a maker");
    CHECK(processor.family == family);
    CHECK(processor.model == model);
  }
}

TEST_CASE("This processor has a vendor where CPUID is") {
#if defined(__x86_64__)
  CHECK(ThisProcessor().vendor.size() == 12);
  CHECK(ThisProcessor().family > 0);
#else
  CHECK(ThisProcessor().vendor.empty());
#endif
}

TEST_CASE("Only Intel's AVX-512 paces its stores") {
  const Processor xeon = {"GenuineIntel", 6, 0x8f};
  CHECK(PacesStores(xeon, "avx3"));
  CHECK_FALSE(PacesStores(xeon, "avx2"));
  CHECK_FALSE(PacesStores({"AuthenticAMD", 25, 0x11}, "avx3"));
  CHECK_FALSE(PacesStores({}, "neon"));
}

// Models as AMD's revision guides list them: 0 to 0f and 20 to 5f of family 25 are Zen 3, 10 to 1f
// and 60 to af Zen 4.
TEST_CASE("Only Zen 3 has small tiles, on AVX2") {
  for (const int model : {0x01, 0x08, 0x21, 0x44, 0x50}) {
    CHECK(HasSmallTiles({"AuthenticAMD", 25, model}, "avx2"));
    CHECK_FALSE(HasSmallTiles({"AuthenticAMD", 25, model}, "sse4"));
  }
  for (const int model : {0x11, 0x18, 0x61, 0x74, 0xa0}) {
    CHECK_FALSE(HasSmallTiles({"AuthenticAMD", 25, model}, "avx2"));
  }
  CHECK_FALSE(HasSmallTiles({"AuthenticAMD", 23, 0x31}, "avx2"));
  CHECK_FALSE(HasSmallTiles({"AuthenticAMD", 26, 0x02}, "avx2"));
  CHECK_FALSE(HasSmallTiles({"GenuineIntel", 25, 0x01}, "avx2"));
  CHECK_FALSE(HasSmallTiles({}, "neon"));
}

}  // namespace
}  // namespace lopt
