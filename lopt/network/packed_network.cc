#include "lopt/lopt/network/packed_network.h"

#include <algorithm>

#include "lopt/lopt/network/tile_layers.h"

namespace lopt {

PackedLinear::PackedLinear(int64_t in, int64_t units, std::span<const Group> groups)
    : inputs_(in),
      group_((units + 15) / 16 * 16),
      width_(group_ * std::ssize(groups)),
      lines_((in + 1) * width_ / 16) {
  float* to = lines_.front().x;
  for (const Group& group : groups) {
    for (int64_t i = 0; i < in; ++i) {
      std::copy_n(group.weights + i * group.row, units, to + i * width_);
    }
    std::copy_n(group.bias, units, to + in * width_);
    to += group_;
  }
}

PackedNetwork::PackedNetwork(int64_t inputs, int64_t times, int64_t hidden, int64_t layers,
                             std::span<const float> theta, Precision precision) {
  const int64_t lines = 2 * ((hidden + 31) / 32);
  const int64_t stride = 16 * lines;
  const int64_t inner_rows = (layers - 1) * (hidden + 1);
  const int64_t input_rows = inputs + times + 1;
  lines_.resize((input_rows + inner_rows + 2) * lines);
  float* packed = lines_.front().x;
  const float* from = theta.data();
  for (int64_t row = 0; row < input_rows + inner_rows; ++row) {
    std::copy_n(from, hidden, packed + row * stride);
    from += hidden;
  }
  float* output = packed + (input_rows + inner_rows) * stride;
  for (int64_t j = 0; j < hidden; ++j) {
    output[j] = from[2 * j];
    output[stride + j] = from[2 * j + 1];
  }
  from += 2 * hidden;
  weights_ = {.hidden = hidden,
              .stride = stride,
              .layers = layers,
              .inputs = inputs,
              .input = packed,
              .times = packed + inputs * stride,
              .input_bias = packed + (input_rows - 1) * stride,
              .inner = packed + input_rows * stride,
              .output = {output, output + stride},
              .output_bias = {from[0], from[1]},
              .precision = precision,
              .tiles = nullptr};
  if (precision == Precision::kFloat32) return;
  const auto round = [&](float* first, int64_t rows) {
    std::transform(first, first + rows * stride, first, RoundToBfloat16);
  };
  round(packed, inputs);
  for (int64_t l = 0; l + 1 < layers; ++l) {
    round(packed + (input_rows + l * (hidden + 1)) * stride, hidden);
  }
  if (HaveTiles()) {
    tiles_ = std::make_shared<const TileWeights>(weights_);
    weights_.tiles = tiles_.get();
  }
}

NetworkScratch::NetworkScratch(const NetworkWeights& net, Workspace& scratch)
    : bias(scratch.Take<float>(net.stride).data()),
      input(scratch.Take<float>(net.inputs * net.stride).data()),
      hidden0(scratch.Take<float>(kHiddenRow * net.stride).data()),
      hidden1(scratch.Take<float>(kHiddenRow * net.stride).data()),
      outputs(scratch.Take<float>(2 * kStretch).data()) {}

}  // namespace lopt
