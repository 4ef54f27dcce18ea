#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// The instruction sets that both this build and this machine have, best first, by lower-case name
// ("avx3", "avx2", "sse4", "scalar"). Kernels are compiled for each and one is chosen at run time.
std::vector<std::string> SupportedIsas();

// Whether the build has kernels only for the best instruction set of the machine that built it, and
// the simplest ones (LOPT_KERNELS=NATIVE).
bool KernelsAreNative();

// The one that this thread's kernels use: the IsaScope's, else the pinned one, else the best.
std::string CurrentIsa();

// A processor as CPUID describes it, with the family and model that its makers' lists have: Zen 3
// is "AuthenticAMD", 25, 1, for example. Empty and 0 on other architectures.
struct Processor {
  std::string vendor;
  int family = 0;
  int model = 0;
};

// Two things that stores at the end of a tile decide. No bit depends on either.
//
// Whether kernels store the results of a tile two rows at a time between its last multiply-adds,
// not all at its end: on Intel's AVX-512, where so many stores that wait for their data keep the
// next tile's work from being scheduled.
bool PacesStores(const Processor& processor, std::string_view isa);
// Whether tiles have at most 8 vectors of sums where 12 would fit into the registers: on AMD's Zen
// 3, where a tile that stores more than that at once delays the next by some 15 cycles.
bool HasSmallTiles(const Processor& processor, std::string_view isa);

// Uses `name` from now on, in every kernel of the process. Results are bit-identical only on one
// instruction set. Not to be called while kernels run. Throws Error that lists the supported ones
// if `name` is not among them.
void PinIsa(std::string_view name);

// While it lives, the kernels that this thread calls use `name`; those of other threads, also of
// parallel loops that this one begins, go on with theirs. Scopes of a thread end in the reverse
// order. Throws Error as PinIsa does.
class IsaScope {
 public:
  explicit IsaScope(std::string_view name);
  ~IsaScope();
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  const void* before_;
};

}  // namespace lopt
