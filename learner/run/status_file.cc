#include "lopt/learner/run/status_file.h"

#include <fmt/format.h>

#include <system_error>

namespace lopt {

std::string StatusPath(const std::string& out_dir, int rank, const std::string& kind) {
  return fmt::format("{}/status/{}-{}.json", out_dir, kind, rank);
}

StatusFiles FindStatusFiles(const std::string& out_dir, const std::string& kind) {
  StatusFiles files;
  std::error_code error;  // no directory: no rank has started
  for (const auto& entry : std::filesystem::directory_iterator(out_dir + "/status", error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kind + "-")) {
      (name.ends_with(".json") ? files.complete : files.unfinished).push_back(entry.path());
    }
  }
  return files;
}

}  // namespace lopt
