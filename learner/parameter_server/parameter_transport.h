#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "lopt/base/environment.h"
#include "lopt/learner/parameter_server/parameter_model.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// What both sides are told.
struct ParameterLinkOptions {
  int64_t workers = 1;
  std::string token = {};       // empty: none
  double timeout_seconds = 60;  // of a server: silence that ends a connection; 0: none does
  double wait_seconds = 600;    // for the others to be there at first
  std::function<std::chrono::steady_clock::time_point()> now = [] {
    return std::chrono::steady_clock::now();
  };
};

// What the two have in common: this is one process, and what it has to say is not lost at its end.
class ParameterTransport : public Transport {
 public:
  int size() const override { return model_.servers() + static_cast<int>(options_.workers); }
  int ranks_on_host() const override { return 1; }
  int rank_on_host() const override { return 0; }
  int Exit(int exit_code) override { return exit_code; }

 protected:
  using TimePoint = std::chrono::steady_clock::time_point;

  ParameterTransport(const ParameterServerOptions& model, ParameterLinkOptions options)
      : model_(model), options_(std::move(options)), begun_(options_.now()) {}

  double SecondsSince(TimePoint time) const { return SecondsBetween(time, options_.now()); }

  const ParameterModel model_;
  const ParameterLinkOptions options_;
  const TimePoint begun_;
  std::optional<TimePoint> farewell_ = {};  // since when

 private:
  void DoAbort(int exit_code) override;
};

}  // namespace lopt
