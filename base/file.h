#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/file_system.h"

namespace lopt {

// All of this works on the files of the environment (base/environment.h) and throws Error with the
// path and the system's reason.

// A descriptor of the environment's files, closed at the end.
class OpenFile {
 public:
  // Throws Error "<what> <shown, or path>: <reason>" if it cannot be opened, or is a named pipe, a
  // socket or, to read, a device.
  OpenFile(const std::string& path, OpenFor how, std::string_view what,
           std::string_view shown = {});
  // Takes a descriptor of them over.
  explicit OpenFile(int number);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int number() const { return number_; }
  // Writes all of it. Returns 0 or the error number.
  int Write(std::span<const std::byte> bytes);
  // Errors of a network file system may show only here. Returns 0 or the error number.
  int Close();

 private:
  FileSystem* files_;
  int number_;
};

// Whole files; `path` of one that is open is its name in errors.
std::vector<std::byte> ReadFile(const std::string& path);
std::string ReadTextFile(const std::string& path);
std::string ReadTextFile(const OpenFile& file, const std::string& path);

// Whether a write ends when the bytes are on the disk (fsync).
enum class Flush { kToDisk, kNo };

// Writes to a temporary name beside `path`, flushes and renames: `path` is the old file or the new
// one, never a part, if flushed also after a crash of the machine. The temporary file is removed on
// failure. A link stays: all this happens where it leads, and a link that leads nowhere is an
// Error. So is a named pipe, a socket or a device, as of RequireFile, which stays.
void WriteFile(const std::string& path, std::span<const std::byte> bytes,
               Flush flush = Flush::kToDisk);
void WriteTextFile(const std::string& path, std::string_view text, Flush flush = Flush::kToDisk);

// Makes a file that its owner alone may read (mode 600). Others see the name only once the whole
// text is there, on the disk. Returns false, and changes nothing, if there is one of this name.
bool MakePrivateFile(const std::string& path, std::string_view text);

// Flushes a directory's entries, or what others have written to a file, to disk. A directory that
// nobody can flush is left as it is: one whose file system has no such call, or that this process
// may write to but not list.
void SyncDirectory(const std::string& path);
void SyncFile(const std::string& path);

// Leaves the first `bytes` of a file.
void CutFile(const std::string& path, int64_t bytes);

// Throws Error "<what> <path>: it is a named pipe, wanted a file" for a named pipe, a socket or a
// device: who opens one may wait for ever. For files that others than this header open.
void RequireFile(const std::string& path, std::string_view what);

bool Exists(const std::string& path);
bool IsDirectory(const std::string& path);
// none if there is no such file.
std::optional<int64_t> FileSize(const std::string& path);
// The names in a directory, sorted.
std::vector<std::string> ListDirectory(const std::string& path);
// With those above it, where they are not there.
void MakeDirectories(const std::string& path);
void RenameFile(const std::string& from, const std::string& to);
// From the root on. Throws Error where the working directory has been removed.
std::string AbsolutePath(const std::string& path);
// A file, or a directory with all that is in it, if it is there.
void RemoveAll(const std::string& path);

}  // namespace lopt
