#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// The instruction sets that both this build and this machine have, best first, by lower-case name
// ("avx3_zen4", "avx2", "sse4", ...). Kernels are compiled for each and one is chosen at run time.
std::vector<std::string> SupportedIsas();

// The one in use: the best, unless pinned.
std::string CurrentIsa();

// Uses `name` from now on, in every kernel of the process. Results are bit-identical only on one
// instruction set. Not to be called while kernels run. Throws Error that lists the supported ones
// if `name` is not among them.
void PinIsa(std::string_view name);

}  // namespace lopt
