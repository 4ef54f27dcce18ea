#pragma once

#include <functional>

#include "lopt/learner/transport/transport.h"

namespace lopt {

// The exit code of a job that an Error has ended.
inline constexpr int kExitFailed = 1;

// Ends the job with a message. Most errors are met by all ranks at once: the others give rank 0 the
// time to be the only one that speaks.
[[noreturn]] void EndJob(Transport* transport, const char* message, int exit_code);

// What rank 0 does with the Error that ends its job before it waits for the work that still runs:
// hands it to `on_failure`, or without one ends the job, if ranks are processes.
void NoteFailure(const std::function<void(const char*)>& on_failure, Transport* transport,
                 const char* message);

}  // namespace lopt
