#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lopt/lopt/mlp/mlp_lopt.h"

namespace lopt {

// MLPLOpt as its definition reads, one parameter after the other in float32. Theta and state are
// those of MLPLOpt, so each can go on where the other stopped.
class ReferenceMLPLOpt : public MLPLOpt {
 public:
  using MLPLOpt::MLPLOpt;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

// The reference and the kernel's optimizer.
inline std::vector<std::shared_ptr<const MLPLOpt>> BothMLPLOpts(const MLPLOptOptions& options) {
  return {std::make_shared<ReferenceMLPLOpt>(options), std::make_shared<MLPLOpt>(options)};
}

}  // namespace lopt
