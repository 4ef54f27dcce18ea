#pragma once

#include <string>

namespace lopt {

// `word` as a shell reads it back, in UTF-8: one that is none as bash, zsh and ksh read it.
std::string ShellQuoted(const std::string& word);

}  // namespace lopt
