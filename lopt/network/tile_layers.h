#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lopt/base/workspace.h"
#include "lopt/lopt/network/packed_network.h"

namespace lopt {

// The hidden layers of a network whose precision is kBfloat16 on AMX, the matrix unit of Intel's
// servers since Sapphire Rapids: the bits of bfloat16_layers_kernel.cc, several times faster.

// Whether the processor has AMX and AVX512-BF16 and the system lets this process use them. Asks the
// system once.
bool HaveTiles();

// While it lives, HaveTiles is false, so that a network that is packed meanwhile does without: for
// tests and benchmarks. One at a time.
class WithoutTiles {
 public:
  WithoutTiles();
  ~WithoutTiles();
  WithoutTiles(const WithoutTiles&) = delete;
  WithoutTiles& operator=(const WithoutTiles&) = delete;
};

// The weights of the hidden layers, bfloat16, in tiles of 16 hidden units by 32 inputs.
class TileWeights {
 public:
  // The network is one of kBfloat16 and outlives this.
  explicit TileWeights(const NetworkWeights& net);

 private:
  friend class TileLayers;

  struct alignas(64) Line {
    uint16_t x[32];
  };
  struct Layer {
    const Line* weights;  // [unit_tiles, input_tiles, 16]
    const float* bias;    // [16 unit_tiles, 16], every row one number; null in the first layer
    int64_t input_tiles;
  };

  int64_t inputs_;
  int64_t hidden_;
  int64_t unit_tiles_;
  const float* output_[2];
  float output_bias_[2];
  std::vector<Line> lines_;
  std::vector<Layer> layers_;
};

// What one thread needs to run the layers, from its construction to its end, in which it may run
// nothing else on AMX.
class TileLayers {
 public:
  // `bias` [hidden] is that of the first layer. The memory is the workspace's, valid in its frame.
  TileLayers(const TileWeights& weights, const float* bias, Workspace& workspace);
  ~TileLayers();
  TileLayers(const TileLayers&) = delete;
  TileLayers& operator=(const TileLayers&) = delete;

  // Sets outputs[16 b + i] and outputs[kStretch + 16 b + i] to the two outputs of parameter i of
  // block b, b < blocks, whose features are at features[(b inputs + k) 16 + i]. Blocks are taken
  // four at a time, so both arrays have room for a multiple of four.
  void Outputs(const float* features, int64_t blocks, float* outputs) const;

 private:
  void OutputsOfFour(const float* features, float* outputs) const;

  using Line = TileWeights::Line;

  const TileWeights& weights_;
  float* bias_;     // [16 unit_tiles, 16]
  Line* features_;  // [4, input_tiles, 16]: of the first layer, pairs of inputs side by side
  Line* hidden_;    // the same of the others
  float* sums_;     // [4, 16 unit_tiles, 16]
};

}  // namespace lopt
