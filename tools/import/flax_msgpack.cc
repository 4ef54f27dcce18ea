#include "lopt/tools/import/flax_msgpack.h"

// The msgpack of flax.serialization: maps with text keys; an array is an extension of type 1 whose
// content is again msgpack: [shape, dtype's name, bytes in C order]. A NumPy scalar is the same
// with type 3. A large array is a map with the key __msgpack_chunked_array__, its shape and pieces.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lopt/base/error.h"

namespace lopt {
namespace {

using MsgpackJson = nlohmann::json;

constexpr int kMaxDepth = 64;
constexpr uint64_t kArrayType = 1;
constexpr uint64_t kScalarType = 3;
constexpr const char* kChunkedKey = "__msgpack_chunked_array__";

// Accepts everything of at most kMaxDepth levels: the library's own parser has no limit.
class DepthCheck : public nlohmann::json_sax<MsgpackJson> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return ++depth_ <= kMaxDepth; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    error_ = error.what();
    return false;
  }
  const std::string& error() const { return error_; }

 private:
  int depth_ = 0;
  std::string error_ = fmt::format("more than {} levels of nesting", kMaxDepth);
};

template <class Bytes>
MsgpackJson Parse(const Bytes& bytes, const std::string& source) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  DepthCheck check;
  if (!MsgpackJson::sax_parse(begin, begin + bytes.size(), &check,
                              MsgpackJson::input_format_t::msgpack)) {
    Fail("{}: not the msgpack of flax: {}", source, check.error());
  }
  return MsgpackJson::from_msgpack(begin, begin + bytes.size());
}

Shape ReadShape(const MsgpackJson& json, const std::string& source) {
  Shape shape;
  for (const MsgpackJson& dimension : json) {
    Require(dimension.is_number_unsigned() && dimension.get<uint64_t>() <= uint64_t{1} << 40,
            "{}: the shape is not a list of sizes", source);
    shape.push_back(dimension.get<int64_t>());
  }
  return shape;
}

// Text that msgpack may have as bytes.
std::string ReadText(const MsgpackJson& json) {
  if (json.is_binary()) return {json.get_binary().begin(), json.get_binary().end()};
  return json.is_string() ? json.get<std::string>() : "";
}

void CheckSize(const FoundArray& array, size_t bytes, const std::string& source) {
  int64_t wanted = sizeof(float);
  bool fits = true;
  for (const int64_t dimension : array.shape) {
    fits = fits && !__builtin_mul_overflow(wanted, dimension, &wanted);
  }
  Require(fits && static_cast<size_t>(wanted) == bytes, "{}: {} of shape {} has {} bytes", source,
          array.dtype, ToString(array.shape), bytes);
}

class Flattener {
 public:
  explicit Flattener(const std::string& source) : source_(source) {}

  std::vector<FoundArray> Flatten(const MsgpackJson& json) {
    Require(json.is_object(), "{}: not the msgpack of flax: the top is not a dictionary", source_);
    Visit(json, "");
    return std::move(found_);
  }

 private:
  void Visit(const MsgpackJson& json, const std::string& path) {
    if (json.is_object() && json.contains(kChunkedKey)) {
      found_.push_back(Chunked(json, path));
    } else if (json.is_object()) {
      for (const auto& [key, value] : json.items()) {
        Visit(value, path.empty() ? key : fmt::format("{}/{}", path, key));
      }
    } else if (IsArray(json)) {
      found_.push_back(ReadArray(json, path));
    }
  }

  static bool IsArray(const MsgpackJson& json) {
    return json.is_binary() && json.get_binary().has_subtype() &&
           (json.get_binary().subtype() == kArrayType ||
            json.get_binary().subtype() == kScalarType);
  }

  FoundArray ReadArray(const MsgpackJson& json, const std::string& path) const {
    const std::string where = fmt::format("{}: {}", source_, path);
    const MsgpackJson content = Parse(json.get_binary(), where);
    Require(content.is_array() && content.size() == 3 && content[0].is_array() &&
                content[2].is_binary(),
            "{}: an array must be [shape, dtype, bytes]", where);
    FoundArray array{.path = path,
                     .dtype = ReadText(content[1]),
                     .shape = ReadShape(content[0], where),
                     .values = {}};
    if (array.dtype == "float32") {
      const auto& bytes = content[2].get_binary();
      CheckSize(array, bytes.size(), where);
      array.values = Array(DType::kFloat32, array.shape);
      std::ranges::copy(std::as_bytes(std::span(bytes.data(), bytes.size())),
                        array.values.bytes().begin());
    }
    return array;
  }

  // The values of a dictionary with the keys "0", "1", ...
  static std::vector<const MsgpackJson*> Items(const MsgpackJson& json) {
    std::vector<const MsgpackJson*> items;
    for (size_t i = 0; json.is_object() && json.contains(std::to_string(i)); ++i) {
      items.push_back(&json[std::to_string(i)]);
    }
    return items;
  }

  FoundArray Chunked(const MsgpackJson& json, const std::string& path) const {
    const std::string where = fmt::format("{}: {}", source_, path);
    Require(json.contains("shape") && json.contains("chunks"),
            "{}: an array in chunks must have shape and chunks", where);
    MsgpackJson shape = MsgpackJson::array();
    for (const MsgpackJson* dimension : Items(json["shape"])) shape.push_back(*dimension);
    FoundArray array{.path = path, .dtype = "", .shape = ReadShape(shape, where), .values = {}};
    std::vector<std::byte> bytes;
    for (const MsgpackJson* chunk : Items(json["chunks"])) {
      Require(IsArray(*chunk), "{}: a chunk is not an array", where);
      const FoundArray piece = ReadArray(*chunk, path);
      array.dtype = piece.dtype;
      bytes.insert(bytes.end(), piece.values.bytes().begin(), piece.values.bytes().end());
    }
    if (array.dtype == "float32") {
      CheckSize(array, bytes.size(), where);
      array.values = Array(DType::kFloat32, array.shape);
      std::ranges::copy(bytes, array.values.bytes().begin());
    }
    return array;
  }

  const std::string& source_;
  std::vector<FoundArray> found_;
};

}  // namespace

std::vector<FoundArray> ParseFlaxMsgpack(std::span<const std::byte> bytes,
                                         const std::string& source) {
  return Flattener(source).Flatten(Parse(bytes, source));
}

}  // namespace lopt
