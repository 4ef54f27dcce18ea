#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"
#include "learner/worker.h"

namespace lopt {

// The states of a run's workers in files: consecutive ones share a file
// "workers-<first>-<last>.safetensors" (5 digits each) with the arrays "<w>/windows" and
// "<w>/estimators/<e>/<array>".

// Workers [first, first + count).
struct WorkerRange {
  int64_t first = 0;
  int64_t count = 0;
};

// A file gets workers until its arrays have so many bytes.
inline constexpr int64_t kWorkersFileBytes = int64_t{64} << 20;

// Gives `use` one file after the other for the workers first, first + 1, ... with these states.
void PackWorkers(
    int64_t first, std::span<const WorkerState> workers,
    const std::function<void(const WorkerRange& range, std::vector<std::byte> bytes)>& use,
    int64_t file_bytes = kWorkersFileBytes);

std::string WorkersFileName(const WorkerRange& range);
// The workers of a file of this name; none if it is not one of workers.
std::optional<WorkerRange> WorkersOfFile(std::string_view name);

// Takes the states of workers out of a file's arrays, in order, those of the other workers left
// out. Throws Error if one is not there.
void UnpackWorkers(ArrayFile file, const WorkerRange& wanted, size_t estimators,
                   const std::function<void(int64_t worker, WorkerState state)>& take);

}  // namespace lopt
