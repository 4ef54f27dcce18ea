#pragma once

#include <boost/program_options/variables_map.hpp>

namespace lopt {

// `lopt export --model RUN --format torchscript|state_dict|safetensors --out FILE`: the model of a
// training for PyTorch (tasks/image/torch_model.h). Returns the exit code; throws Error and
// UsageError.
int ExportModel(const boost::program_options::variables_map& values);

}  // namespace lopt
