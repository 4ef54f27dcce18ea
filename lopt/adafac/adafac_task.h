#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/workspace.h"
#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/network/packed_network.h"

// What the kernel of AdafacMLPLOpt and Celo works on, whatever instruction set it is compiled for.
namespace lopt {

// What one call works on, and the memory it may use.
struct AdafacTask {
  const NetworkWeights* network;
  const AdafacPlaces* at;
  const AdafacDecays* decays;
  std::span<const AdafacTensor> tensors;
  float exp_mult;
  float step_mult;
  float momentum_epsilon;  // under the root of f'
  float step;              // without meaning where `at` has Celo's features: it has no times
  const float* gradient;
  float* params;
  float* state;
  Workspace* workspace;
  WorkspacePool* workspaces;  // for other threads
};

// Parameters whose features are formed before the network runs on them.
constexpr int64_t kAdafacTile = 96;
// From one row of numbers about a tile to the next: whole vectors may be written behind the tile.
constexpr int64_t kAdafacRow = kAdafacTile + 16;

// Parameters of a tensor whose squares are summed in float32, in lanes, and that one thread
// updates.
constexpr int64_t kAdafacPiece = 1 << 16;

// Rows of numbers about a tensor's rows (or columns), each followed by a vector of zeros.
struct AdafacAxis {
  int64_t size;
  int64_t stride;
  float* moments;  // [F, stride]
  float* rsqrt;    // [F, stride]: rsqrt(moments + 1e-8)
  float* factors;  // [F, stride]
  float* biases;   // [units, stride]: what the first layer gets from moments and rsqrt
};

// A tensor during an update.
struct AdafacUpdate {
  const AdafacTensor* tensor;
  float step_mult;
  const float* g;
  float* p;
  float* m;
  float* rms;
  float* v;        // of a tensor of fewer than two axes
  AdafacAxis row;  // of one of two axes or more
  AdafacAxis col;
  int64_t dense;  // features that the network reads parameter by parameter
};

}  // namespace lopt
