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
