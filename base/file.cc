#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/error.h"

namespace lopt {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  bool valid() const { return number_ >= 0; }
  // Errors of a network file system may show only here. 0 if it went well.
  int Close() {
    const int number = number_;
    number_ = -1;
    return ::close(number);
  }

 private:
  int number_;
};

// Reads the whole file into `content`, a string or vector of bytes.
template <class Content>
void ReadInto(const std::string& path, Content* content) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Require(file.valid(), "cannot read {}: {}", path, SystemReason(errno));
  struct stat status = {};
  const bool known = ::fstat(file.number(), &status) == 0;
  Require(known, "cannot read {}: {}", path, SystemReason(errno));
  // One byte more than the size, so that the end is seen without growing.
  content->resize(static_cast<size_t>(status.st_size) + 1);
  size_t used = 0;
  while (true) {
    if (used == content->size()) {
      content->resize(2 * used);
    }
    const ssize_t got = ::read(file.number(), content->data() + used, content->size() - used);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    Require(got >= 0, "cannot read {}: {}", path, SystemReason(errno));
    if (got == 0) {
      break;
    }
    used += static_cast<size_t>(got);
  }
  content->resize(used);
}

// Returns 0 or the error number.
int WriteAll(Descriptor& file, std::span<const std::byte> bytes, Flush flush) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return errno;
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  if ((flush == Flush::kToDisk && ::fsync(file.number()) != 0) || file.Close() != 0) {
    return errno;
  }
  return 0;
}

// A name beside `path` that no other writer of this machine uses at the same time.
std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter = 0;
  return fmt::format("{}.tmp.{}.{}", path, ::getpid(), counter++);
}

}  // namespace

std::vector<std::byte> ReadFile(const std::string& path) {
  std::vector<std::byte> bytes;
  ReadInto(path, &bytes);
  return bytes;
}

std::string ReadTextFile(const std::string& path) {
  std::string text;
  ReadInto(path, &text);
  return text;
}

void WriteFile(const std::string& path, std::span<const std::byte> bytes, Flush flush) {
  const std::string temporary = TemporaryName(path);
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  Require(file.valid(), "cannot write {}: {}", path, SystemReason(errno));
  int error = WriteAll(file, bytes, flush);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
    Fail("cannot write {}: {}", path, SystemReason(error));
  }
  if (flush == Flush::kToDisk) {
    SyncDirectory(std::filesystem::absolute(path).parent_path());
  }
}

void WriteTextFile(const std::string& path, std::string_view text, Flush flush) {
  WriteFile(path, std::as_bytes(std::span(text)), flush);
}

void SyncDirectory(const std::string& path) {
  const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  Require(directory.valid(), "cannot open the directory {}: {}", path, SystemReason(errno));
  const bool flushed = ::fsync(directory.number()) == 0;
  Require(flushed, "cannot flush the directory {}: {}", path, SystemReason(errno));
}

void SyncFile(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  Require(file.valid(), "cannot open {}: {}", path, SystemReason(errno));
  const bool flushed = ::fsync(file.number()) == 0;
  Require(flushed, "cannot flush {}: {}", path, SystemReason(errno));
}

void CutFile(const std::string& path, int64_t bytes) {
  const bool cut = ::truncate(path.c_str(), bytes) == 0;
  Require(cut, "cannot cut {}: {}", path, SystemReason(errno));
}

}  // namespace lopt
