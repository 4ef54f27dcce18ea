#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lopt {

// The bytes of a file, unpacked if it is gzipped. Throws Error that names the file: it cannot be
// read, or its gzip data is damaged or ends too early.
std::vector<uint8_t> ReadGzipFile(const std::string& path);

}  // namespace lopt
