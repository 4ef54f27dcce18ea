#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/config.h"
#include "lopt/learned_optimizer.h"

namespace lopt {

// A learned optimizer's weights with what is needed to use them.
struct ThetaFile {
  Config learned_optimizer;  // type and options
  Eigen::VectorXf theta;     // [D]
  Config config = {};        // resolved, of the run that trained it; empty if unknown
  int64_t seed = 0;          // of the run that made it
  int64_t meta_steps = 0;    // updates of theta
  // Inner steps that no episode of that run exceeded; 0 if unknown. What the optimizer does in
  // longer trainings it was not trained for.
  int64_t trained_horizon = 0;
  // The split on whose loss this theta was chosen among those of its run; empty: it is the last.
  std::string chosen_on = {};
  std::string version = {};  // of the program that wrote it; empty if unknown
};

// A safetensors file with the tensors theta/<name>, the other members as metadata, and a check that
// a reader can make of itself: golden/params/<tensor>, golden/gradients/<tensor> (first dimension:
// steps) and golden/result/<tensor>, the parameters after these steps from a fresh state. The file
// is complete or absent after a crash.
void WriteThetaFile(const std::string& path, const ThetaFile& file);

// Reads it and repeats the golden steps, where there are some: throws Error if a result differs by
// more than 1e-6 (1 + |value|), the tensors are not those of the optimizer, or the file is of
// another format than WriteThetaFile writes. `learned_optimizer` is for files that do not name one
// (tensors from elsewhere), which are an Error without it; where the file names one and both are
// given, a difference is an Error that names the options and tensors.
ThetaFile ReadThetaFile(const std::string& path,
                        const std::optional<Config>& learned_optimizer = {});

}  // namespace lopt
