#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lopt/lopt/adafac/adafac_mlp_lopt.h"

namespace lopt {

// AdafacMLPLOpt as its definition reads, one parameter after the other in float32. Theta and state
// are those of AdafacMLPLOpt.
class ReferenceAdafacMLPLOpt : public AdafacMLPLOpt {
 public:
  using AdafacMLPLOpt::AdafacMLPLOpt;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

// The reference and the kernel's optimizer.
inline std::vector<std::shared_ptr<const AdafacMLPLOpt>> BothAdafacMLPLOpts(
    const AdafacMLPLOptOptions& options) {
  return {std::make_shared<ReferenceAdafacMLPLOpt>(options),
          std::make_shared<AdafacMLPLOpt>(options)};
}

}  // namespace lopt
