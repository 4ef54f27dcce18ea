#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/layout.h"

namespace lopt::python {

// The keys of several replicas: what is drawn from them has one more dimension in front.
struct Keys {
  std::vector<Key> keys;
};

// A shape from an int or a sequence of ints. Throws Error, in the name of `who`, for anything else.
Shape ShapeOf(nanobind::handle from, const char* who);

}  // namespace lopt::python
