// A file that may be gzipped.
#include <zlib.h>

#include "lopt/tasks/data/gzip_file.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

constexpr size_t kLargest = 1 << 20;

void ReadGz(std::string_view input) {
  ReadGzipFile(PutFile(FreshDirectory(), "file.gz", input), kLargest);
}

std::string Gzipped(const std::string& text) {
  z_stream stream = {};
  constexpr int kGzip = 16 + MAX_WBITS;
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::vector<std::string> GzSeeds() {
  const std::string packed = Gzipped("some text, some more text, some more text");
  return {"not gzipped", packed, packed + packed, Gzipped(std::string(kLargest - 1, 'x')),
          Gzipped("")};
}

const AddFuzzTarget gz_target({"tasks_gz", ReadGz, GzSeeds});

}  // namespace
}  // namespace lopt
