#include "lopt/tasks/data/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "lopt/base/error.h"
#include "lopt/base/file.h"

namespace lopt {
namespace {

struct CloseGz {
  void operator()(gzFile file) const { gzclose(file); }
};

}  // namespace

std::vector<uint8_t> ReadGzipHead(const std::string& path, size_t count) {
  RequireFile(path, "cannot read");
  const std::unique_ptr<gzFile_s, CloseGz> file(gzopen(path.c_str(), "rb"));
  Require(file != nullptr, "{}: cannot be read: {}", path, std::strerror(errno));
  constexpr size_t kPiece = 1 << 20;
  gzbuffer(file.get(), kPiece / 4);
  std::vector<uint8_t> bytes;
  size_t used = 0;
  while (used < count) {
    bytes.resize(std::min(count, used + kPiece + used / 2));
    const int got = gzread(file.get(), bytes.data() + used,
                           static_cast<unsigned>(std::min(bytes.size() - used, size_t{1} << 30)));
    int status = Z_OK;
    const char* reason = gzerror(file.get(), &status);
    Require(status != Z_BUF_ERROR, "{}: the gzip data ends too early: the file is truncated", path);
    Require(status != Z_ERRNO, "{}: cannot be read: {}", path, std::strerror(errno));
    Require(got >= 0, "{}: the gzip data is damaged: {}", path, reason);
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  bytes.resize(used);
  return bytes;
}

std::vector<uint8_t> ReadGzipFile(const std::string& path, size_t largest) {
  std::vector<uint8_t> bytes = ReadGzipHead(path, largest + 1);
  Require(bytes.size() <= largest, "{}: more than {} bytes, the most that a file of data may have",
          path, largest);
  return bytes;
}

std::string FindFileOrGzipped(const std::string& directory, const std::string& name) {
  const std::string path = (std::filesystem::path(directory) / name).string();
  for (const std::string& candidate : {path, path + ".gz"}) {
    if (Exists(candidate)) return candidate;
  }
  return {};
}

}  // namespace lopt
