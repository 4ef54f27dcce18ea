#pragma once

#include <memory>

namespace spdlog {
class logger;
}

namespace lopt {

class World;

// While it is there, what spdlog says goes into the trace of the world, or nowhere.
class QuietLog {
 public:
  explicit QuietLog(World* world);
  ~QuietLog();
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  std::shared_ptr<spdlog::logger> outer_;
};

}  // namespace lopt
