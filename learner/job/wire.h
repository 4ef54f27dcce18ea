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

template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class WireWriter {
 public:
  template <class T>
  void operator()(const char*, const T& value) {
    Write(value);
  }

  template <class T>
  void Write(const T& value) {
    if constexpr (kIsNumber<T>) {
      Append(&value, sizeof value);
    } else {
      const_cast<T&>(value).VisitMembers(*this);  // which only reads
    }
  }
  void Write(const std::string& text) { WriteNumbers(std::span(text.data(), text.size())); }
  template <class T>
  void Write(const Eigen::VectorX<T>& row) {
    WriteNumbers(std::span(row.data(), static_cast<size_t>(row.size())));
  }
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
  template <class Key, class T>
  void Write(const std::map<Key, T>& map) {
    Write<uint64_t>(map.size());
    for (const auto& [key, value] : map) {
      Write(key);
      Write(value);
    }
  }
  template <class T>
  void Write(const std::optional<T>& value) {
    Write(value.has_value());
    if (value.has_value()) {
      Write(*value);
    }
  }

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

class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void operator()(const char* name, T& value) {
    member_ = name;
    Read(value);
  }

  template <class T>
  void Read(T& value) {
    if constexpr (kIsNumber<T>) {
      std::memcpy(&value, Next(sizeof value).data(), sizeof value);
    } else {
      value.VisitMembers(*this);
    }
  }
  void Read(bool& value) {
    uint8_t byte = 0;
    Read(byte);
    Require(byte <= 1, "a message from another rank is damaged: '{}' is {}", member_, byte);
    value = byte == 1;
  }
  void Read(std::string& text) {
    text.resize(Count(sizeof(char)));
    ReadNumbers(std::span(text.data(), text.size()));
  }
  template <class T>
  void Read(Eigen::VectorX<T>& row) {
    row.resize(static_cast<Eigen::Index>(Count(sizeof(T))));
    ReadNumbers(std::span(row.data(), static_cast<size_t>(row.size())));
  }
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
  template <class Key, class T>
  void Read(std::map<Key, T>& map) {
    for (size_t left = Count(1); left > 0; --left) {
      Key key;
      Read(key);
      Read(map[std::move(key)]);
    }
  }
  template <class T>
  void Read(std::optional<T>& value) {
    bool has_value = false;
    Read(has_value);
    if (has_value) {
      Read(value.emplace());
    }
  }

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

template <class T>
std::vector<std::byte> ToWire(const T& message) {
  WireWriter out;
  out.Write(message);
  return out.Take();
}

template <class T>
T FromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  T message;
  in.Read(message);
  in.End();
  return message;
}

}  // namespace lopt
