#pragma once

namespace lopt {

// The threads that are worth their while in this process: the cores that it may run on, but no more
// than the processor time that its control groups allow (docker run --cpus), nor than a ThreadPool
// may have.
int AvailableCores();

}  // namespace lopt
