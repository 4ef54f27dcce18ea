#include "tools/commands.h"

int main(int argc, char** argv) { return lopt::RunProgram({argv + 1, argv + argc}); }
