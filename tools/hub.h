#pragma once

#include <string>

#include "lopt/lopt/theta_file.h"

namespace lopt {

// What a directory for a model hub is made of, besides the theta file.
struct HubOptions {
  // Of the weights, as hubs name it ("mit"). Empty: not given; weights that come with lopt have
  // lopt's, and for others there is no default.
  std::string licence = {};
  std::string evaluation = {};  // output directory of `lopt eval`; empty: none was given
};

// Writes a directory that can be uploaded to a model hub as it is: theta.safetensors, the bytes of
// `theta_path`; README.md, a model card of what `theta_file`, which was read from there, and the
// evaluation tell; where the type has a PyTorch form, lopt_optimizer.py; LICENSE-lopt, the licence
// of that file and of weights that come with lopt; evaluation.md, all tables of the evaluation.
// Throws UsageError if the licence is missing or names none; Error if the file does not hold the
// config of the run that trained it; if the evaluation is not finished or has not judged these
// weights as they are; if the directory is neither new nor empty. What was written before an Error
// is removed.
void WriteHubDirectory(const std::string& theta_path, const ThetaFile& theta_file,
                       const HubOptions& options, const std::string& directory);

}  // namespace lopt
