#include "python/src/bind.h"

namespace lopt::python {

void BindEvaluation(nanobind::module_& /*m*/) {}

}  // namespace lopt::python
