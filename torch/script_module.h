#pragma once

#include <torch/script.h>

#include <string>

#include "lopt/base/arrays.h"
#include "lopt/base/script_module.h"

namespace lopt {

// The buffer of a tensor of theta: its name, "/" replaced by "_".
std::string BufferName(std::string name);

// A copy of a float32 array.
torch::Tensor TensorOf(const Array& array);

// The module of a script; `name` is that of its class. Throws torch::jit::ErrorReport if a
// definition does not compile.
torch::jit::Module MakeModule(const std::string& name, const ScriptModule& script);

}  // namespace lopt
