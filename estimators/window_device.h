#pragma once

#include <cstdint>

#include "lopt/base/key_device.h"
#include "lopt/base/replica_device.h"
#include "lopt/estimators/replica_keys.h"

namespace lopt {

// A window as a device runs it: one block of threads for each replica, all its inner steps in one
// launch. How long episodes last and what new ones start with is known before, so the host says it:
// a replica's window is a row of stretches, each of one episode. Pointers are to the device's
// memory.

// Inner steps of one episode of one replica.
struct DeviceStretch {
  EpisodeKeys keys;
  int64_t step = 0;       // the first's inner step in the episode
  int64_t count = 0;      // how many
  int64_t num_steps = 0;  // StepInfo::num_steps
  int64_t start = -1;     // row of `starts` that the episode begins with; -1: it goes on
  int64_t restarts = 0;   // episodes begun inside the window, its own included
};

// The theta that replicas run under, as ThetaRows.
struct DeviceTheta {
  const float* theta = nullptr;  // [D]
  int64_t pairs = 0;             // 0: every replica has theta itself
  const Key* keys = nullptr;     // [pairs]
  // Of perturbations that last for blocks of episodes: how many episodes of each pair ended before
  // the window, and the block in inner steps; else null and 0.
  const int64_t* episodes = nullptr;
  int64_t block = 0;
  float std = 0;
};

struct DeviceWindow {
  int64_t replicas = 0;  // B
  int64_t steps = 0;     // K
  int threads = 0;       // of a block
  ReplicaPlan plan = {};
  DeviceTheta theta = {};
  // Sizes of a replica's config, params and state between windows.
  int64_t config_size = 0;
  int64_t params_size = 0;
  int64_t state_size = 0;
  const float* config = nullptr;  // [B, C]: of the episodes that run when the window begins
  float* params = nullptr;        // [B, P]
  float* state = nullptr;         // [B, S]
  float* gradient = nullptr;      // [B, P], of replicas that are not resident
  const float* starts = nullptr;  // [.., C + P]: config and params of new episodes
  const DeviceStretch* stretches = nullptr;
  const int64_t* first_stretch = nullptr;  // [B + 1]: replica b's are [b], ..., [b + 1] - 1
  // Which loss is recorded: that before the update, else that after it, on the training batch or,
  // where it is one, on a fresh batch of a split; and whether it is the aux output instead.
  bool before_update = true;
  int meta_split = -1;
  bool aux = false;
  float* losses = nullptr;  // [B, K]: raw
  // Only this evaluation is made, on the batch that the stretch's key `meta_data` itself names: no
  // update, and the state is not read.
  bool evaluates = false;
};

// The program of a block for one task and one rule. Each of their functions is called at one place,
// where it becomes a part of the kernel.
template <class Task, class Rule>
class DeviceReplica {
 public:
  LOPT_DEVICE DeviceReplica(const Block& block, const DeviceWindow& window,
                            const typename Task::Args& task, const typename Rule::Args& rule,
                            int64_t b)
      : block_(block),
        window_(window),
        task_(task),
        rule_(rule),
        b_(b),
        params_(window.params + b * window.params_size),
        state_(window.state + b * window.state_size),
        config_(window.config + b * window.config_size) {
    const ReplicaPlan& plan = window.plan;
    float* shared = block.shared();
    replica_ = {.resident = plan.resident,
                .params = plan.resident ? shared + plan.params : params_,
                .gradient = plan.resident ? shared + plan.gradient
                                          : window.gradient + b * window.params_size,
                .state = plan.resident ? shared + plan.state : state_,
                .loss = shared + plan.result,
                .aux = shared + plan.result + 1,
                .weights = shared + plan.weights,
                .scratch = shared + plan.scratch};
  }

  LOPT_DEVICE_INLINE void Run() {
    Load();
    int64_t k = 0;
    for (int64_t s = window_.first_stretch[b_]; s < window_.first_stretch[b_ + 1]; ++s) {
      const DeviceStretch& stretch = window_.stretches[s];
      if (stretch.start >= 0) Begin(stretch.start);
      for (int64_t i = 0; i < stretch.count; ++i, ++k) {
        const int64_t step = stretch.step + i;
        if (k == 0 || ThetaChangesAt(step)) Bind(stretch.restarts, step);
        Step(stretch.keys, step, stretch.num_steps, k);
      }
    }
    if (!window_.evaluates) Store();
  }

 private:
  LOPT_DEVICE bool ThetaChangesAt(int64_t step) const {
    return window_.theta.block > 0 && step % window_.theta.block == 0;
  }

  LOPT_DEVICE_INLINE void Load() {
    if (!replica_.resident) return;
    block_.ForEach(window_.params_size, [&](int64_t i) { replica_.params[i] = params_[i]; });
    if (window_.evaluates) return;
    block_.ForEach(window_.state_size,
                   [&](int64_t i) { replica_.state[Rule::PlaceOfState(rule_, i)] = state_[i]; });
  }

  LOPT_DEVICE_INLINE void Store() {
    if (!replica_.resident) return;
    block_.ForEach(window_.params_size, [&](int64_t i) { params_[i] = replica_.params[i]; });
    block_.ForEach(window_.state_size,
                   [&](int64_t i) { state_[i] = replica_.state[Rule::PlaceOfState(rule_, i)]; });
  }

  // A new episode.
  LOPT_DEVICE_INLINE void Begin(int64_t start) {
    config_ = window_.starts + start * (window_.config_size + window_.params_size);
    const float* params = config_ + window_.config_size;
    block_.ForEach(window_.params_size, [&](int64_t i) { replica_.params[i] = params[i]; });
    block_.ForEach(window_.state_size, [&](int64_t i) {
      replica_.state[replica_.resident ? Rule::PlaceOfState(rule_, i) : i] = 0;
    });
  }

  LOPT_DEVICE_INLINE void Bind(int64_t restarts, int64_t step) {
    const DeviceTheta& theta = window_.theta;
    const float* numbers = theta.theta;
    Key key = {};
    float scale = 0;
    if (theta.pairs > 0) {
      const int64_t pair = b_ % theta.pairs;
      scale = b_ < theta.pairs ? theta.std : -theta.std;
      key = theta.keys[pair];
      if (theta.block > 0) {
        key = Threefry(key, static_cast<uint64_t>(theta.episodes[pair] + restarts));
        key = Threefry(key, static_cast<uint64_t>(step / theta.block));
      }
    }
    const auto row = [&](int64_t i) {
      return scale == 0 ? numbers[i] : numbers[i] + scale * NormalAt(key, static_cast<uint64_t>(i));
    };
    Rule::Bind(block_, rule_, row, replica_);
  }

  // One inner step: the training batch's loss and gradient, the update and, where the meta-loss is
  // that after it, another evaluation; or this one alone.
  LOPT_DEVICE_INLINE void Step(const EpisodeKeys& keys, int64_t step, int64_t num_steps,
                               int64_t k) {
    const auto number = static_cast<uint64_t>(step);
    const bool judges = window_.evaluates || !window_.before_update;
    LOPT_ROLLED
    for (int after = window_.evaluates ? 1 : 0; after <= (judges ? 1 : 0); ++after) {
      const bool fresh = after == 1 && window_.meta_split >= 0;
      const Key data = fresh ? keys.meta_data : keys.data;
      Task::Evaluate(block_, task_,
                     {.config = config_,
                      .split = fresh ? window_.meta_split : 0,
                      .key = window_.evaluates ? data : Threefry(data, number),
                      .order = fresh ? keys.meta_order : keys.order,
                      .step = step,
                      .gradient = after == 0,
                      .replica = b_},
                     replica_);
      if ((after == 1) == judges) {
        block_.Once([&] {
          window_.losses[b_ * window_.steps + k] = window_.aux ? *replica_.aux : *replica_.loss;
        });
      }
      if (after == 0) {
        Rule::Update(block_, rule_, {.step = step, .num_steps = num_steps}, replica_);
      }
    }
  }

  const Block& block_;
  const DeviceWindow& window_;
  const typename Task::Args& task_;
  const typename Rule::Args& rule_;
  const int64_t b_;
  float* params_;
  float* state_;
  const float* config_;
  Replica replica_;
};

}  // namespace lopt
