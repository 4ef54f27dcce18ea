#include "lopt/learner/run/run_logs.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/base/tensorboard.h"

namespace lopt {
namespace {

constexpr const char* kLineFiles[] = {"metrics.jsonl", "throughput.jsonl"};

// Event files may end in the middle of a record, lines that are appended to half a line may not be
// read.
void CutToWholeLine(const std::string& path) {
  const std::string text = ReadTextFile(path);
  CutFile(path, static_cast<int64_t>(text.rfind('\n') + 1));
}

}  // namespace

std::map<std::string, int64_t> LogBytes(const std::string& directory) {
  std::vector<std::string> names = EventFiles(directory);
  names.insert(names.end(), std::begin(kLineFiles), std::end(kLineFiles));
  std::map<std::string, int64_t> bytes;
  for (const std::string& name : names) {
    if (const std::optional<int64_t> size = FileSize(directory + "/" + name)) {
      bytes[name] = *size;
    }
  }
  return bytes;
}

void SyncLogs(const std::string& directory, const LogState& state) {
  for (const auto& [name, bytes] : state.bytes) {
    SyncFile(directory + "/" + name);
  }
}

void CutLogs(const std::string& directory, const LogState& state) {
  const std::map<std::string, int64_t> present = LogBytes(directory);
  int64_t cut = 0;
  for (const auto& [name, bytes] : present) {
    const std::string path = directory + "/" + name;
    const auto kept = state.bytes.find(name);
    if (kept == state.bytes.end()) {
      RemoveAll(path);
      cut += bytes;
    } else if (bytes > kept->second) {
      CutFile(path, kept->second);
      cut += bytes - kept->second;
    }
  }
  if (cut > 0) {
    spdlog::info("{}: {} bytes are cut off the logs, of what came after the checkpoint", directory,
                 cut);
  }
  for (const auto& [name, bytes] : state.bytes) {
    const auto left = present.find(name);
    const int64_t there = left == present.end() ? 0 : left->second;
    if (there < bytes) {
      spdlog::warn("{}/{} has lost records: it has {} bytes, at the checkpoint it had {}",
                   directory, name, there, bytes);
      if (there > 0 && name.ends_with(".jsonl")) {
        CutToWholeLine(directory + "/" + name);
      }
    }
  }
}

}  // namespace lopt
