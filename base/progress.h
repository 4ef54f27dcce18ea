#pragma once

#include <cstdint>

namespace lopt {

// Signs that the threads of this process get on with their work, for whoever watches that none
// hangs (learner/job/message_loop.h). Windows and trainings give one after each inner step. A
// window that device functions run gives one in all, as a GPU says nothing before its kernel has
// ended, and on the emulated device one for each replica. Work that may take minutes between two of
// them gives its own. From any thread, for a few nanoseconds.
void NoteProgress();
// Another number whenever there was a sign since the last look.
int64_t ProgressNoted();

}  // namespace lopt
