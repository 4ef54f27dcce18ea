#include "lopt/tools/typed_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/nearest_name.h"

namespace lopt {

Config ReadTypedConfig(const std::string& option, const std::string& text, const TypeTable& table) {
  if (text.starts_with('{')) return Config::Parse(text, option);
  if (Exists(text)) return Config::Load(text);
  std::vector<std::string> types;
  for (const TypeEntry& entry : table.entries()) {
    if (entry.type == text) return Config::Parse(fmt::format(R"({{"type": "{}"}})", text), text);
    types.push_back(entry.type);
  }
  Fail("{} {}: there is no such file, and no {} of that type; the types are {}{}", option, text,
       table.kind(), fmt::join(types, ", "), DidYouMean(text, types));
}

}  // namespace lopt
