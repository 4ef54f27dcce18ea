#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/safetensors.h"
#include "lopt/learner/worker.h"

namespace lopt {

// The states of a run's workers in files: consecutive ones share a file
// "workers-<first>-<last>.safetensors" (5 digits each) with the arrays "<w>/windows" and
// "<w>/estimators/<e>/<array>".

// A file gets workers until its arrays have so many bytes.
inline constexpr int64_t kWorkersFileBytes = int64_t{64} << 20;

// Gives `use` one file after the other for the workers first, first + 1, ... with these states.
void PackWorkers(
    int64_t first, std::span<const WorkerState> workers,
    const std::function<void(const WorkerBlock& block, std::vector<std::byte> bytes)>& use,
    int64_t file_bytes = kWorkersFileBytes);

std::string WorkersFileName(const WorkerBlock& block);
// The workers of a file of this name; none if it is not one of workers.
std::optional<WorkerBlock> WorkersOfFile(std::string_view name);

// The states of a block of workers that a file's arrays hold; others' are left out. Throws Error if
// one is not there.
std::vector<WorkerState> UnpackWorkers(ArrayFile file, const WorkerBlock& wanted,
                                       size_t estimators);

}  // namespace lopt
