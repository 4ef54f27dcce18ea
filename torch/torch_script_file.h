#pragma once

#include <string>

#include "lopt/tasks/torch/torch_module.h"

namespace lopt {

// Writes `file` to `path`; the file is complete or absent after a crash. Throws Error if the source
// does not compile or the file cannot be written.
void WriteTorchScriptFile(const std::string& path, const TorchScriptFile& file);

}  // namespace lopt
