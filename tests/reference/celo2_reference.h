#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lopt/lopt/celo2/celo2_rule.h"
#include "lopt/lopt/network/plain_network.h"

namespace lopt {

// One step of a tensor as the definition of Celo2 reads, in float32.
struct Celo2Step {
  std::vector<float> features;    // [elements, 30 or 15], the inputs of the network
  std::vector<float> direction;   // [elements], its first output
  std::vector<float> orthogonal;  // the direction after Newton-Schulz, or as it is
  std::vector<float> step;        // that normalised
};

// The network of a theta.
PlainNetwork Celo2Network(std::span<const float> theta);

// Updates the state and computes the step; neither the params nor the step has the learning rate or
// the weight decay in it.
Celo2Step PlainCelo2Step(const Celo2Tensor& tensor, const PlainNetwork& network, bool orthogonal,
                         std::span<const float> gradient, std::span<const float> params,
                         std::span<float> state);

// Celo2Base and Celo2 as their definition reads. Theta and state are theirs.
class ReferenceCelo2Base : public Celo2Base {
 public:
  using Celo2Base::Celo2Base;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

class ReferenceCelo2 : public Celo2 {
 public:
  using Celo2::Celo2;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

}  // namespace lopt
