#include "learner/run/status_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace lopt {

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string StatusPath(const std::string& out_dir, int rank) {
  return fmt::format("{}/status/rank-{}.json", out_dir, rank);
}

bool WriteStatusFile(const std::string& path, const RankStatus& status) {
  const nlohmann::ordered_json json = {
      {"rank", status.rank},
      {"host", status.host},
      {"pid", status.pid},
      {"updates", status.updates},
      {"state", status.state},
      {"time_seconds",
       std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()}};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string temporary = path + ".tmp";
  std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
  stream << json.dump() << '\n';
  stream.close();
  if (!stream.good()) {
    return false;
  }
  std::filesystem::rename(temporary, path, error);
  return !error;
}

}  // namespace lopt
