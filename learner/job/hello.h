#pragma once

#include <string>

#include "lopt/learner/job/messages.h"

namespace lopt {

// Throws Error unless another process, called `who`, runs what the learner runs: the same version
// and config and, unless that is allowed, instruction set and device; a difference that is allowed
// is a warning. The learner's device is that of the run; where either has none, none is compared.
void CompareHellos(const Hello& learner, const std::string& who, const Hello& other,
                   bool allow_isa_change);

}  // namespace lopt
