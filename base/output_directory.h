#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lopt {

// A directory that one process at a time writes a run or an evaluation to.

// Makes the directory where there is none. Throws Error (path and reason) if that fails or if
// nothing can be written in it.
void MakeOutputDirectory(const std::string& path);

// Removes what is in the directory and has a name that matches, sub-directories with all they hold.
// Throws Error (path and reason).
void RemoveMatching(const std::string& directory,
                    const std::function<bool(std::string_view name)>& matches);

// Whether `name` is what a killed WriteFile (base/file.h) of the file leaves beside it.
bool IsUnfinished(std::string_view name, std::string_view file);

}  // namespace lopt
