#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lopt {

// The most bytes, unpacked, that a file of data may have.
inline constexpr size_t kLargestDataFile = size_t{1} << 32;

// The bytes of a file, unpacked if it is gzipped. Throws Error that names the file: it cannot be
// read, its gzip data is damaged or ends too early, or it has more than `largest` bytes.
std::vector<uint8_t> ReadGzipFile(const std::string& path, size_t largest = kLargestDataFile);

// The first `count` bytes of a file, unpacked if it is gzipped, or all of them if there are fewer:
// no more is unpacked. Throws Error as ReadGzipFile does.
std::vector<uint8_t> ReadGzipHead(const std::string& path, size_t count);

// The path of the file of this name in a directory, or of the same with .gz; empty if there is
// neither.
std::string FindFileOrGzipped(const std::string& directory, const std::string& name);

}  // namespace lopt
