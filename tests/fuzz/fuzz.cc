#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "lopt/base/file.h"
#include "tests/temp_directory.h"

namespace lopt {

std::vector<FuzzTarget>& FuzzTargets() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

AddFuzzTarget::AddFuzzTarget(FuzzTarget target) {
  FuzzTargets().push_back(std::move(target));
  std::ranges::sort(FuzzTargets(), {}, &FuzzTarget::name);
}

std::string JoinParts(const std::vector<std::string>& parts) {
  std::string input;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i + 1 < parts.size()) {
      const auto size = static_cast<uint32_t>(parts[i].size());
      input.append(reinterpret_cast<const char*>(&size), sizeof size);
    }
    input += parts[i];
  }
  return input;
}

std::vector<std::string> SplitParts(std::string_view input, size_t count) {
  std::vector<std::string> parts;
  while (parts.size() + 1 < count) {
    uint32_t size = 0;
    const size_t header = std::min(sizeof size, input.size());
    std::memcpy(&size, input.data(), header);
    input.remove_prefix(header);
    parts.emplace_back(input.substr(0, size));
    input.remove_prefix(std::min<size_t>(size, input.size()));
  }
  parts.emplace_back(input);
  return parts;
}

std::string FreshDirectory() {
  static const TempDirectory directory;
  std::filesystem::remove_all(directory / "input");
  MakeDirectories(directory / "input");
  return directory / "input";
}

std::string PutFile(const std::string& directory, const std::string& name, std::string_view bytes) {
  const std::string path = directory + "/" + name;
  WriteTextFile(path, bytes, Flush::kNo);
  return path;
}

}  // namespace lopt
