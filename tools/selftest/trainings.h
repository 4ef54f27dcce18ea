#pragma once

#include <string>
#include <vector>

namespace lopt {

// Meta-trainings of the preset `smoke` for `lopt selftest`: theta after them.

// In this process, on an instruction set.
std::vector<float> TrainSmoke(const std::string& isa, int workers = 1);

// The same on two threads, stopped half-way and resumed; its files go to `directory`.
std::vector<float> TrainSmokeWithAStop(const std::string& isa, const std::string& directory);

// The same with two workers on two ranks, started by `mpiexec`, a program with options of its own
// after spaces. Throws Error with what the job said if it fails or takes more than two minutes.
std::vector<float> TrainSmokeOnTwoRanks(const std::string& isa, const std::string& mpiexec,
                                        const std::string& directory);

}  // namespace lopt
