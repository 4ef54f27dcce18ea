#include "lopt/base/strict_json.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/utf8.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxShown = 80;
constexpr size_t kMaxReason = 500;

// Reads characters and counts lines; all copies count together.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, int64_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    *line_ += *at_ == '\n' ? 1 : 0;
    ++at_;
    return *this;
  }
  LineCounter operator++(int) {
    LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }
  bool operator!=(const LineCounter& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int64_t* line_;
};

// Builds the value from the parser's events. The parser has read up to and including a key when it
// reports it, so `line` is that key's line then.
class Builder {
 public:
  Builder(const std::string& source, const int64_t* line) : source_(source), line_(line) {}

  Json Take() { return std::move(root_); }

  bool null() { return Value(nullptr); }
  bool boolean(bool value) { return Value(value); }
  bool number_integer(Json::number_integer_t value) { return Value(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return Value(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return Value(value); }
  bool string(std::string& value) { return Value(std::move(value)); }
  bool binary(Json::binary_t& value) { return Value(std::move(value)); }
  bool start_object(size_t) { return Open(Json::object()); }
  bool end_object() { return Close(); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    level.key = name;
    if (!level.keys.insert(name).second) {
      Fail("{}: line {}: key '{}' appears twice", source_, *line_, PlainText(Path()));
    }
    level.slot = AppendMember(level.value, name);
    return true;
  }

  // The library's text is "[json.exception...] parse error at line 2, column 5: ...".
  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    const std::string_view text = error.what();
    const size_t id_end = text.find("] ");
    const std::string reason =
        PlainText(id_end == std::string_view::npos ? text : text.substr(id_end + 2), kMaxReason);
    constexpr std::string_view kWithPosition = "parse error at ";
    if (reason.starts_with(kWithPosition)) {
      Fail("{}: {}", source_, reason.substr(kWithPosition.size()));
    }
    Fail("{}: line {}: {}", source_, *line_, reason);
  }

 private:
  struct Level {
    Json* value;
    Json* slot = nullptr;  // where the value of the last key goes
    std::string key = {};  // the last one
    std::set<std::string> keys = {};
  };

  // Of the last key.
  std::string Path() const {
    std::string path;
    for (const Level& level : levels_) {
      path = level.value->is_array() ? JoinIndex(path, level.value->size() - 1)
                                     : JoinKey(path, level.key);
    }
    return path;
  }

  // Puts the value where it belongs and returns its place.
  Json* Place(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    *level.slot = std::move(value);
    return level.slot;
  }

  bool Value(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    Require(levels_.size() < kMaxDepth, "{}: line {}: more than {} levels of nesting", source_,
            *line_, kMaxDepth);
    Json* place = Place(std::move(value));
    levels_.push_back({.value = place});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  const std::string& source_;
  const int64_t* line_;
  Json root_;
  std::vector<Level> levels_;
};

// Of all texts in the value.
void RequireUtf8(const Json& value, const std::string& path) {
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      RequireUtf8(name, path);
      RequireUtf8(member, JoinKey(path, name));
    }
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      RequireUtf8(value[i], JoinIndex(path, i));
    }
  } else if (value.is_string()) {
    try {
      static_cast<void>(value.dump());
    } catch (const Json::type_error&) {
      Fail("{} cannot be written as JSON: it is not UTF-8: {}", path, ShowJson(value));
    }
  }
}

}  // namespace

Json ParseStrictJson(std::string_view text, const std::string& source, bool allow_comments) {
  Require(!text.empty(), "{}: it is empty; wanted JSON", source);
  // The library would take it for the end of the text, whatever follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    Fail("{}: line {}: a byte of value 0, which no JSON text has: damaged, or UTF-16 or UTF-32?",
         source, 1 + std::ranges::count(text.substr(0, nul), '\n'));
  }
  int64_t line = 1;
  Builder builder(source, &line);
  Json::sax_parse(LineCounter(text.data(), &line), LineCounter(text.data() + text.size(), &line),
                  &builder, Json::input_format_t::json, true, allow_comments);
  return builder.Take();
}

Json* AppendMember(Json* object, const std::string& name) {
  using Members = Json::object_t::Container;
  auto& members = static_cast<Members&>(object->get_ref<Json::object_t&>());
  if (members.size() == members.capacity()) {
    // The vector itself would copy the values with all that is in them, for their keys are const.
    Members grown;
    grown.reserve(std::max<size_t>(4, 2 * members.size()));
    for (auto& [key, value] : members) grown.emplace_back(key, std::move(value));
    members.swap(grown);
  }
  return &members.emplace_back(name, nullptr).second;
}

std::string JoinKey(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

std::string JoinIndex(std::string_view path, size_t index) {
  return fmt::format("{}[{}]", path, index);
}

std::string JsonText(const Json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const Json::type_error&) {
    RequireUtf8(value, "");
    throw;
  }
}

std::string ShowJson(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) {
    size_t end = kMaxShown - 3;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;  // not inside a character
    }
    text = text.substr(0, end) + "...";
  }
  return PlainText(text, 4 * text.size());  // all of it: a byte becomes four at most
}

}  // namespace lopt
