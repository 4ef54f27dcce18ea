#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/config.h"

namespace lopt {

// A file that the build embeds (base/embed_files.cmake): a preset, or one of python/rules/.
struct EmbeddedFile {
  const char* name;  // without its ending
  const char* text;
};

// A complete config under a name.
struct Preset {
  std::string name;
  std::string summary;  // the comment in the first line of its file
  Config config;
  std::string_view text;  // of its file, with the comments
};

// The presets of one kind, ordered by their names.
class Presets {
 public:
  // Throws Error unless every file is a config with a summary. `kind` is for messages ("preset").
  Presets(std::string kind, std::span<const EmbeddedFile> files);

  const std::vector<Preset>& all() const { return presets_; }
  // Throws Error that lists the presets if there is none of this name.
  const Config& Find(std::string_view name) const;
  // A line for each: its name, in `width` columns, and its summary.
  std::string List(int width) const;

 private:
  std::string kind_;
  std::vector<Preset> presets_;
};

}  // namespace lopt
