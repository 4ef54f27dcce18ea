#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lopt {

// The trained optimizers that come with lopt ("recommended", "fast", ...).

// Their theta files, or those of the directory `told`. Throws Error that says where it looked if
// there are none.
std::vector<std::string> TrainedFiles(const std::optional<std::string>& told);

// Their names, sorted; empty if there are none.
std::vector<std::string> TrainedNames();

// What `--theta` and the like say of the names, for help texts.
inline constexpr const char* kThetaNames = "a file, or recommended or another that comes with lopt";

// The path of the theta file that a command line names: `named` is a path, or a trained optimizer's
// name, which goes before a file of that name ("./fast" is the file). Throws Error that lists the
// names if it is neither.
std::string ThetaPath(const std::string& named);

// What the optimizer of a theta file is called: the file's name without its ending, or, where that
// is theta, as meta-training calls it, the directory's.
std::string ThetaName(const std::string& path);

// Whether the bytes are those of a theta file that comes with lopt.
bool ComesWithLopt(std::span<const std::byte> content);

}  // namespace lopt
