// A tar archive.
#include "lopt/tasks/data/tar_file.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadTar(std::string_view input) {
  FilesInTar("file.tar", {reinterpret_cast<const uint8_t*>(input.data()), input.size()});
}

// A header of ustar for a file of `size` octal digits.
std::string TarHeader(const std::string& size) {
  std::string header(512, '\0');
  header.replace(0, 8, "folder/a");
  header.replace(124, size.size(), size);
  header.replace(148, 8, 8, ' ');
  header[156] = '0';
  size_t sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  std::string octal(6, '0');
  for (size_t i = 6; i-- > 0; sum /= 8) octal[i] = static_cast<char>('0' + sum % 8);
  return header.replace(148, 7, octal + '\0');
}

std::vector<std::string> TarSeeds() {
  const std::string one = TarHeader("00000000003") + "abc" + std::string(509, '\0');
  return {one, one + one + std::string(1024, '\0'), TarHeader("0")};
}

const AddFuzzTarget tar_target({"tasks_tar", ReadTar, TarSeeds});

}  // namespace
}  // namespace lopt
