#include "python/src/bind.h"

namespace lopt::python {

void BindTheta(nanobind::module_& /*m*/) {}

}  // namespace lopt::python
