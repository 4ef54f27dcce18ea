#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/torch/recurrent_cell.h"
#include "lopt/torch/torch_task.h"

namespace lopt {

// A recurrent layer whose n replicas have weights of their own. The cells and their weights are
// those of torch::nn::LSTM and torch::nn::GRU:
// - LSTM, gates i f g o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c');
// - GRU, gates r z n: n = tanh(W_in x + b_in + sigmoid(r) (W_hn h + b_hn)),
//   h' = (1 - sigmoid(z)) n + sigmoid(z) h.

// h, and of an LSTM c after it: [n, batch, hidden] each.
using RecurrentState = std::vector<torch::Tensor>;
constexpr size_t RecurrentStates(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm ? 2 : 1;
}

// The weights of one replica, G the number of gates: prefix + "weight_ih" [G hidden, inputs],
// "weight_hh" [G hidden, hidden], "bias_ih" and "bias_hh" [G hidden], in this order, each uniform
// on +-1 / sqrt(hidden).
constexpr size_t kRecurrentWeights = 4;
NamedTensors RecurrentInit(RecurrentCell cell, Key key, const std::string& prefix, int64_t inputs,
                           int64_t hidden);

// A state of zeros.
RecurrentState RecurrentZeros(RecurrentCell cell, int64_t n, int64_t batch, int64_t hidden,
                              torch::Device device = torch::kCPU);

struct RecurrentOutput {
  torch::Tensor outputs;  // h after each step: [n, batch, time, hidden]
  RecurrentState state;   // after the last step
};

// Runs the layer over x [n, batch, time, inputs], time >= 1, from `state`. `weights` [n, ...] each,
// as RecurrentInit has them.
RecurrentOutput RunRecurrent(RecurrentCell cell, const torch::Tensor& x,
                             torch::ArrayRef<torch::Tensor> weights, RecurrentState state);

// Multiplications and additions of one replica's forward pass, those of its two products.
double RecurrentFlops(RecurrentCell cell, int64_t batch, int64_t time, int64_t inputs,
                      int64_t hidden);

}  // namespace lopt
