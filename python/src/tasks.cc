#include "python/src/bind.h"

namespace lopt::python {

void BindTasks(nanobind::module_& /*m*/) {}

}  // namespace lopt::python
