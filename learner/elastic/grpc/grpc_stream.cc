#include "lopt/learner/elastic/grpc/grpc_stream.h"

#include <grpc/support/log.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <thread>
#include <vector>

namespace lopt {
namespace {

// What gRPC and this folder start before and while they listen or join: so many threads, and two
// pools with one for each core, but at most so many.
constexpr unsigned kThreads = 8;
constexpr unsigned kMostThreadsOfAPool = 16;

class HandshakeFailure {
 public:
  void Note(const char* message) {
    const std::lock_guard lock(mutex_);
    last_ = message;
  }
  // Empty if none has failed since the last call.
  std::string Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(last_, "");
  }

 private:
  std::mutex mutex_;
  std::string last_;
};
HandshakeFailure handshake_failure;

void LogOfGrpc(gpr_log_func_args* args) {
  if (std::strstr(args->message, "SSL_ERROR_SSL") != nullptr) {
    handshake_failure.Note(args->message);
  }
  spdlog::debug("gRPC: {} ({}:{})", args->message, args->file, args->line);
}

}  // namespace

void UseGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(LogOfGrpc); });
}

std::string TakeHandshakeFailure() { return handshake_failure.Take(); }

void RequireThreads() {
  const unsigned cores = std::thread::hardware_concurrency();
  std::vector<std::jthread> tried(kThreads + 2 * std::min(cores, kMostThreadsOfAPool));
  for (std::jthread& thread : tried) {
    thread = std::jthread([](const std::stop_token& stop) {
      std::condition_variable_any stopped;
      std::mutex mutex;
      std::unique_lock lock(mutex);
      stopped.wait(lock, stop, [] { return false; });
    });
  }
}

std::string grpc_module::Library() { return "gRPC " + grpc::Version(); }

}  // namespace lopt
