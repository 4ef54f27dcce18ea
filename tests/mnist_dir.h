#pragma once

#include <cstdlib>
#include <string>

#include "tests/skip.h"

namespace lopt {

// A directory with the MNIST test files, as the environment variable LOPT_MNIST_DIR names it; empty
// where it does not.
inline std::string MnistDir() {
  const char* directory = std::getenv("LOPT_MNIST_DIR");
  return directory != nullptr ? directory : "";
}

// Whether there is none; the test case then returns, and is a skip.
inline bool SkipsWithoutMnist() {
  if (!MnistDir().empty()) return false;
  SkipTest("LOPT_MNIST_DIR does not name a directory with the MNIST test files");
  return true;
}

}  // namespace lopt
