#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/adafac/adafac_mlp_lopt.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/network/packed_network.h"

namespace lopt {

// The rule of AdafacMLPLOpt at the machine's speed: what its definition computes, to rounding.
// One pass over a tensor updates the factored moments, a second the momenta and the mean
// squares of the features, a third runs the network with parameters in the lanes of the vectors.
// What the first layer gets from rows and columns is formed once for each row and each column. Time
// features, scales, pieces of large tensors and instruction sets are as in MakeMlpLoptKernel.
std::unique_ptr<UpdateRule> MakeAdafacMlpLoptKernel(const AdafacMLPLOptOptions& options,
                                                    const Layout& params, const Layout& state,
                                                    std::span<const float> theta);

// What those updates are made of.
struct AdafacKernelParts {
  AdafacPlaces at;
  AdafacDecays decays;
  std::vector<AdafacTensor> tensors;
  PackedNetwork network;
  float exp_mult;
  float step_mult;
  float momentum_epsilon;  // under the root of f'
};

// The updates themselves, also Celo's, which are of the same kind. Where the places have Celo's
// features the network has no times, and a tensor's steps are in proportion to
// sqrt(mean of p^2 + 1e-9).
class AdafacSteps {
 public:
  explicit AdafacSteps(AdafacKernelParts parts) : parts_(std::move(parts)) {}

  // One update, number `step`, in place; its steps are `multiplier` times as large. Thread-safe.
  void Update(float step, float multiplier, std::span<const float> gradient,
              std::span<float> params, std::span<float> state, Workspace& scratch) const;

 private:
  AdafacKernelParts parts_;
  mutable WorkspacePool workspaces_;
};

}  // namespace lopt
