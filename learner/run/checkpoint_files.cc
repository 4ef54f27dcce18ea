#include "lopt/learner/run/checkpoint_files.h"

#include <zlib.h>

#include <charconv>
#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/progress.h"
#include "lopt/base/record.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

std::string CrcText(uint32_t crc32) { return fmt::format("{:08x}", crc32); }

uint32_t Crc32(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

CheckpointManifest ReadCheckpointManifest(const std::string& directory) {
  const std::string name = fs::path(directory).filename();
  Require(IsDirectory(directory), "checkpoint {}: there is no such directory", directory);
  Require(!name.starts_with(kUnfinishedPrefix),
          "checkpoint {}: this is what an unfinished write left behind, not a checkpoint",
          directory);
  const std::string path = directory + "/" + kCheckpointManifest;
  Require(Exists(path), "checkpoint {}: {} is missing, so the checkpoint is not complete",
          directory, kCheckpointManifest);
  auto manifest = ParseRecord<CheckpointManifest>(
      ReadTextFile(path), fmt::format("checkpoint {}: {}", directory, kCheckpointManifest));
  for (const auto& [log, bytes] : manifest.logs.bytes) {
    Require(bytes >= 0, "checkpoint {}: {}: the log {} has a length of at least 0, got {}",
            directory, kCheckpointManifest, log, bytes);
  }
  return manifest;
}

ArrayFile ReadCheckpointFile(const std::string& directory, const CheckpointManifest& manifest,
                             const std::string& name) {
  const auto entry = manifest.files.find(name);
  Require(entry != manifest.files.end(), "checkpoint {}: {} does not list {}", directory,
          kCheckpointManifest, name);
  const CheckpointManifest::File& file = entry->second;
  const std::string path = directory + "/" + name;
  Require(Exists(path), "checkpoint {}: {} is missing", directory, name);
  std::vector<std::byte> bytes = ReadFile(path);
  Require(bytes.size() == file.bytes, "checkpoint {}: {} has {} bytes, {} says {}", directory, name,
          bytes.size(), kCheckpointManifest, file.bytes);
  const std::string crc = CrcText(Crc32(bytes));
  Require(crc == file.crc32, "checkpoint {}: {} has CRC-32 {}, {} says {}: the file is damaged",
          directory, name, crc, kCheckpointManifest, file.crc32);
  NoteProgress();
  return ParseArrayFile(bytes, path);
}

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kCheckpointPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kCheckpointPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(step)
                                                                  : std::nullopt;
}

CheckpointFile WriteCheckpointFile(const std::string& directory, const std::string& name,
                                   std::span<const std::byte> bytes) {
  // Its name is flushed with those of the others, when the directory is complete.
  const std::string path = directory + "/" + name;
  WriteFile(path, bytes, Flush::kNo);
  SyncFile(path);
  NoteProgress();
  return {.name = name, .bytes = bytes.size(), .crc32 = Crc32(bytes)};
}

}  // namespace lopt
