#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lopt {

// Where this program is, and who else may change what lies beside it. Nothing here is known from
// the time when it was built, so what is moved or copied is found where it is.

// The directory of the running program's file, of Python's interpreter in a Python process; nothing
// where the system does not say.
std::optional<std::filesystem::path> ProgramDirectory();

// The directory of the shared library or Python extension that holds this code; nothing where the
// program itself does.
std::optional<std::filesystem::path> OwnLibraryDirectory();

// Why code from the file `path` is not to be run: somebody else than root, this user and the owners
// of the running program and of the shared library that holds this code owns it, the link that
// leads to it or its directory, or everybody may write there. Empty if nobody else may.
std::string WhoElseMayChange(const std::filesystem::path& path);

}  // namespace lopt
