#pragma once

#include <cstdint>
#include <span>

#include "lopt/base/layout.h"
#include "lopt/tasks/sequence/byte_sequences.h"

namespace lopt {

// Layers of an LSTM that read bytes (Hochreiter and Schmidhuber 1997, with the forget gate of Gers,
// Schmidhuber and Cummins 2000). x_t is the embedding of byte t, or what the layer before gives for
// it:
//   (i, f, g, o) = x_t W + b + h_t-1 U + d,   c_t = s(f) c_t-1 + s(i) tanh(g),
//   h_t = s(o) tanh(c_t),
// with s the sigmoid and h and c 0 before the first byte, and a linear layer on each h_t of the
// last layer.
struct LstmShape {
  int64_t length = 0;  // bytes of a sequence
  int64_t width = 0;   // of embeddings and states
  int64_t layers = 0;

  // How many sequences a kernel takes at a time.
  int64_t sequences_of_part() const;
  int64_t weights() const { return width * 4 * width; }
  int64_t layer_params() const { return 2 * (weights() + 4 * width); }
  int64_t params() const { return (2 * width + 1) * kByteValues + layers * layer_params(); }
};

// The params, C order: "embedding" [width, 256], the columns of the bytes; of each layer l
// "lstm_l/inputs/w" W [width, 4 width], "lstm_l/inputs/b" b [4 width], "lstm_l/states/w" U [width,
// 4 width], "lstm_l/states/b" d [4 width], columns in the order of the gates, which is PyTorch's;
// and "logits/w" [width, 256], "logits/b" [256].
Layout LstmLayout(const LstmShape& shape);

// What to evaluate of an LSTM, and where the gradient goes.
struct LstmEvaluation {
  std::span<const float> params;
  std::span<float> gradient = {};  // out; empty: not wanted
};

}  // namespace lopt
