#include "lopt/base/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lopt/base/file.h"
#include "lopt/base/strict_json.h"
#include "lopt/base/utf8.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHeaderLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kDataAlignment = 64;
constexpr char kMetadataKey[] = "__metadata__";
constexpr std::array kKnownDTypes = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                                     DType::kInt64,   DType::kUint32,  DType::kUint8};

// What the header says of one tensor; its data is [begin, end) of what follows the header.
struct TensorInfo {
  std::string name;
  std::string dtype_name;
  std::optional<DType> dtype;  // none: one that Array has not
  Shape shape;
  uint64_t begin;
  uint64_t end;
};

class HeaderReader {
 public:
  // `others`: whether tensors of other dtypes are let pass.
  HeaderReader(const std::string& source, uint64_t data_bytes, bool others)
      : source_(source), data_bytes_(data_bytes), others_(others) {}

  std::map<std::string, std::string> Metadata(const Json& json) const {
    if (!json.is_object()) {
      Fail("{}: {} must be an object of texts, got {}", source_, kMetadataKey, ShowJson(json));
    }
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) {
        Fail("{}: metadata '{}' must be text, got {}", source_, PlainText(key), ShowJson(value));
      }
      metadata[key] = value.get<std::string>();
    }
    return metadata;
  }

  TensorInfo Tensor(const std::string& name, const Json& json) const {
    if (!json.is_object() || json.size() != 3 || !json.contains("dtype") ||
        !json.contains("shape") || !json.contains("data_offsets")) {
      Fail("{}: tensor '{}' must be an object with dtype, shape and data_offsets, got {}", source_,
           PlainText(name), ShowJson(json));
    }
    TensorInfo info{.name = name,
                    .dtype_name = json["dtype"].is_string() ? json["dtype"].get<std::string>() : "",
                    .dtype = ReadDType(name, json["dtype"]),
                    .shape = ReadShape(name, json["shape"]),
                    .begin = 0,
                    .end = 0};
    ReadOffsets(json["data_offsets"], &info);
    if (!info.dtype) return info;
    const uint64_t bytes = Bytes(info);
    if (info.end - info.begin != bytes) {
      Fail("{}: tensor '{}' of {} {} needs {} bytes, data_offsets [{}, {}] give {}", source_,
           PlainText(name), info.dtype_name, ToString(info.shape), bytes, info.begin, info.end,
           info.end - info.begin);
    }
    return info;
  }

  // Sorts the tensors as their data lies and checks that they cover it exactly.
  void CheckCover(std::vector<TensorInfo>* tensors) const {
    std::ranges::sort(*tensors, {},
                      [](const TensorInfo& info) { return std::pair(info.begin, info.end); });
    uint64_t end = 0;
    for (const TensorInfo& info : *tensors) {
      if (info.begin < end) {
        Fail("{}: tensor '{}' overlaps another: it begins at {} before {}", source_,
             PlainText(info.name), info.begin, end);
      }
      if (info.begin > end) {
        Fail("{}: there is a gap of {} bytes before tensor '{}' at {}", source_, info.begin - end,
             PlainText(info.name), info.begin);
      }
      end = info.end;
    }
    Require(end == data_bytes_, "{}: {} trailing bytes after the last tensor's data", source_,
            data_bytes_ - end);
  }

 private:
  std::optional<DType> ReadDType(const std::string& name, const Json& json) const {
    for (DType dtype : kKnownDTypes) {
      if (json.is_string() && json.get_ref<const std::string&>() == ToString(dtype)) {
        return dtype;
      }
    }
    if (others_ && json.is_string()) return std::nullopt;
    std::vector<std::string_view> known;
    for (DType dtype : kKnownDTypes) {
      known.push_back(ToString(dtype));
    }
    Fail("{}: tensor '{}' has dtype {}; known are: {}", source_, PlainText(name), ShowJson(json),
         fmt::join(known, ", "));
  }

  Shape ReadShape(const std::string& name, const Json& json) const {
    Shape shape;
    bool ok = json.is_array();
    for (size_t i = 0; ok && i < json.size(); ++i) {
      const uint64_t dimension =
          json[i].is_number_unsigned() ? json[i].get<uint64_t>() : UINT64_MAX;
      ok = dimension <= static_cast<uint64_t>(INT64_MAX);
      shape.push_back(static_cast<int64_t>(dimension));
    }
    if (!ok) {
      Fail("{}: tensor '{}': shape must be a list of non-negative integers, got {}", source_,
           PlainText(name), ShowJson(json));
    }
    return shape;
  }

  uint64_t Bytes(const TensorInfo& info) const {
    int64_t bytes = ItemSize(*info.dtype);
    for (int64_t dimension : info.shape) {
      if (__builtin_mul_overflow(bytes, dimension, &bytes)) {
        Fail("{}: tensor '{}': shape {} has too many elements", source_, PlainText(info.name),
             ToString(info.shape));
      }
    }
    return static_cast<uint64_t>(bytes);
  }

  void ReadOffsets(const Json& json, TensorInfo* info) const {
    uint64_t begin = 1;
    uint64_t end = 0;
    if (json.is_array() && json.size() == 2 && json[0].is_number_unsigned() &&
        json[1].is_number_unsigned()) {
      begin = json[0].get<uint64_t>();
      end = json[1].get<uint64_t>();
    }
    if (begin > end) {
      Fail("{}: tensor '{}': data_offsets must be [begin, end] with 0 <= begin <= end, got {}",
           source_, PlainText(info->name), ShowJson(json));
    }
    if (end > data_bytes_) {
      Fail("{}: tensor '{}' ends at byte {} of the data, which has {}", source_,
           PlainText(info->name), end, data_bytes_);
    }
    info->begin = begin;
    info->end = end;
  }

  const std::string& source_;
  uint64_t data_bytes_;
  bool others_;
};

using NamedArray = std::pair<const std::string, Array>;

// By falling element size, then by name.
std::vector<const NamedArray*> DataOrder(const NamedArrays& arrays) {
  std::vector<const NamedArray*> order;
  for (const NamedArray& named : arrays) {
    Require(named.first != kMetadataKey, "safetensors: no array may be named {}", kMetadataKey);
    order.push_back(&named);
  }
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [](const NamedArray* named) { return ItemSize(named->second.dtype()); });
  return order;
}

// The value as JSON, as the library writes it.
std::string Dump(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::type_error&) {
    Fail("safetensors: a name or the metadata is not UTF-8");
  }
}

// As the library writes the same object, which it takes longer to build than all else here.
std::string HeaderText(const ArrayFile& file, const std::vector<const NamedArray*>& order) {
  std::string text = "{";
  auto out = std::back_inserter(text);
  if (!file.metadata.empty()) {
    fmt::format_to(out, R"("{}":{})", kMetadataKey, Dump(file.metadata));
  }
  size_t offset = 0;
  for (const NamedArray* named : order) {
    const auto& [name, array] = *named;
    const size_t end = offset + array.bytes().size();
    fmt::format_to(out, R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   text.size() == 1 ? "" : ",", Dump(name), ToString(array.dtype()),
                   fmt::join(array.shape(), ","), offset, end);
    offset = end;
  }
  text += '}';
  const size_t used = kHeaderLengthBytes + text.size();
  text.append((kDataAlignment - used % kDataAlignment) % kDataAlignment, ' ');
  return text;
}

}  // namespace

ArrayFile ParseArrayFile(std::span<const std::byte> bytes, const std::string& source,
                         std::vector<OtherArray>* others) {
  Require(bytes.size() >= kHeaderLengthBytes, "{}: {} bytes are too few for a safetensors file",
          source, bytes.size());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kHeaderLengthBytes);
  Require(header_bytes <= kMaxHeaderBytes,
          "{}: the header's length is given as {} bytes, more than {}: not a safetensors file?",
          source, header_bytes, kMaxHeaderBytes);
  Require(header_bytes <= bytes.size() - kHeaderLengthBytes,
          "{}: the header's length is given as {} bytes, but only {} follow", source, header_bytes,
          bytes.size() - kHeaderLengthBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kHeaderLengthBytes,
                              header_bytes);
  const std::span<const std::byte> data = bytes.subspan(kHeaderLengthBytes + header_bytes);

  const Json header = ParseStrictJson(text, source + ": header", false);
  if (!header.is_object()) {
    Fail("{}: the header must be a JSON object, got {}", source, ShowJson(header));
  }
  const HeaderReader reader(source, data.size(), others != nullptr);
  ArrayFile file;
  std::vector<TensorInfo> tensors;
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadataKey) {
      file.metadata = reader.Metadata(json);
    } else {
      tensors.push_back(reader.Tensor(name, json));
    }
  }
  reader.CheckCover(&tensors);
  for (TensorInfo& info : tensors) {
    if (!info.dtype) {
      others->push_back({.name = std::move(info.name),
                         .dtype = std::move(info.dtype_name),
                         .shape = std::move(info.shape)});
      continue;
    }
    Array array(*info.dtype, std::move(info.shape));
    std::ranges::copy(data.subspan(info.begin, info.end - info.begin), array.bytes().begin());
    file.arrays.Set(std::move(info.name), std::move(array));
  }
  return file;
}

std::vector<std::byte> SerializeArrayFile(const ArrayFile& file) {
  const std::vector<const NamedArray*> order = DataOrder(file.arrays);
  const std::string header = HeaderText(file, order);
  const uint64_t header_bytes = header.size();
  size_t total = kHeaderLengthBytes + header.size();
  for (const NamedArray* named : order) {
    total += named->second.bytes().size();
  }
  std::vector<std::byte> bytes(total);
  auto out = bytes.begin();
  out = std::ranges::copy(std::as_bytes(std::span(&header_bytes, 1)), out).out;
  out = std::ranges::copy(std::as_bytes(std::span(header)), out).out;
  for (const NamedArray* named : order) {
    out = std::ranges::copy(named->second.bytes(), out).out;
  }
  return bytes;
}

ArrayFile ReadArrayFile(const std::string& path, std::vector<OtherArray>* others) {
  return ParseArrayFile(ReadFile(path), path, others);
}

void WriteArrayFile(const std::string& path, const ArrayFile& file) {
  WriteFile(path, SerializeArrayFile(file));
}

}  // namespace lopt
