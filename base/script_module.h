#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/config.h"

namespace lopt {

// A TorchScript module as text and values, which the torch module compiles.
struct ScriptModule {
  std::string functions = {};  // definitions of what its methods call
  std::string methods = {};    // definitions of its methods
  Config constants = {};   // what the definitions name beside these: numbers and lists of numbers
  Config attributes = {};  // of self: numbers, texts, true or false, lists of numbers
  // float32 tensors by name. Each is a buffer of the module, and the method theta() -> Dict[str,
  // Tensor] that it gets has them all by their names.
  std::vector<std::pair<std::string, Array>> theta = {};
  // float32 tensors of self by name, those that training changes and others.
  std::vector<std::pair<std::string, Array>> parameters = {};
  std::vector<std::pair<std::string, Array>> buffers = {};
  std::map<std::string, ScriptModule> modules =
      {};  // of self; functions and constants are those above
};

}  // namespace lopt
