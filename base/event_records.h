#pragma once

#include <string>
#include <string_view>

namespace lopt {

// The record format of TensorBoard's event files: the message's length (8 bytes), the masked crc32c
// of those 8 bytes, the message, its masked crc32c; all numbers little-endian.
std::string EventRecord(std::string_view message);

}  // namespace lopt
