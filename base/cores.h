#pragma once

namespace lopt {

// The cores that this process may run on.
int AvailableCores();

}  // namespace lopt
