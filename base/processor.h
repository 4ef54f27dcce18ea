#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lopt {

// An x86-64 processor as CPUID describes it, with the family and model that its maker's lists have:
// Zen 3 is "AuthenticAMD", 25, 1, for example. Empty and 0 on other architectures.
struct Processor {
  std::string vendor;
  int family = 0;
  int model = 0;
};

// Of the vendor's name and EAX of CPUID's leaf 1.
Processor ProcessorOf(std::string vendor, uint32_t signature);
Processor ThisProcessor();

// How a processor handles the stores at the end of a tile decides two things. No bit depends on
// them. `isa` is a name as base/isa.h has them.

// Whether kernels store the results of a tile two rows at a time between its last multiply-adds,
// not all at its end: on Intel's AVX-512, where so many stores that wait for their data keep the
// next tile's work from being scheduled.
bool PacesStores(const Processor& processor, std::string_view isa);

// Whether tiles have 8 vectors of sums, mostly, where 12 would fit into the registers: on AMD's Zen
// 3, where a tile that stores more than 8 at its end delays the next by some 15 cycles.
bool HasSmallTiles(const Processor& processor, std::string_view isa);

// While it lives, tiles are small, or are not, on every instruction set with sixteen registers,
// whatever the processor: for tests. One at a time.
class SmallTilesScope {
 public:
  explicit SmallTilesScope(bool small);
  ~SmallTilesScope();
  SmallTilesScope(const SmallTilesScope&) = delete;
  SmallTilesScope& operator=(const SmallTilesScope&) = delete;
};

// The same of paced stores, on every instruction set with vectors of 16 floats.
class PacedStoresScope {
 public:
  explicit PacedStoresScope(bool paced);
  ~PacedStoresScope();
  PacedStoresScope(const PacedStoresScope&) = delete;
  PacedStoresScope& operator=(const PacedStoresScope&) = delete;
};

}  // namespace lopt
