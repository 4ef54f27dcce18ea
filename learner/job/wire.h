#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {

// What travels between ranks is a number, a text, a row of float32, a list, a map or a
// std::optional of such things, or a struct that shows its members once, by name and in order:
//   template <class Visitor>
//   void VisitMembers(Visitor& visit) {
//     visit("host", host);
//     visit("updates", updates);
//   }
// ToWire writes one after the other into a flat buffer, in the machine's byte order, since all
// ranks of a job run the same program; FromWire<T> reads them back. It throws Error if the buffer
// ends too early or holds more.

// Whether a value travels as its bytes.
template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// The visitor of ToWire.
class WireWriter {
 public:
  // Writes a member.
  template <class T>
  void operator()(const char*, const T& value) {
    Write(value);
  }

  // Writes a number or a struct.
  template <class T>
  void Write(const T& value) {
    if constexpr (kIsNumber<T>) {
      Append(&value, sizeof value);
    } else {
      const_cast<T&>(value).VisitMembers(*this);  // which only reads
    }
  }
  // The length and the letters.
  void Write(const std::string& text) { WriteNumbers(std::span(text.data(), text.size())); }
  // The length and the numbers.
  template <class T>
  void Write(const Eigen::VectorX<T>& row) {
    WriteNumbers(std::span(row.data(), static_cast<size_t>(row.size())));
  }
  // The length and the elements.
  template <class T>
  void Write(const std::vector<T>& list) {
    if constexpr (kIsNumber<T>) {
      WriteNumbers(std::span(list));
    } else {
      Write<uint64_t>(list.size());
      for (const T& element : list) {
        Write(element);
      }
    }
  }
  // The number of pairs, and each key with its value.
  template <class Key, class T>
  void Write(const std::map<Key, T>& map) {
    Write<uint64_t>(map.size());
    for (const auto& [key, value] : map) {
      Write(key);
      Write(value);
    }
  }
  // Whether there is a value, and it.
  template <class T>
  void Write(const std::optional<T>& value) {
    Write(value.has_value());
    if (value.has_value()) {
      Write(*value);
    }
  }

  // What was written.
  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  template <class T>
  void WriteNumbers(std::span<const T> numbers) {
    Write<uint64_t>(numbers.size());
    Append(numbers.data(), numbers.size_bytes());
  }
  void Append(const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<std::byte> bytes_;
};

// The visitor of FromWire, which reads what WireWriter wrote. Throws Error if a message is damaged.
class WireReader {
 public:
  // The bytes must outlive it.
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Reads a member.
  template <class T>
  void operator()(const char* name, T& value) {
    member_ = name;
    Read(value);
  }

  // Reads a number or a struct.
  template <class T>
  void Read(T& value) {
    if constexpr (kIsNumber<T>) {
      std::memcpy(&value, Next(sizeof value).data(), sizeof value);
    } else {
      value.VisitMembers(*this);
    }
  }
  // A byte that is 0 or 1.
  void Read(bool& value) {
    uint8_t byte = 0;
    Read(byte);
    Require(byte <= 1, "a message from another rank is damaged: '{}' is {}", member_, byte);
    value = byte == 1;
  }
  // The length and the letters.
  void Read(std::string& text) {
    text.resize(Count(sizeof(char)));
    ReadNumbers(std::span(text.data(), text.size()));
  }
  // The length and the numbers.
  template <class T>
  void Read(Eigen::VectorX<T>& row) {
    row.resize(static_cast<Eigen::Index>(Count(sizeof(T))));
    ReadNumbers(std::span(row.data(), static_cast<size_t>(row.size())));
  }
  // The length and the elements.
  template <class T>
  void Read(std::vector<T>& list) {
    if constexpr (kIsNumber<T>) {
      list.resize(Count(sizeof(T)));
      ReadNumbers(std::span(list));
    } else {
      for (size_t left = Count(1); left > 0; --left) {
        Read(list.emplace_back());
      }
    }
  }
  // The number of pairs, and each key with its value.
  template <class Key, class T>
  void Read(std::map<Key, T>& map) {
    for (size_t left = Count(1); left > 0; --left) {
      Key key;
      Read(key);
      Read(map[std::move(key)]);
    }
  }
  // Whether there is a value, and it.
  template <class T>
  void Read(std::optional<T>& value) {
    bool has_value = false;
    Read(has_value);
    if (has_value) {
      Read(value.emplace());
    }
  }

  // Throws Error unless everything has been read.
  void End() const {
    Require(bytes_.empty(), "a message from another rank is damaged: {} bytes follow its end",
            bytes_.size());
  }

 private:
  // The number of elements that follow, each of at least `size` bytes.
  size_t Count(size_t size) {
    uint64_t count = 0;
    Read(count);
    Require(count <= bytes_.size() / size,
            "a message from another rank is damaged: '{}' is to have {} elements, {} bytes follow",
            member_, count, bytes_.size());
    return static_cast<size_t>(count);
  }
  template <class T>
  void ReadNumbers(std::span<T> numbers) {
    const auto from = Next(numbers.size_bytes());
    if (!from.empty()) {
      std::memcpy(numbers.data(), from.data(), from.size());
    }
  }
  std::span<const std::byte> Next(size_t size) {
    Require(size <= bytes_.size(), "a message from another rank is damaged: it ends in '{}'",
            member_);
    const auto next = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return next;
  }

  std::span<const std::byte> bytes_;
  const char* member_ = "message";  // visited last
};

// A message as bytes.
template <class T>
std::vector<std::byte> ToWire(const T& message) {
  WireWriter out;
  out.Write(message);
  return out.Take();
}

// The message that ToWire made these bytes of. Throws Error if they are of another one.
template <class T>
T FromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  T message;
  in.Read(message);
  in.End();
  return message;
}

}  // namespace lopt
