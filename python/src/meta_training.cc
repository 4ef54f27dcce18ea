#include "python/src/bind.h"

namespace lopt::python {

void BindMetaTraining(nanobind::module_& /*m*/) {}

}  // namespace lopt::python
