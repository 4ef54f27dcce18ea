#pragma once

#include <nanobind/nanobind.h>

namespace lopt::python {

// Adds lopt._core.Carrier, which meta_train takes, and what works at its other side.
void BindCarrier(nanobind::module_& m);

}  // namespace lopt::python
