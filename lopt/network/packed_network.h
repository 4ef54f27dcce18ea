#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lopt/base/workspace.h"
#include "lopt/lopt/network/precision.h"

namespace lopt {

class TileWeights;

// Aligned for every vector.
struct alignas(64) FloatLine {
  float x[16];
};

// A layer x W + b as the kernels read it: row i of W has the weights of input i. Its outputs come
// in groups of `units`, each padded by zeros to a multiple of 16 and aligned for every vector.
class PackedLinear {
 public:
  // A group of outputs: weights [in, units], whose rows are `row` floats apart, and biases [units].
  struct Group {
    const float* weights;
    int64_t row;
    const float* bias;
  };

  PackedLinear(int64_t in, int64_t units, std::span<const Group> groups);

  int64_t inputs() const { return inputs_; }
  int64_t group() const { return group_; }                   // floats from one group to the next
  int64_t width() const { return width_; }                   // of all groups
  const float* weights() const { return lines_.front().x; }  // [inputs, width]
  const float* bias() const { return weights() + inputs_ * width_; }

 private:
  int64_t inputs_;
  int64_t group_;
  int64_t width_;
  std::vector<FloatLine> lines_;
};

// The weights of a network with two outputs as the kernels read them: every row padded by zeros to
// `stride`, a multiple of 32, and aligned for every vector.
struct NetworkWeights {
  int64_t hidden;
  int64_t stride;
  int64_t layers;           // hidden layers
  int64_t inputs;           // features that depend on the parameter
  const float* input;       // [inputs, stride]: of the features that depend on the parameter
  const float* times;       // [times, stride]: of those that depend on the step alone
  const float* input_bias;  // [stride]
  const float* inner;       // layers - 1 times: weights [hidden, stride], then bias [stride]
  const float* output[2];   // [stride] each
  float output_bias[2];
  Precision precision;       // kBfloat16: input and inner weights are rounded to it
  const TileWeights* tiles;  // of kBfloat16, for AMX; null where there is none
};

// A network packed from theta, which holds [inputs + times, hidden] weights and the bias of the
// first layer, weights and bias of the other hidden layers, [hidden, 2] weights and the 2 biases.
class PackedNetwork {
 public:
  PackedNetwork(int64_t inputs, int64_t times, int64_t hidden, int64_t layers,
                std::span<const float> theta, Precision precision = Precision::kFloat32);

  const NetworkWeights& weights() const { return weights_; }

 private:
  std::vector<FloatLine> lines_;
  NetworkWeights weights_;
  std::shared_ptr<const TileWeights> tiles_;
};

// The outputs of so many parameters are kept until the parameters are stepped together.
constexpr int64_t kStretch = 384;

// Floats that the tiles may keep per hidden unit: three vectors of 16 parameters.
constexpr int64_t kHiddenRow = 48;

// What one run of the network needs besides its weights. The first layer is read from here, so that
// a kernel may fold into it what is the same for all parameters. Of a row's places behind the
// hidden units it need only write those of the last unit's vector.
struct NetworkScratch {
  NetworkScratch(const NetworkWeights& net, Workspace& scratch);

  float* bias;     // [stride]: input_bias, and what the caller folds into it
  float* input;    // [inputs, stride]: the input weights, scaled by the caller
  float* hidden0;  // kHiddenRow floats for each unit
  float* hidden1;
  float* outputs;  // [2, kStretch]
};

}  // namespace lopt
