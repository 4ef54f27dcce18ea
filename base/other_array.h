#pragma once

#include <string>

#include "lopt/base/layout.h"

namespace lopt {

// An array in a file whose elements are of a type that Array has not, and so are not read.
struct OtherArray {
  std::string name;   // in the file
  std::string dtype;  // as the file names it: "<f2", "|b1", "<U4", "BF16"; the list of a record's
  Shape shape;        // of its elements
};

}  // namespace lopt
