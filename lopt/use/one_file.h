#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lopt/lopt/theta_file.h"

namespace lopt {

// The one-file optimizer for PyTorch, python/lopt_optimizer.py, which the build embeds.
std::string_view OneFileOptimizer();

// A learned optimizer with its weights as one file in Python: a submission to the self-tuning
// ruleset of MLCommons' AlgoPerf. It needs PyTorch and the package algoperf, has the functions of a
// submission (python/algoperf/submission.py) and trains with the one-file optimizer, which it
// contains. `content`: the bytes of the theta file, which it holds and checks when a workload's
// training begins; `name`: what its errors call that file. Throws Error that lists the types of the
// one-file optimizer if the theta file's is none.
std::string MakeAlgoperfSubmission(const ThetaFile& theta_file, std::span<const std::byte> content,
                                   const std::string& name);

}  // namespace lopt
