#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace lopt {

// Writes numbers and texts one after the other into a flat buffer, in the machine's byte order: all
// ranks of a job run the same program.
class WireWriter {
 public:
  template <class T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    Append(&value, sizeof value);
  }
  template <class T>
  void Numbers(std::span<const T> values) {
    static_assert(std::is_arithmetic_v<T>);
    Number<uint64_t>(values.size());
    Append(values.data(), values.size_bytes());
  }
  void Text(std::string_view text) { Numbers(std::span(text.data(), text.size())); }
  void Bytes(std::span<const std::byte> bytes) {
    Number<uint64_t>(bytes.size());
    Append(bytes.data(), bytes.size());
  }

  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  void Append(const void* data, size_t size) {
    const size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) {
      std::memcpy(bytes_.data() + at, data, size);
    }
  }

  std::vector<std::byte> bytes_;
};

// Reads what a WireWriter wrote, in the same order. Throws Error where the buffer ends too early.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T Number() {
    T value;
    std::memcpy(&value, Next(sizeof value).data(), sizeof value);
    return value;
  }
  // The number of elements that follow; then Into or Bytes takes them.
  template <class T>
  size_t Count() {
    const auto count = Number<uint64_t>();
    Require(count <= bytes_.size() / sizeof(T), "a message from another rank is damaged");
    return static_cast<size_t>(count);
  }
  template <class T>
  void Into(std::span<T> values) {
    const auto from = Next(values.size_bytes());
    if (!from.empty()) {
      std::memcpy(values.data(), from.data(), from.size());
    }
  }
  std::string Text() {
    std::string text(Count<char>(), '\0');
    Into(std::span(text.data(), text.size()));
    return text;
  }
  std::vector<std::byte> Bytes() {
    const auto from = Next(Count<std::byte>());
    return {from.begin(), from.end()};
  }

 private:
  std::span<const std::byte> Next(size_t size) {
    Require(size <= bytes_.size(), "a message from another rank is damaged");
    const auto next = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return next;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace lopt
