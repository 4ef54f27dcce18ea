#pragma once

#include <cstdint>
#include <optional>

#include "lopt/base/workspace.h"
#include "lopt/lopt/network/packed_network.h"
#include "lopt/lopt/network/tile_layers.h"

namespace lopt {

// Runs a network whose precision is kBfloat16, on AMX where its weights were packed for it and the
// thread's instruction set is AVX-512. The hidden layers have the same bits everywhere; the output
// layer those of the instruction set. One thread's, which may run nothing else on AMX meanwhile.
class Bfloat16Layers {
 public:
  // The inputs' weights are net.input; those of scratch are not read. Memory comes from the
  // workspace and is valid in its frame. Network and scratch outlive this.
  Bfloat16Layers(const NetworkWeights& net, const NetworkScratch& scratch, Workspace& workspace);

  // Sets outputs[16 b + i] and outputs[kStretch + 16 b + i] to the two outputs of parameter i of
  // block b, b < blocks, whose features are at features[(b inputs + k) 16 + i]. Both arrays are
  // aligned to 64 bytes and have room for a multiple of four blocks, the last of which may be
  // written to. Denormal numbers are to be flushed (FlushDenormals).
  void Outputs(const float* features, int64_t blocks, float* outputs) const;

 private:
  const NetworkWeights& net_;
  const NetworkScratch& scratch_;
  std::optional<TileLayers> tiles_;
};

}  // namespace lopt
