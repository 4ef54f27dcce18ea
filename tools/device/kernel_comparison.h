#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lopt/base/device.h"

namespace lopt {

// What a device's kernels gave beside what the host gives.
struct KernelComparison {
  std::string kernel = "";  // its optimizer, as a config
  std::string on = "";      // what it ran on
  int64_t replicas = 0;     // and how many
  int64_t steps = 0;        // inner steps of each
  // The largest difference of a loss, and of a number of the params, the optimizer's state or a
  // gradient's, each relative to the largest of its kind.
  double losses = 0;
  double numbers = 0;
  double tolerance = 0;
  // Whether a second run gave the same losses, and the same bits of all else.
  bool repeats = false;
  std::string error = "";  // of what threw; else empty
  // Why nothing was compared: what it needs is not on this machine. Else empty.
  std::string left_out = "";
  bool passed() const {
    return !left_out.empty() ||
           (error.empty() && repeats && losses <= tolerance && numbers <= tolerance);
  }
};

// Compares every kernel with the host: draws; the gradients of pairs; each rule for tensors of
// ranks 0 to 5 and odd sizes, of hidden sizes up to 64 and depths up to 4, over `steps` inner steps
// with the same gradients fed (LinearTask), for a few also such as no float32 holds the squares of;
// replicas in the memory of blocks and not; episodes that end inside windows, under each clock of
// perturbations and the meta-losses before_update, same_data, train and inner_valid; every task
// under a rule for a few steps, as errors grow where a loss's own gradients are followed, a torch
// task with a model state among them; and behind the last window an evaluation by itself. `each`
// gets them one by one.
void CompareKernels(const Device& device, int64_t steps,
                    const std::function<void(const KernelComparison&)>& each);

}  // namespace lopt
