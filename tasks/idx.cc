#include "tasks/idx.h"

#include <span>

#include "base/error.h"
#include "base/layout.h"
#include "tasks/gzip_file.h"

namespace lopt {
namespace {

uint32_t BigEndian(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

IdxFile ReadIdx(const std::string& path, int rank) {
  IdxFile idx;
  idx.values = ReadGzipFile(path);
  const std::span<const uint8_t> bytes = idx.values;
  const size_t header = 4 * (1 + static_cast<size_t>(rank));
  Require(bytes.size() >= header,
          "{}: {} bytes are too few for the header of an IDX file with {} dimensions", path,
          bytes.size(), rank);
  const uint32_t magic = BigEndian(bytes);
  const uint32_t wanted = 0x0800u + static_cast<uint32_t>(rank);
  Require(magic == wanted,
          "{}: starts with magic number {:#010x}, wanted {:#010x} (IDX, unsigned "
          "bytes, {} dimensions)",
          path, magic, wanted, rank);
  const uint64_t data = bytes.size() - header;
  uint64_t size = 1;
  bool fits = true;
  for (int i = 0; i < rank; ++i) {
    const uint64_t dimension = BigEndian(bytes.subspan(4 * (1 + static_cast<size_t>(i))));
    idx.shape.push_back(static_cast<int64_t>(dimension));
    size *= dimension;
    if (size > data) {
      fits = false;
      size = data + 1;
    }
  }
  Require(fits && size == data, "{}: the header says {} bytes of data, but {} follow it", path,
          ToString(idx.shape), data);
  idx.values.erase(idx.values.begin(), idx.values.begin() + static_cast<int64_t>(header));
  return idx;
}

}  // namespace lopt
