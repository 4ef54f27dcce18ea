#include "lopt/base/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/nearest_name.h"

namespace lopt {
namespace {

constexpr std::string_view kComment = "// ";

}  // namespace

Presets::Presets(std::string kind, std::span<const EmbeddedFile> files) : kind_(std::move(kind)) {
  for (const EmbeddedFile& file : files) {
    const std::string source = fmt::format("{} {}", kind_, file.name);
    const std::string_view text = file.text;
    Require(text.starts_with(kComment), "{}: its first line must be a comment that says what it is",
            source);
    const size_t line_end = text.find('\n');
    presets_.push_back({.name = file.name,
                        .summary = std::string(text.substr(0, line_end).substr(kComment.size())),
                        .config = Config::Parse(text, source),
                        .text = text});
  }
  std::ranges::sort(presets_, {}, &Preset::name);
}

const Config& Presets::Find(std::string_view name) const {
  const auto found = std::ranges::find(presets_, name, &Preset::name);
  if (found == presets_.end()) {
    std::vector<std::string> names;
    for (const Preset& preset : presets_) {
      names.push_back(preset.name);
    }
    Fail("There is no {} '{}'; the presets are {}{}", kind_, name, fmt::join(names, ", "),
         DidYouMean(name, names));
  }
  return found->config;
}

std::string Presets::List(int width) const {
  std::string text;
  for (const Preset& preset : presets_) {
    text += fmt::format("  {:<{}} {}\n", preset.name, width, preset.summary);
  }
  return text;
}

}  // namespace lopt
