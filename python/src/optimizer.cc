#include "python/src/bind.h"

namespace lopt::python {

void BindOptimizer(nanobind::module_& /*m*/) {}

}  // namespace lopt::python
