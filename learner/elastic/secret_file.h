#pragma once

#include <cstdint>
#include <string>

namespace lopt {

// Throws Error if a file of this owner and mode is no secret of this user: it must belong to the
// user, with mode 600 or less, or to root, who may share it with a group that reads it (mode 640).
void RequireSecret(const std::string& path, uint32_t owner, uint32_t mode, uint32_t user);

// The text of a file that holds a secret. Throws Error if the file cannot be read, or if it is no
// secret of this user.
std::string ReadSecretFile(const std::string& path);

// Where learners and workers of this user find their token unless another file is named:
// $XDG_CONFIG_HOME/lopt/token, by default ~/.config/lopt/token. Throws Error if the user has no
// home directory.
std::string UsersTokenFile();

// Makes a file with 256 random bits as text, which only this user may read, unless there is one.
// Of several processes that do so at once all find the same text afterwards.
void MakeTokenFile(const std::string& path);

}  // namespace lopt
