#include "lopt/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "lopt/base/platform.h"

namespace lopt {
namespace {

template <class Number>
Number OrError(Number result) {
  return result < 0 ? -errno : result;
}

// Once more where a signal came in between.
template <class Call>
auto Uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return OrError(result);
  }
}

int FlagsFor(OpenFor what) {
  switch (what) {
    case OpenFor::kRead:
      return O_RDONLY;
    case OpenFor::kReplace:
      return O_WRONLY | O_CREAT | O_TRUNC;
    case OpenFor::kMake:
    case OpenFor::kMakePrivate:
      return O_WRONLY | O_CREAT | O_EXCL;
    case OpenFor::kAppend:
      return O_RDWR | O_CREAT | O_APPEND;
    case OpenFor::kDirectory:
      return O_RDONLY | O_DIRECTORY;
  }
  return O_RDONLY;
}

FileKind KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return FileKind::kDirectory;
  if (S_ISFIFO(mode)) return FileKind::kPipe;
  if (S_ISSOCK(mode)) return FileKind::kSocket;
  return S_ISREG(mode) ? FileKind::kFile : FileKind::kDevice;
}

// Whether who opens it for this may wait for ever, for another process or for an end.
bool MayWait(FileKind kind, OpenFor what) {
  return kind == FileKind::kPipe || kind == FileKind::kSocket ||
         (kind == FileKind::kDevice && !Writes(what));
}

class System final : public FileSystem {
 public:
  int Open(const std::string& path, OpenFor what) override {
    FileStatus status;
    if (!NamesDescriptor(path) && Look(path, &status) == 0 && MayWait(status.kind, what))
      return -ENXIO;
    const mode_t mode = what == OpenFor::kMakePrivate ? 0600 : 0666;
    return Uninterrupted([&] { return ::open(path.c_str(), FlagsFor(what) | O_CLOEXEC, mode); });
  }
  int Close(int descriptor) override { return OrError(::close(descriptor)); }
  int64_t Read(int descriptor, std::span<std::byte> bytes, int64_t offset) override {
    return Uninterrupted([&] {
      const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), offset);
      return got < 0 && errno == ESPIPE ? ::read(descriptor, bytes.data(), bytes.size()) : got;
    });
  }
  int64_t Write(int descriptor, std::span<const std::byte> bytes) override {
    return Uninterrupted([&] { return int64_t{::write(descriptor, bytes.data(), bytes.size())}; });
  }
  int Flush(int descriptor) override { return OrError(::fsync(descriptor)); }
  int FlushData(int descriptor) override { return OrError(::fdatasync(descriptor)); }
  int Cut(const std::string& path, int64_t bytes) override {
    return OrError(::truncate(path.c_str(), bytes));
  }

  int Look(const std::string& path, FileStatus* status) override {
    struct stat system = {};
    if (::stat(path.c_str(), &system) != 0) return -errno;
    const timespec changed = ModifiedAt(system);
    *status = {.kind = KindOf(system.st_mode),
               .bytes = system.st_size,
               .links = static_cast<int64_t>(system.st_nlink),
               .changed = static_cast<double>(changed.tv_sec) +
                          1e-9 * static_cast<double>(changed.tv_nsec)};
    return 0;
  }
  int Follow(const std::string& path, std::string* place) override {
    struct stat system = {};
    if (::lstat(path.c_str(), &system) != 0 || !S_ISLNK(system.st_mode)) {
      *place = path;
      return 0;
    }
    const std::unique_ptr<char, decltype(&std::free)> found(::realpath(path.c_str(), nullptr),
                                                            &std::free);
    if (!found) return -errno;
    *place = found.get();
    return 0;
  }
  int MayWrite(const std::string& directory) override {
    return OrError(::access(directory.c_str(), W_OK | X_OK));
  }
  int MakeDirectory(const std::string& path) override {
    return OrError(::mkdir(path.c_str(), 0777));
  }
  int List(const std::string& directory, std::vector<std::string>* names) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> opened(::opendir(directory.c_str()), &::closedir);
    if (!opened) return -errno;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(opened.get());
      if (entry == nullptr) return -errno;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names->emplace_back(name);
    }
  }
  int Rename(const std::string& from, const std::string& to) override {
    return OrError(std::rename(from.c_str(), to.c_str()));
  }
  int Link(const std::string& from, const std::string& to) override {
    return OrError(::link(from.c_str(), to.c_str()));
  }
  int Remove(const std::string& path) override { return OrError(std::remove(path.c_str())); }
  int Touch(const std::string& path) override {
    return OrError(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
  }
  int Lock(int descriptor) override {
    return Uninterrupted([&] { return ::flock(descriptor, LOCK_EX); });
  }
};

}  // namespace

FileSystem& SystemFiles() {
  static System system;
  return system;
}

}  // namespace lopt
