#pragma once

#include <string>

#include "lopt/base/arrays.h"

namespace lopt {

// Writes float32 tensors as torch.save writes a state_dict, for torch.load, also with
// weights_only=True. The file is complete or absent after a crash. Throws Error if it cannot be
// written.
void WriteStateDictFile(const std::string& path, const NamedArrays& tensors);

}  // namespace lopt
