#pragma once

#include <string>
#include <vector>

namespace lopt {

// `lopt bench transport`, alone or as a rank under mpiexec: how fast a job exchanges weights and
// gradients when computing them costs nothing, and the learner's own time for an update. Returns
// the exit code; throws Error and UsageError.
int BenchTransport(const std::vector<std::string>& arguments);

}  // namespace lopt
