#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// Whole files. All throw Error with the path and the system's reason.
std::vector<std::byte> ReadFile(const std::string& path);
std::string ReadTextFile(const std::string& path);

// Writes to a temporary name beside `path`, flushes to disk (fsync) and renames: after a crash or a
// full disk `path` is the old file or the new one, never a part. The temporary file is removed on
// failure.
void WriteFile(const std::string& path, std::span<const std::byte> bytes);
void WriteTextFile(const std::string& path, std::string_view text);

// Flushes a directory's entries to disk.
void SyncDirectory(const std::string& path);

}  // namespace lopt
