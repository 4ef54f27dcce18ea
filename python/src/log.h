#pragma once

namespace lopt::python {

// From now on what lopt logs is logged by Python's logger "lopt".
void LogToPython();

}  // namespace lopt::python
