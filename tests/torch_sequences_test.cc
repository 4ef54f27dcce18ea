// The headers of LibTorch define a CHECK, which doctest's must replace.
// clang-format off
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/rnn.h>
#include <doctest/doctest.h>
// clang-format on

#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "torch/recurrent.h"

namespace lopt {
namespace {

// One layer of torch's own, its weights those of row `row`. Returns its outputs and last state.
struct Expected {
  torch::Tensor outputs;  // [batch, time, hidden]
  RecurrentState state;   // [batch, hidden] each
};

template <class Module>
void SetWeights(Module& module, const std::vector<torch::Tensor>& weights, int64_t row) {
  const torch::NoGradGuard no_grad;
  auto params = module->parameters();
  for (size_t p = 0; p < kRecurrentWeights; ++p) params[p].copy_(weights[p][row]);
}

Expected RunTorch(RecurrentCell cell, const torch::Tensor& x,
                  const std::vector<torch::Tensor>& weights, const RecurrentState& state,
                  int64_t row, std::vector<torch::Tensor>* params) {
  const int64_t inputs = x.size(3);
  const int64_t hidden = state[0].size(2);
  const auto of_row = [&](const torch::Tensor& tensor) { return tensor[row].unsqueeze(0); };
  if (cell == RecurrentCell::kLstm) {
    torch::nn::LSTM lstm(torch::nn::LSTMOptions(inputs, hidden).batch_first(true));
    SetWeights(lstm, weights, row);
    *params = lstm->parameters();
    const auto [outputs, last] =
        lstm->forward(x[row], std::tuple(of_row(state[0]), of_row(state[1])));
    return {outputs, {std::get<0>(last)[0], std::get<1>(last)[0]}};
  }
  torch::nn::GRU gru(torch::nn::GRUOptions(inputs, hidden).batch_first(true));
  SetWeights(gru, weights, row);
  *params = gru->parameters();
  const auto [outputs, last] = gru->forward(x[row], of_row(state[0]));
  return {outputs, {last[0]}};
}

double MaxDistance(const torch::Tensor& a, const torch::Tensor& b) {
  REQUIRE_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

// A number that depends on every output and on the last state, all with different weights.
torch::Tensor Score(const torch::Tensor& outputs, const RecurrentState& state) {
  const auto weighted = [](const torch::Tensor& tensor) {
    return (tensor * torch::linspace(-1, 2, tensor.numel()).view_as(tensor)).sum();
  };
  torch::Tensor sum = weighted(outputs);
  for (const torch::Tensor& tensor : state) sum = sum + weighted(tensor.square());
  return sum;
}

}  // namespace

TEST_CASE("Recurrent layers of several replicas are torch's LSTM and GRU of each, with gradients") {
  const int64_t n = 3;
  for (const RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
    INFO(NameOf("cell", cell, kRecurrentCells));
    for (const auto& [batch, time, inputs, hidden] :
         std::vector<std::array<int64_t, 4>>{{4, 6, 5, 7}, {1, 1, 1, 3}, {2, 9, 1, 32}}) {
      CAPTURE(hidden);
      std::vector<torch::Tensor> weights;
      for (size_t p = 0; p < kRecurrentWeights; ++p) {
        std::vector<torch::Tensor> rows;
        for (int64_t row = 0; row < n; ++row) {
          rows.push_back(RecurrentInit(cell, KeyFromSeed(row), "", inputs, hidden)[p].second);
        }
        weights.push_back(torch::stack(rows).requires_grad_());
      }
      const torch::Tensor x = NormalTensor(KeyFromSeed(5), {n, batch, time, inputs});
      RecurrentState state = RecurrentZeros(cell, n, batch, hidden);
      for (size_t s = 0; s < state.size(); ++s) {
        CHECK_EQ(state[s].abs().max().item<float>(), 0);
        state[s] = NormalTensor(KeyFromSeed(6 + s), {n, batch, hidden}).requires_grad_();
      }
      const RecurrentOutput got = RunRecurrent(cell, x, weights, state);
      REQUIRE_EQ(got.outputs.sizes(), torch::IntArrayRef({n, batch, time, hidden}));
      for (int64_t row = 0; row < n; ++row) {
        CAPTURE(row);
        std::vector<torch::Tensor> params;
        const Expected wanted = RunTorch(cell, x, weights, state, row, &params);
        CHECK_LE(MaxDistance(got.outputs[row], wanted.outputs), 1e-6);
        RecurrentState last;
        for (size_t s = 0; s < state.size(); ++s) {
          CHECK_LE(MaxDistance(got.state[s][row], wanted.state[s]), 1e-6);
          last.push_back(got.state[s][row]);
        }
        std::vector<torch::Tensor> ours = weights;
        ours.insert(ours.end(), state.begin(), state.end());
        const auto got_gradients =
            torch::autograd::grad({Score(got.outputs[row], last)}, ours, {}, /*retain_graph=*/true);
        params.insert(params.end(), state.begin(), state.end());
        const auto wanted_gradients =
            torch::autograd::grad({Score(wanted.outputs, wanted.state)}, params);
        for (size_t g = 0; g < ours.size(); ++g) {
          CAPTURE(g);
          const torch::Tensor expected =
              g < kRecurrentWeights ? wanted_gradients[g] : wanted_gradients[g][row];
          CHECK_LE(MaxDistance(got_gradients[g][row], expected),
                   1e-5 * (1 + expected.abs().max().item<double>()));
        }
      }
    }
  }
}

TEST_CASE("Weights of recurrent layers have torch's shapes, names and bounds") {
  const NamedTensors lstm = RecurrentInit(RecurrentCell::kLstm, KeyFromSeed(1), "rnn/", 5, 25);
  const std::vector<std::pair<std::string, std::vector<int64_t>>> wanted = {
      {"rnn/weight_ih", {100, 5}},
      {"rnn/weight_hh", {100, 25}},
      {"rnn/bias_ih", {100}},
      {"rnn/bias_hh", {100}}};
  REQUIRE_EQ(lstm.size(), wanted.size());
  for (size_t p = 0; p < lstm.size(); ++p) {
    CHECK_EQ(lstm[p].first, wanted[p].first);
    CHECK_EQ(lstm[p].second.sizes(), torch::IntArrayRef(wanted[p].second));
    CHECK_LE(lstm[p].second.abs().max().item<float>(), 0.2F);
    CHECK_GT(lstm[p].second.abs().max().item<float>(), 0.19F);
    CHECK_LE(std::abs(lstm[p].second.mean().item<float>()), 0.04F);
  }
  CHECK_FALSE(lstm[2].second.equal(lstm[3].second));
  CHECK_EQ(RecurrentInit(RecurrentCell::kGru, KeyFromSeed(1), "", 5, 25)[1].second.sizes(),
           torch::IntArrayRef({75, 25}));
  CHECK_EQ(RecurrentFlops(RecurrentCell::kLstm, 2, 3, 5, 25), 2 * 2 * 3 * 100 * (5 + 25));
}

}  // namespace lopt
