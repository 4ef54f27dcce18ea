#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lopt {

// JSON text as a value, keys in the order of the text. Two keys of one name in one object, more
// than 64 levels and anything that is not JSON are an Error that names `source` and the line.
nlohmann::ordered_json ParseStrictJson(std::string_view text, const std::string& source,
                                       bool allow_comments);

// A new last member of an object that has none of this name; returns its value, null. The library's
// own ways compare the name with all there are, which takes minutes for tens of thousands.
nlohmann::ordered_json* AppendMember(nlohmann::ordered_json* object, const std::string& name);

// The path of a key below `path`: "estimators[0]" and "std" give "estimators[0].std".
std::string JoinKey(std::string_view path, std::string_view key);
// The path of an element of the list at `path`: "estimators[0]".
std::string JoinIndex(std::string_view path, size_t index);

// The value as JSON, indented by `indent`; in one line if that is -1. Throws Error that names the
// text that is not UTF-8.
std::string JsonText(const nlohmann::ordered_json& value, int indent);

// A value as one line of JSON for a message, cut to a readable length.
std::string ShowJson(const nlohmann::ordered_json& value);

}  // namespace lopt
