#pragma once

#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/layout.h"

namespace lopt {

// An array in a file that another program wrote.
struct FoundArray {
  std::string path;   // keys that lead to it, joined by '/', without haiku's "~": "mlp/linear_0/w"
  std::string dtype;  // NumPy's name
  Shape shape;
  Array values;                   // float32; for other dtypes, nothing
  std::string name_in_file = {};  // where it is not the path
};

// All arrays of a file of haiku params, in the order of their paths:
// - NumPy's .npz, the keys of each array joined by '/', '//' or ':';
// - the msgpack of flax.serialization.to_bytes, as google/learned_optimization saves params and
//   states (checkpoints.save_state): dictionaries of arrays, those in chunks included;
// - .safetensors.
// Throws Error that names the file and what is wrong, also for two arrays of one path.
std::vector<FoundArray> ReadHaikuParams(const std::string& path);

// The tensors of a layout among the arrays of a file, as ReadHaikuParams gives them: those whose
// paths are the tensors' names below one common path, `key`. With an empty `key` there must be
// one only where all tensors have the shapes of the layout; "." is the top. A tensor of shape [1]
// may be a scalar. Throws Error that begins with `source` and lists what was wanted and found; also
// if an array is not float32 or an array that is not in the layout lies among the tensors.
NamedArrays FindTensors(const std::vector<FoundArray>& arrays, const Layout& layout,
                        const std::string& key, const std::string& source);

}  // namespace lopt
