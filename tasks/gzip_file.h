#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lopt {

// The bytes of a file, unpacked if it is gzipped. Throws Error that names the file: it cannot be
// read, or its gzip data is damaged or ends too early.
std::vector<uint8_t> ReadGzipFile(const std::string& path);

// The path of the file of this name in a directory, or of the same with .gz; empty if there is
// neither.
std::string FindFileOrGzipped(const std::string& directory, const std::string& name);

}  // namespace lopt
