#pragma once

#include <string>

namespace lopt {

// `word` as a shell reads it back.
std::string ShellQuoted(const std::string& word);

}  // namespace lopt
