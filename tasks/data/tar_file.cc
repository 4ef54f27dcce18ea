#include "lopt/tasks/data/tar_file.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "lopt/base/error.h"

namespace lopt {
namespace {

constexpr size_t kTarBlock = 512;

// A field of a header: text that ends with a zero or with the field.
std::string TarText(std::span<const uint8_t> header, size_t offset, size_t size) {
  const auto field = header.subspan(offset, size);
  return {field.begin(), std::ranges::find(field, 0)};
}

// The number in a field of at most 12 octal digits.
size_t TarNumber(const std::string& path, std::span<const uint8_t> header, size_t offset,
                 size_t size) {
  const std::string text = TarText(header, offset, size);
  const size_t first = text.find_first_not_of(' ');
  const size_t end = text.find_last_not_of(' ') + 1;
  Require(first < end && text.find_first_not_of("01234567", first) >= end,
          "{}: this is no tar archive, or a damaged one", path);
  return std::stoull(text.substr(first, end - first), nullptr, 8);
}

// The sum of a header's bytes, those of the field for it counted as spaces.
size_t TarChecksum(std::span<const uint8_t> header) {
  size_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : header[i];
  return sum;
}

}  // namespace

std::map<std::string, std::span<const uint8_t>> FilesInTar(const std::string& path,
                                                           std::span<const uint8_t> bytes) {
  std::map<std::string, std::span<const uint8_t>> files;
  while (!bytes.empty()) {
    Require(bytes.size() >= kTarBlock, "{}: the tar archive ends too early", path);
    const auto header = bytes.first(kTarBlock);
    if (header[0] == 0) break;  // the mark of the end
    Require(TarNumber(path, header, 148, 8) == TarChecksum(header),
            "{}: this is no tar archive, or a damaged one", path);
    const size_t size = TarNumber(path, header, 124, 12);
    bytes = bytes.subspan(kTarBlock);
    Require(size <= bytes.size(), "{}: the tar archive ends too early", path);
    const uint8_t type = header[156];
    if (type == '0' || type == 0) {
      files[std::filesystem::path(TarText(header, 0, 100)).filename()] = bytes.first(size);
    }
    bytes = bytes.subspan(std::min(bytes.size(), (size + kTarBlock - 1) / kTarBlock * kTarBlock));
  }
  return files;
}

}  // namespace lopt
