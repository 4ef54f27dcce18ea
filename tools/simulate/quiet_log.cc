#include "lopt/tools/simulate/quiet_log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <string_view>
#include <utility>

#include "lopt/tools/simulate/world.h"

namespace lopt {
namespace {

class TraceSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit TraceSink(World* world) : world_(world) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    world_->Trace("log: {}", std::string_view(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

  World* world_;
};

}  // namespace

QuietLog::QuietLog(World* world) : outer_(spdlog::default_logger()) {
  auto logger = std::make_shared<spdlog::logger>("simulation", std::make_shared<TraceSink>(world));
  logger->set_level(world->traces() ? spdlog::level::info : spdlog::level::off);
  spdlog::set_default_logger(std::move(logger));
}

QuietLog::~QuietLog() { spdlog::set_default_logger(outer_); }

}  // namespace lopt
