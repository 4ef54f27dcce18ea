#pragma once

#include <string>
#include <vector>

#include "lopt/lopt/theta_file.h"

namespace lopt {

// A learned optimizer with its theta as one file in C99, for programs that have no C++ and no
// memory to spare: it needs <math.h>, takes its state and scratch from the caller, and holds
// theta as constants. It has lopt_init, lopt_step and macros for the sizes of state and scratch;
// its first lines say how they are used. Steps are the native ones up to rounding. Denormal numbers
// in the state are zeros. A source file that includes two different ones does not compile.
//
// The text is that of lopt/use/c/, which the build embeds. Options and theta are written between
// its parts.

// The learned optimizers that have such a file. LearnedScheduler and OrthogonalSteps have it over
// another of these, each once.
std::vector<std::string> TypesWithCSource();

// `name`: what the first line calls the theta file. Throws Error that lists the types that have
// such a file if the theta file's, or one whose steps it changes, has none, for an MLPLOpt with
// precision bf16, and where a type changes its own steps.
std::string MakeCSource(const ThetaFile& theta_file, const std::string& name);

}  // namespace lopt
