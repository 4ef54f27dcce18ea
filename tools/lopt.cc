#include "lopt/tools/commands.h"
#include "lopt/tools/hang_up.h"

namespace {

[[gnu::section(".preinit_array"), gnu::used]] void (*const note)() = lopt::NoteHangUp;

}  // namespace

int main(int argc, char** argv) { return lopt::RunProgram({argv + 1, argv + argc}); }
