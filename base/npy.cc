#include "lopt/base/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"

namespace lopt {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kNpyAlignment = 64;
constexpr size_t kMostDimensions = 64;  // NumPy's limit
constexpr std::array<std::pair<std::string_view, DType>, 6> kDTypes = {{
    {"<f4", DType::kFloat32},
    {"<f8", DType::kFloat64},
    {"<i4", DType::kInt32},
    {"<i8", DType::kInt64},
    {"<u4", DType::kUint32},
    {"|u1", DType::kUint8},
}};

// What the header, the text of a Python dictionary, says.
struct Header {
  std::string dtype;
  bool fortran_order = false;
  Shape shape;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  Header Parse() {
    std::optional<std::string> dtype;
    std::optional<bool> fortran_order;
    std::optional<Shape> shape;
    Expect('{');
    while (!Accept('}')) {
      const std::string key = Text();
      Expect(':');
      if (key == "descr" && !dtype) {
        dtype = At('[') ? Records() : Text();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = Bool();
      } else if (key == "shape" && !shape) {
        shape = Tuple();
      } else {
        Check(false, "must have descr, fortran_order and shape, each once");
      }
      if (!Accept(',')) {
        Expect('}');
        break;
      }
    }
    SkipSpace();
    Check(next_ == text_.size(), "goes on after its end");
    Check(dtype && fortran_order && shape, "must have descr, fortran_order and shape, each once");
    return {.dtype = *dtype, .fortran_order = *fortran_order, .shape = *shape};
  }

  void RequireNumbers(std::string_view dtype) const {
    Check(!dtype.starts_with('['), "describes records, not numbers");
  }

 private:
  void Check(bool ok, std::string_view problem) const {
    if (!ok) Fail("{}: the npy header {}: {}", source_, problem, Shown());
  }
  // Without the spaces and the line feed that fill it up.
  std::string Shown() const {
    return PlainText(text_.substr(0, text_.find_last_not_of(" \n") + 1));
  }
  void SkipSpace() {
    while (next_ < text_.size() && (text_[next_] == ' ' || text_[next_] == '\n')) ++next_;
  }
  bool At(char c) {
    SkipSpace();
    return next_ < text_.size() && text_[next_] == c;
  }
  bool Accept(char c) {
    const bool there = At(c);
    if (there) ++next_;
    return there;
  }
  void Expect(char c) {
    const size_t from = next_;  // Accept passes spaces
    Check(Accept(c), fmt::format("lacks a '{}' at {}", c, from));
  }

  // A list, in which there may be others.
  std::string Records() {
    const size_t begin = next_;
    int open = 0;
    do {
      Check(next_ < text_.size(), "has a list without an end");
      open += text_[next_] == '[' ? 1 : text_[next_] == ']' ? -1 : 0;
      ++next_;
    } while (open > 0);
    return std::string(text_.substr(begin, next_ - begin));
  }
  std::string Text() {
    const char quote = At('"') ? '"' : '\'';
    Expect(quote);
    const size_t end = text_.find(quote, next_);
    Check(end != std::string_view::npos, "has a text without an end");
    const std::string_view text = text_.substr(next_, end - next_);
    next_ = end + 1;
    return std::string(text);
  }
  bool Bool() {
    SkipSpace();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(next_).starts_with(word)) {
        next_ += word.size();
        return value;
      }
    }
    Fail("{}: the npy header must have True or False as fortran_order: {}", source_, Shown());
  }
  Shape Tuple() {
    Shape shape;
    Expect('(');
    while (!Accept(')')) {
      SkipSpace();
      int64_t dimension = -1;
      const char* begin = text_.data() + next_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), dimension);
      Check(error == std::errc() && dimension >= 0, "has a shape that is not whole numbers");
      Check(shape.size() < kMostDimensions, "has a shape of more dimensions than NumPy allows, 64");
      next_ += static_cast<size_t>(end - begin);
      shape.push_back(dimension);
      if (!Accept(',')) {
        Expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  const std::string& source_;
  size_t next_ = 0;
};

std::optional<DType> FindDType(std::string_view name) {
  for (const auto& [known_name, dtype] : kDTypes) {
    if (name == known_name) return dtype;
  }
  return std::nullopt;
}

std::string KnownDTypes() {
  std::vector<std::string_view> known;
  for (const auto& [name, dtype] : kDTypes) known.push_back(name);
  return fmt::format("{}", fmt::join(known, ", "));
}

// `data` in Fortran order to `array` in C order.
void CopyTransposed(std::span<const std::byte> data, Array* array) {
  const Shape& shape = array->shape();
  const auto item = static_cast<size_t>(ItemSize(array->dtype()));
  const std::span<std::byte> out = array->bytes();
  Shape index(shape.size(), 0);
  for (size_t to = 0; to < out.size(); to += item) {
    size_t from = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      from = from * static_cast<size_t>(shape[d]) + static_cast<size_t>(index[d]);
    }
    std::copy_n(data.begin() + static_cast<ptrdiff_t>(from * item), item,
                out.begin() + static_cast<ptrdiff_t>(to));
    for (size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
  }
}

}  // namespace

Array ParseNpy(std::span<const std::byte> bytes, const std::string& source) {
  return *ParseNpy(bytes, source, nullptr);
}

std::optional<Array> ParseNpy(std::span<const std::byte> bytes, const std::string& source,
                              OtherArray* other) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto byte = [&](size_t i) { return static_cast<size_t>(bytes[i]); };
  Require(text.starts_with(kMagic) && bytes.size() >= kMagic.size() + 4,
          "{}: not an npy file: it does not begin with \\x93NUMPY and a version", source);
  const size_t version = byte(kMagic.size());
  Require(version >= 1 && version <= 3, "{}: npy format {} is not known; known are 1, 2, 3", source,
          version);
  size_t begin = kMagic.size() + 2;
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t length = 0;
  Require(bytes.size() >= begin + length_bytes, "{}: ends inside the npy header", source);
  for (size_t i = 0; i < length_bytes; ++i) length |= byte(begin + i) << (8 * i);
  begin += length_bytes;
  Require(length <= bytes.size() - begin, "{}: ends inside the npy header", source);

  HeaderParser parser(text.substr(begin, length), source);
  const Header header = parser.Parse();
  const std::span<const std::byte> data = bytes.subspan(begin + length);
  const std::optional<DType> dtype = FindDType(header.dtype);
  if (!dtype && other != nullptr) {
    other->dtype = header.dtype;
    other->shape = header.shape;
    return std::nullopt;
  }
  parser.RequireNumbers(header.dtype);
  Require(dtype.has_value(), "{}: has dtype '{}'; known are: {}", source, PlainText(header.dtype),
          KnownDTypes());
  int64_t wanted = ItemSize(*dtype);
  bool fits = true;
  for (const int64_t dimension : header.shape) {
    fits = fits && !__builtin_mul_overflow(wanted, dimension, &wanted);
  }
  Require(fits, "{}: shape {} has too many elements", source, ToString(header.shape));
  Require(data.size() == static_cast<size_t>(wanted), "{}: {} of shape {} needs {} bytes, got {}",
          source, header.dtype, ToString(header.shape), wanted, data.size());
  Array array(*dtype, header.shape);
  if (header.fortran_order) {
    CopyTransposed(data, &array);
  } else {
    std::ranges::copy(data, array.bytes().begin());
  }
  return array;
}

std::vector<std::byte> SerializeNpy(const Array& array) {
  const auto* const entry =
      std::ranges::find(kDTypes, array.dtype(), [](const auto& e) { return e.second; });
  const Shape& shape = array.shape();
  Require(shape.size() <= kMostDimensions,
          "npy: an array of {} dimensions has too many; NumPy allows {}", shape.size(),
          kMostDimensions);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", entry->first,
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kPrefix = kMagic.size() + 4;
  const size_t end = (kPrefix + header.size() + kNpyAlignment) / kNpyAlignment * kNpyAlignment;
  header.resize(end - kPrefix - 1, ' ');
  header += '\n';

  std::string start(kMagic);
  start += '\x01';
  start += '\0';
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  std::vector<std::byte> bytes(end + array.bytes().size());
  auto out = std::ranges::copy(std::as_bytes(std::span(start)), bytes.begin()).out;
  out = std::ranges::copy(std::as_bytes(std::span(header)), out).out;
  std::ranges::copy(array.bytes(), out);
  return bytes;
}

}  // namespace lopt
