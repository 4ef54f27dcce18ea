#include "lopt/torch/recurrent.h"

#include <cmath>
#include <utility>

namespace lopt {
namespace {

int64_t GatesOf(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 4 : 3; }

// `from_input` [n, batch, 4 hidden] has the products with the input and both biases.
void StepLstm(const torch::Tensor& from_input, const torch::Tensor& weight_hh,
              RecurrentState* state) {
  torch::Tensor& h = (*state)[0];
  torch::Tensor& c = (*state)[1];
  const auto gates = torch::baddbmm(from_input, h, weight_hh).chunk(4, -1);
  c = torch::sigmoid(gates[1]) * c + torch::sigmoid(gates[0]) * torch::tanh(gates[2]);
  h = torch::sigmoid(gates[3]) * torch::tanh(c);
}

// `from_input` [n, batch, 3 hidden] has the products with the input and their bias alone. Sigmoids
// are taken of parts of a tensor, as in StepLstm: those of a whole one would have other bits in its
// last few elements, which torch computes one by one, so that equal replicas would differ.
void StepGru(const torch::Tensor& from_input, const torch::Tensor& weight_hh,
             const torch::Tensor& bias_hh, RecurrentState* state) {
  torch::Tensor& h = (*state)[0];
  const std::vector<int64_t> parts = {2 * h.size(2), h.size(2)};
  const auto input = from_input.split_with_sizes(parts, -1);
  const auto hidden = torch::baddbmm(bias_hh, h, weight_hh).split_with_sizes(parts, -1);
  const auto gates = (input[0] + hidden[0]).chunk(2, -1);
  const torch::Tensor reset = torch::sigmoid(gates[0]);
  const torch::Tensor keep = torch::sigmoid(gates[1]);
  const torch::Tensor proposed = torch::tanh(input[1] + reset * hidden[1]);
  h = proposed + keep * (h - proposed);
}

}  // namespace

NamedTensors RecurrentInit(RecurrentCell cell, Key key, const std::string& prefix, int64_t inputs,
                           int64_t hidden) {
  const int64_t rows = GatesOf(cell) * hidden;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto draw = [&](uint64_t tensor, torch::IntArrayRef shape) {
    return (2 * UniformTensor(FoldIn(key, tensor), shape) - 1) * bound;
  };
  return {{prefix + "weight_ih", draw(0, {rows, inputs})},
          {prefix + "weight_hh", draw(1, {rows, hidden})},
          {prefix + "bias_ih", draw(2, {rows})},
          {prefix + "bias_hh", draw(3, {rows})}};
}

RecurrentState RecurrentZeros(RecurrentCell cell, int64_t n, int64_t batch, int64_t hidden,
                              torch::Device device) {
  RecurrentState state(RecurrentStates(cell));
  for (torch::Tensor& tensor : state) tensor = torch::zeros({n, batch, hidden}, device);
  return state;
}

RecurrentOutput RunRecurrent(RecurrentCell cell, const torch::Tensor& x,
                             torch::ArrayRef<torch::Tensor> weights, RecurrentState state) {
  const int64_t n = x.size(0);
  const int64_t batch = x.size(1);
  const int64_t time = x.size(2);
  // Products with the inputs of all steps at once, steps first.
  const torch::Tensor by_step = x.transpose(1, 2).reshape({n, time * batch, x.size(3)});
  const torch::Tensor bias_ih = weights[2].unsqueeze(1);
  const torch::Tensor bias_hh = weights[3].unsqueeze(1);
  const torch::Tensor bias = cell == RecurrentCell::kLstm ? bias_ih + bias_hh : bias_ih;
  const auto from_input = torch::baddbmm(bias, by_step, weights[0].transpose(1, 2))
                              .view({n, time, batch, -1})
                              .unbind(1);
  const torch::Tensor weight_hh = weights[1].transpose(1, 2);
  std::vector<torch::Tensor> outputs;
  outputs.reserve(from_input.size());
  for (const torch::Tensor& step : from_input) {
    if (cell == RecurrentCell::kLstm) {
      StepLstm(step, weight_hh, &state);
    } else {
      StepGru(step, weight_hh, bias_hh, &state);
    }
    outputs.push_back(state[0]);
  }
  return {torch::stack(outputs, 2), std::move(state)};
}

double RecurrentFlops(RecurrentCell cell, int64_t batch, int64_t time, int64_t inputs,
                      int64_t hidden) {
  return 2.0 * static_cast<double>(batch * time) *
         static_cast<double>(GatesOf(cell) * hidden * (inputs + hidden));
}

}  // namespace lopt
