#include "lopt/tools/own_command.h"

#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/platform.h"

namespace lopt {

namespace {

std::vector<std::string> own_command;  // empty: the path of the program

}  // namespace

std::vector<std::string> OwnCommand() {
  if (!own_command.empty()) return own_command;
  const std::string program = ProgramPath();
  Require(!program.empty(), "the system does not say which program this is");
  return {program};
}

void SetOwnCommand(std::vector<std::string> words) { own_command = std::move(words); }

}  // namespace lopt
