#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "lopt/base/replica_device.h"

namespace lopt {

// A replica in the host's memory, for tests of the device functions of one task or one rule. Its
// arrays are no longer than wanted, up to a multiple of 16 bytes, so that a sanitizer sees what
// goes beyond; what is not given begins as NaN, and the state as zeros.
class HostReplica {
 public:
  struct Sizes {
    int64_t state = 0;
    int64_t weights = 0;
    int64_t scratch = 0;
  };

  // `resident`: where params and gradient are aligned to 16 bytes; else they are one float beyond.
  HostReplica(std::span<const float> params, const Sizes& sizes, bool resident)
      : params_(Memory(std::ssize(params) + 1)),
        gradient_(Memory(std::ssize(params) + 1)),
        state_(Memory(sizes.state)),
        result_(Memory(2)),
        weights_(Memory(sizes.weights)),
        scratch_(Memory(sizes.scratch)),
        size_(params.size()) {
    const int shift = resident ? 0 : 1;
    replica_ = {.resident = resident,
                .params = Floats(&params_) + shift,
                .gradient = Floats(&gradient_) + shift,
                .state = Floats(&state_),
                .loss = Floats(&result_),
                .aux = Floats(&result_) + 1,
                .weights = Floats(&weights_),
                .scratch = Floats(&scratch_)};
    std::ranges::copy(params, replica_.params);
    std::fill_n(replica_.state, sizes.state, 0.0f);
  }
  HostReplica(const HostReplica&) = delete;
  HostReplica& operator=(const HostReplica&) = delete;

  const Replica& replica() const { return replica_; }
  std::vector<float> params() const { return {replica_.params, replica_.params + size_}; }
  std::vector<float> gradient() const { return {replica_.gradient, replica_.gradient + size_}; }

 private:
  static std::vector<Float4> Memory(int64_t floats) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    return std::vector<Float4>(static_cast<size_t>(floats + 3) / 4,
                               Float4{{kNan, kNan, kNan, kNan}});
  }
  static float* Floats(std::vector<Float4>* memory) {
    return reinterpret_cast<float*>(memory->data());
  }

  std::vector<Float4> params_;
  std::vector<Float4> gradient_;
  std::vector<Float4> state_;
  std::vector<Float4> result_;
  std::vector<Float4> weights_;
  std::vector<Float4> scratch_;
  size_t size_;
  Replica replica_;
};

}  // namespace lopt
