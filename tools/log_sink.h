#pragma once

#include <spdlog/details/console_globals.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/sinks/ansicolor_sink.h>

#include <cstdio>

#include "lopt/tools/progress_line.h"

namespace lopt {

// Writes log lines to a stream, above the progress line of a terminal if one is open.
class LogSink final : public spdlog::sinks::ansicolor_sink<spdlog::details::console_mutex> {
 public:
  LogSink(std::FILE* stream, spdlog::color_mode mode) : ansicolor_sink(stream, mode) {}

  void log(const spdlog::details::log_msg& message) override {
    const WithoutProgressLine gone;
    ansicolor_sink::log(message);
  }
};

}  // namespace lopt
