#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// Whole files. All throw Error with the path and the system's reason.
std::vector<std::byte> ReadFile(const std::string& path);
std::string ReadTextFile(const std::string& path);

// Whether a write ends when the bytes are on the disk (fsync).
enum class Flush { kToDisk, kNo };

// Writes to a temporary name beside `path`, flushes and renames: `path` is the old file or the new
// one, never a part, if flushed also after a crash of the machine. The temporary file is removed on
// failure.
void WriteFile(const std::string& path, std::span<const std::byte> bytes,
               Flush flush = Flush::kToDisk);
void WriteTextFile(const std::string& path, std::string_view text, Flush flush = Flush::kToDisk);

// Flushes a directory's entries, or what others have written to a file, to disk.
void SyncDirectory(const std::string& path);
void SyncFile(const std::string& path);

// Leaves the first `bytes` of a file.
void CutFile(const std::string& path, int64_t bytes);

}  // namespace lopt
