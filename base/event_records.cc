#include "lopt/base/event_records.h"

#include <boost/crc.hpp>
#include <cstdint>

namespace lopt {
namespace {

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

}  // namespace

std::string EventRecord(std::string_view message) {
  const std::string length = Bytes<uint64_t>(message.size());
  return length + Bytes(MaskedCrc(length)) + std::string(message) + Bytes(MaskedCrc(message));
}

}  // namespace lopt
