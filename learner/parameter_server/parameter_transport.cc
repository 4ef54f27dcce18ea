#include "lopt/learner/parameter_server/parameter_transport.h"

#include <cstdio>

namespace lopt {

void ParameterTransport::DoAbort(int /*exit_code*/) { std::fflush(nullptr); }

}  // namespace lopt
