#include "lopt/learner/run/worker_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace lopt {
namespace {

constexpr std::string_view kWorkersPrefix = "workers-";
constexpr std::string_view kWorkersSuffix = ".safetensors";

int64_t BytesOf(const WorkerState& worker) {
  int64_t bytes = 0;
  for (const NamedArrays& arrays : worker.estimators) {
    for (const auto& [name, array] : arrays) {
      bytes += static_cast<int64_t>(array.buffer().size());
    }
  }
  return bytes;
}

std::vector<std::byte> Serialize(int64_t first, std::span<const WorkerState> workers) {
  ArrayFile file;
  for (const WorkerState& worker : workers) {
    const std::string prefix = fmt::format("{}/", first++);
    file.arrays.Set(prefix + "windows",
                    Array::Of<int64_t>({}, std::span<const int64_t>(&worker.windows, 1)));
    for (size_t e = 0; e < worker.estimators.size(); ++e) {
      for (const auto& [name, array] : worker.estimators[e]) {
        file.arrays.Set(fmt::format("{}estimators/{}/{}", prefix, e, name), array.To(HostMemory()));
      }
    }
  }
  return SerializeArrayFile(file);
}

}  // namespace

void PackWorkers(int64_t first, std::span<const WorkerState> workers,
                 const std::function<void(const WorkerBlock&, std::vector<std::byte>)>& use,
                 int64_t file_bytes) {
  while (!workers.empty()) {
    size_t count = 0;
    for (int64_t bytes = 0; count < workers.size() && bytes < file_bytes; ++count) {
      bytes += BytesOf(workers[count]);
    }
    const WorkerBlock block{.first = first, .count = static_cast<int64_t>(count)};
    use(block, Serialize(first, workers.first(count)));
    first += block.count;
    workers = workers.subspan(count);
  }
}

std::string WorkersFileName(const WorkerBlock& block) {
  return fmt::format("{}{:05}-{:05}{}", kWorkersPrefix, block.first, block.first + block.count - 1,
                     kWorkersSuffix);
}

std::optional<WorkerBlock> WorkersOfFile(std::string_view name) {
  if (!name.starts_with(kWorkersPrefix) || !name.ends_with(kWorkersSuffix)) {
    return std::nullopt;
  }
  name.remove_prefix(kWorkersPrefix.size());
  name.remove_suffix(kWorkersSuffix.size());
  const char* const end = name.data() + name.size();
  int64_t first = 0;
  int64_t last = 0;
  const auto [middle, first_error] = std::from_chars(name.data(), end, first);
  if (first_error != std::errc() || middle == end || *middle != '-') {
    return std::nullopt;
  }
  const auto [rest, last_error] = std::from_chars(middle + 1, end, last);
  if (last_error != std::errc() || rest != end || first < 0 || last < first ||
      last == std::numeric_limits<int64_t>::max()) {
    return std::nullopt;
  }
  return WorkerBlock{.first = first, .count = last - first + 1};
}

std::vector<WorkerState> UnpackWorkers(ArrayFile file, const WorkerBlock& wanted,
                                       size_t estimators) {
  std::vector<WorkerState> workers;
  for (int64_t w = wanted.first; w < wanted.first + wanted.count; ++w) {
    const std::string prefix = fmt::format("{}/", w);
    WorkerState& worker = workers.emplace_back();
    worker.windows = file.arrays.At(prefix + "windows", DType::kInt64, {}).As<int64_t>()[0];
    for (size_t e = 0; e < estimators; ++e) {
      worker.estimators.push_back(file.arrays.Take(fmt::format("{}estimators/{}/", prefix, e)));
    }
  }
  return workers;
}

}  // namespace lopt
