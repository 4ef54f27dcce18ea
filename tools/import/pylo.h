#pragma once

#include <string>
#include <vector>

#include "lopt/tools/import/haiku_params.h"

namespace lopt {

// Whether the arrays are those of a network of PyLO (MetaMLP of AdafacLO and MuLO), torch's names
// "network.input.weight", "network.linear_<l>.weight", "network.output.weight" and biases.
bool IsPylo(const std::vector<FoundArray>& arrays);

// Such arrays under the names and in the shapes of AdafacMLPLOpt: weights are transposed, other
// arrays stay. PyLO has the offsets of the decays among its optimizer's arguments, not in the file:
// `decays` is {"momentum_decays": [...], "rms_decays": [...], "adafactor_decays": [...]}, or empty
// where the file holds arrays of these names. Throws Error that begins with `source`.
std::vector<FoundArray> FromPylo(std::vector<FoundArray> arrays, const std::string& decays,
                                 const std::string& source);

}  // namespace lopt
