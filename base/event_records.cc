#include "base/event_records.h"

#include <boost/crc.hpp>
#include <cstring>

#include "base/error.h"

namespace lopt {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;

// crc32c, rotated right by 15 bits, plus a constant.
uint32_t MaskedCrc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t value = crc.checksum();
  return ((value >> 15) | (value << 17)) + 0xA282EAD8u;
}

template <class Number>
std::string Bytes(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}

template <class Number>
Number FromBytes(std::string_view bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

}  // namespace

std::string EventRecord(std::string_view message) {
  const std::string length = Bytes<uint64_t>(message.size());
  return length + Bytes(MaskedCrc(length)) + std::string(message) + Bytes(MaskedCrc(message));
}

std::vector<std::string_view> EventMessages(std::string_view file, const std::string& source) {
  std::vector<std::string_view> messages;
  for (std::string_view rest = file; rest.size() >= kLengthBytes + kCrcBytes;) {
    const size_t position = file.size() - rest.size();
    const std::string_view length_bytes = rest.substr(0, kLengthBytes);
    Require(FromBytes<uint32_t>(rest.substr(kLengthBytes)) == MaskedCrc(length_bytes),
            "{}: wrong checksum of the length at byte {}", source, position);
    const uint64_t length = FromBytes<uint64_t>(length_bytes);
    rest.remove_prefix(kLengthBytes + kCrcBytes);
    if (rest.size() < kCrcBytes || rest.size() - kCrcBytes < length) {
      break;
    }
    const std::string_view message = rest.substr(0, length);
    Require(FromBytes<uint32_t>(rest.substr(length)) == MaskedCrc(message),
            "{}: wrong checksum of the record at byte {}", source, position);
    messages.push_back(message);
    rest.remove_prefix(length + kCrcBytes);
  }
  return messages;
}

}  // namespace lopt
