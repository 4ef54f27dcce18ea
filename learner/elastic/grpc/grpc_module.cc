#include "lopt/learner/elastic/grpc/grpc_module.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "lopt/base/abi.h"

namespace {

void LogTo(std::shared_ptr<spdlog::logger> log) {
  if (spdlog::default_logger_raw() != log.get()) spdlog::set_default_logger(std::move(log));
}

}  // namespace

extern "C" const void* lopt_grpc_module() {
  static const lopt::GrpcModule module{.build = LOPT_ABI,
                                       .log_to = LogTo,
                                       .library = lopt::grpc_module::Library,
                                       .listen = lopt::grpc_module::Listen,
                                       .join = lopt::grpc_module::Join,
                                       .check_tls = lopt::grpc_module::CheckTls};
  return &module;
}
