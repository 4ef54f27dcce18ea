#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// The record format of TensorBoard's event files: the message's length (8 bytes), the masked crc32c
// of those 8 bytes, the message, its masked crc32c; all numbers little-endian.
std::string EventRecord(std::string_view message);

// The messages of a file's records in order. A last record that is not complete is left out. Throws
// Error that names `source` and the byte if a checksum is wrong.
std::vector<std::string_view> EventMessages(std::string_view file, const std::string& source);

}  // namespace lopt
