#pragma once

namespace lopt {

// How many times as long as on a machine of today a test waits, and what it starts may be silent:
// more where programs are slower by sanitizers or emulation (`patience` of tests/CMakeLists.txt).
int Patience();

}  // namespace lopt
