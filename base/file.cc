#include "lopt/base/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/platform.h"

namespace lopt {
namespace {

namespace fs = std::filesystem;

// Throws Error with the message and the system's words, unless `error` is 0.
template <class... Args>
void RequireDone(int error, fmt::format_string<Args...> format, Args&&... args) {
  if (error != 0) [[unlikely]] {
    Fail("{}: {}", fmt::format(format, std::forward<Args>(args)...), SystemReason(error));
  }
}

FileSystem& Files() { return Environment::Current().files(); }

// What the system says of a file; none if there is no such file.
std::optional<FileStatus> StatusOf(const std::string& path) {
  FileStatus status;
  const int error = -Files().Look(path, &status);
  if (error == ENOENT || error == ENOTDIR) {
    return std::nullopt;
  }
  RequireDone(error, "cannot look at {}", path);
  return status;
}

// What a name stands for that is neither a file nor a directory, as a noun; empty for those.
std::string_view SpecialKind(FileKind kind) {
  switch (kind) {
    case FileKind::kPipe:
      return "a named pipe";
    case FileKind::kSocket:
      return "a socket";
    case FileKind::kDevice:
      return "a device";
    default:
      return "";
  }
}

// Reads the whole file into `content`, a string or vector of bytes; `expected`: its size, about.
template <class Content>
void ReadInto(const OpenFile& file, const std::string& path, int64_t expected, Content* content) {
  // One byte more than the size, so that the end is seen without growing.
  content->resize(static_cast<size_t>(expected) + 1);
  size_t used = 0;
  while (true) {
    if (used == content->size()) {
      content->resize(2 * used);
    }
    const int64_t got =
        Files().Read(file.number(), std::as_writable_bytes(std::span(*content)).subspan(used),
                     static_cast<int64_t>(used));
    RequireDone(got < 0 ? static_cast<int>(-got) : 0, "cannot read {}", path);
    if (got == 0) {
      break;
    }
    used += static_cast<size_t>(got);
  }
  content->resize(used);
}

// A name beside `path` that no other writer uses and that nobody can guess, to put a link there.
std::string TemporaryName(const std::string& path) {
  Environment& environment = Environment::Current();
  return fmt::format("{}.tmp.{}.{}", path, environment.ProcessId(), environment.UniqueNumber());
}

// Writes a file under a temporary name beside `place`. Once all of it is there it gets that name: a
// private file as a new one, others in place of what has it. The temporary name is gone in the end.
// Returns 0 or the error number. `what` and `shown`: as OpenFile has them.
int WriteWhole(const std::string& place, OpenFor how, std::span<const std::byte> bytes, Flush flush,
               std::string_view what, std::string_view shown) {
  const bool is_private = how == OpenFor::kMakePrivate;
  const std::string temporary = TemporaryName(place);
  OpenFile file(temporary, how, what, shown);
  int error = file.Write(bytes);
  if (error == 0 && flush == Flush::kToDisk) {
    error = -Files().Flush(file.number());
  }
  if (error == 0) {
    error = file.Close();
  }
  if (error == 0) {
    error = is_private ? -Files().Link(temporary, place) : -Files().Rename(temporary, place);
  }
  if (error != 0 || is_private) {
    Files().Remove(temporary);
  }
  return error;
}

// Flushes the name that a file has got.
void SyncNameOf(const std::string& path) {
  SyncDirectory(fs::path(AbsolutePath(path)).parent_path());
}

}  // namespace

OpenFile::OpenFile(const std::string& path, OpenFor how, std::string_view what,
                   std::string_view shown)
    : files_(&Files()), number_(files_->Open(path, how)) {
  if (number_ == -ENXIO) RequireFile(path, what);
  RequireDone(number_ < 0 ? -number_ : 0, "{} {}", what, shown.empty() ? path : shown);
}

OpenFile::OpenFile(int number) : files_(&Files()), number_(number) {}

OpenFile::~OpenFile() {
  if (number_ >= 0) {
    files_->Close(number_);
  }
}

int OpenFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t written = files_->Write(number_, bytes);
    if (written < 0) {
      return static_cast<int>(-written);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

int OpenFile::Close() { return -files_->Close(std::exchange(number_, -1)); }

std::vector<std::byte> ReadFile(const std::string& path) {
  const OpenFile file(path, OpenFor::kRead, "cannot read");
  std::vector<std::byte> bytes;
  ReadInto(file, path, FileSize(path).value_or(0), &bytes);
  return bytes;
}

std::string ReadTextFile(const std::string& path) {
  const OpenFile file(path, OpenFor::kRead, "cannot read");
  std::string text;
  ReadInto(file, path, FileSize(path).value_or(0), &text);
  return text;
}

std::string ReadTextFile(const OpenFile& file, const std::string& path) {
  constexpr int64_t kExpectedBytes = 4095;
  std::string text;
  ReadInto(file, path, kExpectedBytes, &text);
  return text;
}

void WriteFile(const std::string& path, std::span<const std::byte> bytes, Flush flush) {
  RequireFile(path, "cannot write");  // renaming would replace a device or a named pipe
  // It would replace the file to which a shell sends the output.
  Require(!NamesDescriptor(path),
          "cannot write {}: it stands for a file that this process has open, wanted the name of a "
          "file",
          path);
  std::string place;
  const int lost = -Files().Follow(path, &place);
  RequireDone(lost, "cannot write {}: it is a link, and what it leads to is not to be found", path);
  const int error = WriteWhole(place, OpenFor::kMake, bytes, flush, "cannot write", path);
  RequireDone(error, "cannot write {}", path);
  if (flush == Flush::kToDisk) {
    SyncNameOf(place);
  }
}

void WriteTextFile(const std::string& path, std::string_view text, Flush flush) {
  WriteFile(path, std::as_bytes(std::span(text)), flush);
}

bool MakePrivateFile(const std::string& path, std::string_view text) {
  const int error = WriteWhole(path, OpenFor::kMakePrivate, std::as_bytes(std::span(text)),
                               Flush::kToDisk, "cannot make", path);
  RequireDone(error == EEXIST ? 0 : error, "cannot make {}", path);
  if (error == 0) SyncNameOf(path);
  return error == 0;
}

void SyncDirectory(const std::string& path) {
  const int opened = Files().Open(path, OpenFor::kDirectory);
  if (opened == -EACCES) return;  // one may write to it, but not list it
  if (opened == -ENXIO) RequireFile(path, "cannot open the directory");
  RequireDone(opened < 0 ? -opened : 0, "cannot open the directory {}", path);
  const OpenFile directory(opened);
  const int error = -Files().Flush(directory.number());
  const bool cannot_be = error == EINVAL || error == EOPNOTSUPP;
  RequireDone(cannot_be ? 0 : error, "cannot flush the directory {}", path);
}

void SyncFile(const std::string& path) {
  const OpenFile file(path, OpenFor::kRead, "cannot open");
  const int error = -Files().Flush(file.number());
  RequireDone(error, "cannot flush {}", path);
}

void CutFile(const std::string& path, int64_t bytes) {
  const int error = -Files().Cut(path, bytes);
  RequireDone(error, "cannot cut {}", path);
}

void RequireFile(const std::string& path, std::string_view what) {
  const std::optional<FileStatus> status = StatusOf(path);
  const std::string_view kind = status ? SpecialKind(status->kind) : "";
  Require(kind.empty(), "{} {}: it is {}, wanted a file", what, path, kind);
}

bool Exists(const std::string& path) { return StatusOf(path).has_value(); }

bool IsDirectory(const std::string& path) {
  const std::optional<FileStatus> status = StatusOf(path);
  return status && status->kind == FileKind::kDirectory;
}

std::optional<int64_t> FileSize(const std::string& path) {
  const std::optional<FileStatus> status = StatusOf(path);
  return status && status->kind == FileKind::kFile ? std::optional(status->bytes) : std::nullopt;
}

std::vector<std::string> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  const int error = -Files().List(path, &names);
  RequireDone(error, "{}: cannot be listed", path);
  std::ranges::sort(names);
  return names;
}

void MakeDirectories(const std::string& path) {
  int error = -Files().MakeDirectory(path);
  if (error == ENOENT && fs::path(path).has_parent_path()) {
    MakeDirectories(fs::path(path).parent_path());
    error = -Files().MakeDirectory(path);
  }
  if (error == EEXIST && !IsDirectory(path)) {
    Fail("cannot create the directory {}: {}", path,
         Exists(path) ? "a file has this name" : "it is a link to a place that is not there");
  }
  RequireDone(error == EEXIST ? 0 : error, "cannot create the directory {}", path);
}

void RenameFile(const std::string& from, const std::string& to) {
  const int error = -Files().Rename(from, to);
  RequireDone(error, "cannot rename {} to {}", from, to);
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  std::string absolute = fs::absolute(path, error);
  RequireDone(error.value(), "cannot say where {} is, from the working directory", path);
  return absolute;
}

void RemoveAll(const std::string& path) {
  int error = -Files().Remove(path);
  if (error == ENOTEMPTY || error == EEXIST) {
    for (const std::string& name : ListDirectory(path)) {
      RemoveAll(path + "/" + name);
    }
    error = -Files().Remove(path);
  }
  RequireDone(error == ENOENT ? 0 : error, "cannot remove {}", path);
}

}  // namespace lopt
