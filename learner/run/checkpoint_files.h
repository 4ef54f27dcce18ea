#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lopt/base/safetensors.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/run_logs.h"

namespace lopt {

inline constexpr const char* kCheckpointFormat = "lopt checkpoint 2";
inline constexpr const char* kCheckpointManifest = "manifest.json";
inline constexpr const char* kCheckpointLearner = "learner.safetensors";
inline constexpr const char* kCheckpointState = "state.safetensors";
inline constexpr std::string_view kCheckpointPrefix = "step-";
inline constexpr std::string_view kUnfinishedPrefix = "tmp-";

// What manifest.json says.
struct CheckpointManifest {
  static constexpr const char* kFormat = kCheckpointFormat;

  struct File {
    uint64_t bytes = 0;
    std::string crc32 = {};  // 8 hexadecimal digits

    template <class Visitor>
    void VisitMembers(Visitor& visit) {
      visit("bytes", bytes);
      visit("crc32", crc32);
    }
  };

  int64_t outer_step = 0;
  int64_t workers = 0;
  LogState logs = {};
  std::map<std::string, File> files = {};

  void Add(const CheckpointFile& file) {
    files[file.name] = {.bytes = file.bytes, .crc32 = fmt::format("{:08x}", file.crc32)};
  }

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("outer_step", outer_step);
    visit("workers", workers);
    visit("logs", logs);
    visit("files", files);
  }
};

// The manifest of a checkpoint directory. Throws Error if the directory is not that of a complete
// checkpoint or the manifest is damaged.
CheckpointManifest ReadCheckpointManifest(const std::string& directory);

// A file that the manifest vouches for. Throws Error if it is missing, or has another size or
// checksum than the manifest says.
ArrayFile ReadCheckpointFile(const std::string& directory, const CheckpointManifest& manifest,
                             const std::string& name);

// The step of a directory "step-00000010"; none of another name.
std::optional<int64_t> StepOfName(std::string_view name);

// Writes one file into a checkpoint that has begun, flushed to disk.
CheckpointFile WriteCheckpointFile(const std::string& directory, const std::string& name,
                                   std::span<const std::byte> bytes);

}  // namespace lopt
