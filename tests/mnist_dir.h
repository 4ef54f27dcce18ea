#pragma once

#include <cstdlib>
#include <string>

namespace lopt {

// A directory with the MNIST test files, as the environment variable LOPT_MNIST_DIR names it; empty
// where it does not.
inline std::string MnistDir() {
  const char* directory = std::getenv("LOPT_MNIST_DIR");
  return directory != nullptr ? directory : "";
}

}  // namespace lopt
