#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lopt {

// What a name stands for; a link for what it leads to.
enum class FileKind { kFile, kDirectory, kPipe, kSocket, kDevice };

// What the system says of a file or directory.
struct FileStatus {
  FileKind kind = FileKind::kFile;
  int64_t bytes = 0;
  int64_t links = 0;   // names that it has
  double changed = 0;  // seconds since 1970, by the clock of the file system
};

// What a descriptor is opened for.
enum class OpenFor {
  kRead,
  kReplace,     // write from the beginning, to a file made or emptied
  kMake,        // write to a file that is made; EEXIST where there is one, or a link
  kAppend,      // read, and write at the end, to a file that is made where there is none
  kDirectory,   // flush or lock a directory
  kMakePrivate  // as kMake; the file's owner alone may open it (mode 600)
};

// Whether it makes a file that was not there.
constexpr bool MakesNew(OpenFor what) {
  return what == OpenFor::kMake || what == OpenFor::kMakePrivate;
}

// Whether it may change a file.
constexpr bool Writes(OpenFor what) {
  return what == OpenFor::kReplace || MakesNew(what) || what == OpenFor::kAppend;
}

// The calls of the system by which runs read and write, each as the system means it. A result is 0
// or more, or minus the system's error number. base/file.h is made of them and says in words what
// went wrong; Environment::files() is the one to be used.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // A descriptor. ENXIO for a named pipe, a socket or, to read, a device, which may be waited for
  // for ever; only what this process has open already (/dev/stdin, or /dev/fd/63 of a shell's
  // <(...)) may be one.
  virtual int Open(const std::string& path, OpenFor what) = 0;
  virtual int Close(int descriptor) = 0;
  // At most so many bytes from that place on (of a pipe: the next), and how many it were.
  virtual int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) = 0;
  // How many were written, which may be fewer than asked.
  virtual int64_t Write(int descriptor, std::span<const std::byte> bytes) = 0;
  // Flushes a file, or the names in a directory, to disk.
  virtual int Flush(int descriptor) = 0;
  // The same for what is needed to read a file's bytes again.
  virtual int FlushData(int descriptor) = 0;
  // Leaves the first `bytes` of a file.
  virtual int Cut(const std::string& path, int64_t bytes) = 0;

  virtual int Look(const std::string& path, FileStatus* status) = 0;
  // Where a link leads: the path of what is there. Any other name is its own place, whether there
  // is something or not. Files without links need none of this.
  virtual int Follow(const std::string& path, std::string* place) {
    *place = path;
    return 0;
  }
  // Whether this process may write to the directory.
  virtual int MayWrite(const std::string& directory) = 0;
  virtual int MakeDirectory(const std::string& path) = 0;
  // The names in a directory, in no order.
  virtual int List(const std::string& directory, std::vector<std::string>* names) = 0;
  virtual int Rename(const std::string& from, const std::string& to) = 0;
  // A second name for a file; fails if `to` exists.
  virtual int Link(const std::string& from, const std::string& to) = 0;
  // A name of a file, or an empty directory.
  virtual int Remove(const std::string& path) = 0;
  // Sets the time of change to now.
  virtual int Touch(const std::string& path) = 0;
  // Keeps others of this machine that lock the same out until it is closed; waits for them.
  virtual int Lock(int descriptor) = 0;
};

// The system's own.
FileSystem& SystemFiles();

}  // namespace lopt
