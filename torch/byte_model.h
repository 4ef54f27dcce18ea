#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/torch/byte_model_options.h"
#include "lopt/torch/torch_task.h"

namespace lopt {

// A model that predicts each byte of a window from those before it, computed for n replicas with
// weights of their own. Matrices are [inputs, outputs].
// - bigram: logits = w[byte] + b.
// - lstm, gru: an embedding, `layers` recurrent layers (torch/recurrent.h) whose initial states are
//   params, a linear layer.
// - transformer: an embedding of the byte and one of its place, `layers` blocks
//   x += attention(norm(x)), x += mlp(norm(x)) with causal attention of `heads` heads and an MLP of
//   4 width gelu units, a norm, a linear layer. Norms have gains and biases.
class ByteModel {
 public:
  // For windows of up to `length` bytes. Throws Error as CheckOptions does, and if a transformer's
  // width is no multiple of its heads.
  ByteModel(const ByteModelOptions& options, int64_t length);

  // Draws the weights of one replica.
  NamedTensors Init(Key key) const;

  // Logits of the byte that follows each of `bytes` (int64 [n, windows, time], time <= length):
  // [n, windows, time, 256]. `params` [n, ...] each, in Init's order.
  torch::Tensor Logits(const std::vector<torch::Tensor>& params, const torch::Tensor& bytes) const;

  // Floating-point operations of one replica's logits of `windows` windows and their gradient, as
  // TaskParts::flops counts them; a product with a one-hot vector counts as one of its rows.
  double Flops(int64_t windows) const;

 private:
  ByteModelOptions options_;
  int64_t length_;
};

}  // namespace lopt
