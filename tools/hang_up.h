#pragma once

namespace lopt {

// Remembers whether SIGHUP is ignored now, as under nohup. UCX, which comes with MPICH, takes
// SIGHUP for itself when it is loaded, so the program calls this before any library begins.
void NoteHangUp();

// Whether it was ignored then; false if NoteHangUp was not called.
bool HangUpIsIgnored();

}  // namespace lopt
