#pragma once

#include <string>

namespace lopt {

// Says why the running test case, or the rest of it, cannot run here; the test case then returns.
// ctest shows an entry as skipped if all of its test cases are, and its output ends with
// "SKIPPED: <reason>"; elsewhere it ends with "left out: <reason>". A test case that ends without
// an assertion and without a reason fails (tests/main.cc).
void SkipTest(const std::string& reason);

}  // namespace lopt
