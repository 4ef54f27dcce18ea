#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/base/layout.h"
#include "lopt/lopt/celo/celo.h"

namespace lopt {

// A tensor's moments under Celo: m_k and r of each element, and row_k and col_k of its rows and
// columns; v_k is `row` of a tensor of fewer than two axes.
struct CeloMoments {
  std::span<float> m;    // [3, size]
  std::span<float> r;    // [size]
  std::span<float> row;  // [3, rows]
  std::span<float> col;  // [3, cols]
};

// Those of the first tensor with elements in a state whose run's numbers are left out; advances the
// span behind them.
CeloMoments TakeCeloMoments(const Shape& shape, std::span<float>* state);

// Updates the moments with a gradient, and returns the inputs of the network, [elements, 30].
std::vector<float> PlainCeloFeatures(const Shape& shape, std::span<const float> gradient,
                                     std::span<const float> params, const CeloMoments& moments);

// CeloScheduler::Step as its definition reads, with libm's functions; the losses' features are
// CeloScheduler's. `theta` has the layout.
float PlainSchedulerStep(int64_t lstm_size, const Layout& layout, std::span<const float> theta,
                         const StepInfo& info, std::span<float> state);

// Celo as its definition reads, one parameter after the other in float32. Theta and state are
// Celo's.
class ReferenceCelo : public Celo {
 public:
  using Celo::Celo;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

// CeloAdam and Sinv6 likewise.
class ReferenceCeloAdam : public CeloAdam {
 public:
  using CeloAdam::CeloAdam;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

class ReferenceSinv6 : public Sinv6 {
 public:
  using Sinv6::Sinv6;

 private:
  std::unique_ptr<UpdateRule> DoBind(const Layout& params,
                                     std::span<const float> theta) const override;
};

}  // namespace lopt
