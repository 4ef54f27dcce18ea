#include "lopt/base/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstring>
#include <utility>

namespace lopt {

Processor ProcessorOf(std::string vendor, uint32_t signature) {
  const auto bits = [&](int first, int count) {
    return static_cast<int>(signature >> first & ((1u << count) - 1));
  };
  const int family = bits(8, 4);
  const bool extended = family == 6 || family == 15;
  return {.vendor = std::move(vendor),
          .family = family == 15 ? family + bits(20, 8) : family,
          .model = bits(4, 4) + (extended ? bits(16, 4) << 4 : 0)};
}

Processor ThisProcessor() {
#if defined(__x86_64__)
  unsigned int largest = 0;
  std::array<unsigned int, 3> letters = {};  // EBX, EDX, ECX
  unsigned int signature = 0;
  std::array<unsigned int, 3> rest = {};
  if (__get_cpuid(0, &largest, &letters[0], &letters[2], &letters[1]) != 0 &&
      __get_cpuid(1, &signature, &rest[0], &rest[1], &rest[2]) != 0) {
    std::string vendor(sizeof(letters), '\0');
    std::memcpy(vendor.data(), letters.data(), vendor.size());
    return ProcessorOf(std::move(vendor), signature);
  }
#endif
  return {};
}

bool PacesStores(const Processor& processor, std::string_view isa) {
  return processor.vendor == "GenuineIntel" && isa == "avx3";
}

bool HasSmallTiles(const Processor& processor, std::string_view isa) {
  const int generation = processor.model >> 4;
  return processor.vendor == "AuthenticAMD" && processor.family == 25 && isa == "avx2" &&
         (generation == 0 || (generation >= 2 && generation <= 5));
}

}  // namespace lopt
