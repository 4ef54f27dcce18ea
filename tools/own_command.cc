#include "tools/own_command.h"

#include <filesystem>
#include <utility>

namespace lopt {

namespace {

std::vector<std::string> own_command;  // empty: the path of the program

}  // namespace

std::vector<std::string> OwnCommand() {
  if (!own_command.empty()) return own_command;
  return {std::filesystem::read_symlink("/proc/self/exe")};
}

void SetOwnCommand(std::vector<std::string> words) { own_command = std::move(words); }

}  // namespace lopt
