#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lopt {

// A JSON object of a config file, keys in the file's order, together with the path of keys that
// leads to it ("estimators[0].task"), for messages. Immutable and cheap to copy.
class Config {
 public:
  Config() = default;  // no object: a key that must be given
  // `//` and `/* */` comments are allowed; two keys of one name, or anything but an object, are an
  // Error that names `source` and the line.
  static Config Parse(std::string_view text, const std::string& source);
  // The config in a file, as by Parse. Throws Error also if the file cannot be read.
  static Config Load(const std::string& path);
  // Throws Error unless `json` is an object.
  static Config FromJson(nlohmann::ordered_json json, std::string path = "");

  // Whether there is no object.
  bool empty() const { return json_ == nullptr; }
  // Throws Error if there is no object.
  const nlohmann::ordered_json& json() const;
  // The keys that lead to it, for messages; empty at the top.
  const std::string& path() const { return path_; }
  // The value of "type". Throws Error if it is missing or not text.
  std::string Type() const;
  // Its JSON, nested objects indented by so many spaces; in one line if negative.
  std::string Dump(int indent = 2) const;

  // A copy with the value at `dotted` ("estimators.0.std" or "estimators[0].std") replaced by
  // `value`: JSON, or text where it does not parse as JSON. The objects on the way must exist; the
  // last key may be new (reading it then checks it), a list does not grow. Throws Error otherwise.
  Config With(std::string_view dotted, std::string_view value) const;

  // One line per value that differs: "estimators[0].std: 0.01 here, 0.02 there" with the two given
  // words; a value that only one of them has is "absent" in the other. Keys named in `ignored` (top
  // level) are left out.
  std::vector<std::string> Differences(const Config& other, const std::vector<std::string>& ignored,
                                       std::string_view here, std::string_view there) const;

 private:
  std::shared_ptr<const nlohmann::ordered_json> json_;
  std::string path_;
};

}  // namespace lopt
