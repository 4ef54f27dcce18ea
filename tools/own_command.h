#pragma once

#include <string>
#include <vector>

namespace lopt {

// The first words of a command line that runs this program again: its path.
std::vector<std::string> OwnCommand();

// From now on OwnCommand() is this: in a process of another program (Python), which runs lopt with
// words of its own.
void SetOwnCommand(std::vector<std::string> words);

}  // namespace lopt
