#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace lopt {

// Meta-trainings of the preset `smoke` for `lopt selftest`: theta after them.

// In this process, on an instruction set.
std::vector<float> TrainSmoke(const std::string& isa);

// The same on two threads, stopped half-way and resumed; its files go to `directory`.
std::vector<float> TrainSmokeWithAStop(const std::string& isa, const std::string& directory);

// A few updates with two workers, in this process.
std::vector<float> TrainTwoWorkers(const std::string& isa);

// The same on two ranks, started by `mpiexec`, a program with options of its own after spaces; its
// files go to `directory`. Throws Error with what the job said if it fails or takes more than two
// minutes, and Error once `stop` is set, which may be nullptr. The job has ended then.
std::vector<float> TrainOnTwoRanks(const std::string& isa, const std::string& mpiexec,
                                   const std::string& directory, const std::atomic<bool>* stop);

}  // namespace lopt
