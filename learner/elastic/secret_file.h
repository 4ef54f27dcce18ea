#pragma once

#include <string>

namespace lopt {

// The text of a file that holds a secret. Throws Error if the file cannot be read, or if somebody
// else can: it must belong to this user with mode 600 or less, or to root, who may share it with a
// group (mode 640).
std::string ReadSecretFile(const std::string& path);

// Where learners and workers of this user find their token unless another file is named:
// $XDG_CONFIG_HOME/lopt/token, by default ~/.config/lopt/token. Throws Error if the user has no
// home directory.
std::string UsersTokenFile();

// Makes a file with 256 random bits as text, which only this user may read, unless there is one.
// Of several processes that do so at once all find the same text afterwards.
void MakeTokenFile(const std::string& path);

}  // namespace lopt
