// The headers of LibTorch define a CHECK, which doctest's must replace.
// clang-format off
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <doctest/doctest.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/data/text_data.h"
#include "lopt/tasks/data/word_source.h"
#include "lopt/torch/byte_model.h"
#include "lopt/torch/recurrent.h"
#include "lopt/torch/registry.h"
#include "tests/error_of.h"
#include "tests/golden_dir.h"
#include "tests/temp_directory.h"

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

std::shared_ptr<const TaskFamily> MakeTask(const std::string& config) {
  return TorchTaskRegistry().Make(Config::Parse(config, "test"), TaskResources(""));
}

// The loss of one task on these examples; gradients and a model state where they are given.
struct TaskScore {
  float loss = 0;
  float accuracy = 0;
};
TaskScore EvaluateTask(const TaskFamily& task, std::span<const float> params,
                       std::span<const int32_t> examples, std::span<float> gradients = {},
                       std::span<float> model_state = {}, Split split = Split::kTrain) {
  TaskScore score;
  Workspace scratch;
  const Key key{};
  task.Evaluate(
      {.params = params,
       .model_state = model_state,
       .split = split,
       .keys = {&key, 1},
       .examples = examples,
       .losses = {&score.loss, 1},
       .gradients = gradients,
       .aux = task.aux_layout().size() == 0 ? std::span<float>() : std::span(&score.accuracy, 1)},
      scratch);
  return score;
}

// Adam with the usual decays, as torch has it.
class Adam {
 public:
  explicit Adam(size_t size) : first_(size), second_(size) {}

  void Update(double rate, std::span<const float> gradients, std::span<float> params) {
    ++steps_;
    const double first_sum = 1 - std::pow(.9, steps_);
    const double second_sum = 1 - std::pow(.999, steps_);
    for (size_t i = 0; i < params.size(); ++i) {
      const double g = gradients[i];
      first_[i] += .1 * (g - first_[i]);
      second_[i] += .001 * (g * g - second_[i]);
      params[i] -= static_cast<float>(rate * (first_[i] / first_sum) /
                                      (std::sqrt(second_[i] / second_sum) + 1e-8));
    }
  }

 private:
  int steps_ = 0;
  std::vector<double> first_;
  std::vector<double> second_;
};

constexpr ByteBody kEveryBody[] = {ByteBody::kBigram, ByteBody::kLstm, ByteBody::kGru,
                                   ByteBody::kTransformer};

// Weights of n replicas, [n, ...] each, none of them at a special value such as 0 or 1.
std::vector<torch::Tensor> DrawByteWeights(const ByteModel& model, int64_t n) {
  std::vector<torch::Tensor> params;
  for (size_t p = 0; p < model.Init(Key{}).size(); ++p) {
    std::vector<torch::Tensor> rows;
    for (int64_t row = 0; row < n; ++row) {
      const torch::Tensor drawn = model.Init(KeyFromSeed(row))[p].second;
      rows.push_back(drawn + 0.1 * NormalTensor(FoldIn(KeyFromSeed(100 + row), p), drawn.sizes()));
    }
    params.push_back(torch::stack(rows));
  }
  return params;
}

// The logits of replica `row` of `bytes` [windows, time], computed by torch's modules.
class TorchByteModel {
 public:
  TorchByteModel(const ByteModelOptions& options, const std::vector<torch::Tensor>& params,
                 int64_t row)
      : options_(options), params_(params), row_(row) {}

  torch::Tensor Logits(const torch::Tensor& bytes) {
    torch::Tensor x =
        Next().index_select(0, bytes.flatten()).view({bytes.size(0), bytes.size(1), -1});
    if (options_.body == ByteBody::kBigram) return x + Next();
    if (options_.body == ByteBody::kTransformer) x = x + Next().slice(0, 0, bytes.size(1));
    for (int64_t l = 0; l < options_.layers; ++l) {
      x = options_.body == ByteBody::kTransformer ? Block(x) : Recurrent(x);
    }
    if (options_.body == ByteBody::kTransformer) x = Norm(x);
    return Linear(x);
  }

 private:
  torch::Tensor Next() { return params_[next_++][row_]; }
  torch::Tensor Linear(const torch::Tensor& x) {
    const torch::Tensor w = Next();
    return torch::linear(x, w.t(), Next());
  }
  torch::Tensor Norm(const torch::Tensor& x) {
    torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({options_.width}));
    SetParams(norm, {Next(), Next()});
    return norm->forward(x);
  }
  torch::Tensor Recurrent(const torch::Tensor& x) {
    const bool lstm = options_.body == ByteBody::kLstm;
    std::vector<torch::Tensor> weights(params_.begin() + next_,
                                       params_.begin() + next_ + kRecurrentWeights);
    next_ += kRecurrentWeights;
    RecurrentState state;
    for (int s = 0; s < (lstm ? 2 : 1); ++s) {
      state.push_back(params_[next_++].unsqueeze(1).expand({-1, x.size(0), -1}).contiguous());
    }
    std::vector<torch::Tensor> unused;
    return RunTorch(lstm ? RecurrentCell::kLstm : RecurrentCell::kGru,
                    x.unsqueeze(0).expand({params_[0].size(0), -1, -1, -1}), weights, state, row_,
                    &unused)
        .outputs;
  }
  torch::Tensor Block(const torch::Tensor& x) {
    const torch::Tensor normed = Norm(x).transpose(0, 1);  // [time, windows, width]
    torch::nn::MultiheadAttention attention(
        torch::nn::MultiheadAttentionOptions(options_.width, options_.heads));
    const torch::Tensor in_w = Next().t();
    const torch::Tensor in_b = Next();
    const torch::Tensor out_w = Next().t();
    const torch::Tensor out_b = Next();
    {
      const torch::NoGradGuard no_grad;
      attention->in_proj_weight.copy_(in_w);
      attention->in_proj_bias.copy_(in_b);
      attention->out_proj->weight.copy_(out_w);
      attention->out_proj->bias.copy_(out_b);
    }
    const torch::Tensor hidden =
        torch::full({x.size(1), x.size(1)}, -INFINITY).triu(1);  // is added
    const torch::Tensor mixed =
        std::get<0>(attention->forward(normed, normed, normed, {}, false, hidden));
    const torch::Tensor after = x + mixed.transpose(0, 1);
    const torch::Tensor units = torch::nn::functional::gelu(Linear(Norm(after)));
    return after + Linear(units);
  }
  template <class Module>
  static void SetParams(Module& module, const std::vector<torch::Tensor>& values) {
    const torch::NoGradGuard no_grad;
    auto params = module->parameters();
    for (size_t p = 0; p < values.size(); ++p) params[p].copy_(values[p]);
  }

  ByteModelOptions options_;
  const std::vector<torch::Tensor>& params_;
  int64_t row_;
  size_t next_ = 0;
};

}  // namespace

TEST_CASE("Recurrent layers of several replicas are torch's LSTM and GRU of each, with gradients") {
  const int64_t n = 3;
  for (const RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
    INFO(std::string(NameOf("cell", cell, kRecurrentCells)));
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

TEST_CASE("Models of bytes of several replicas are those of torch's modules") {
  const int64_t n = 2;
  const torch::Tensor bytes = RandintTensor(KeyFromSeed(3), 0, 256, {n, 3, 6});
  for (const ByteBody body : kEveryBody) {
    INFO(std::string(NameOf("body", body, kByteBodies)));
    const ByteModelOptions options{.body = body, .width = 12, .layers = 2, .heads = 3};
    const ByteModel model(options, /*length=*/7);
    const std::vector<torch::Tensor> params = DrawByteWeights(model, n);
    const torch::Tensor got = model.Logits(params, bytes);
    REQUIRE_EQ(got.sizes(), torch::IntArrayRef({n, 3, 6, 256}));
    for (int64_t row = 0; row < n; ++row) {
      const torch::Tensor wanted = TorchByteModel(options, params, row).Logits(bytes[row]);
      CHECK_LE(MaxDistance(got[row], wanted), 1e-5);
    }
  }
}

TEST_CASE("No prediction of a model of bytes depends on a later byte") {
  constexpr int64_t kChanged = 4;
  const torch::Tensor bytes = RandintTensor(KeyFromSeed(3), 0, 256, {1, 2, 7});
  torch::Tensor other = bytes.clone();
  other[0][1][kChanged] = (other[0][1][kChanged] + 1) % 256;
  for (const ByteBody body : kEveryBody) {
    INFO(std::string(NameOf("body", body, kByteBodies)));
    const ByteModel model({.body = body, .width = 8, .layers = 2, .heads = 2}, 7);
    const std::vector<torch::Tensor> params = DrawByteWeights(model, 1);
    const torch::Tensor change = (model.Logits(params, other) - model.Logits(params, bytes)).abs();
    CHECK_EQ(change[0][0].max().item<float>(), 0);
    for (int64_t t = 0; t < 7; ++t) {
      CAPTURE(t);
      const float largest = change[0][1][t].max().item<float>();
      if (t < kChanged || (t > kChanged && body == ByteBody::kBigram)) {
        CHECK_EQ(largest, 0);
      } else {
        CHECK_GT(largest, 1e-4F);
      }
    }
  }
}

TEST_CASE("Models of bytes have the weights that their formulas say") {
  const auto count = [](const std::string& config) {
    return MakeTask(config)->params_layout().size();
  };
  const int64_t w = 32;
  const int64_t both_ends = 256 * w + w * 256 + 256;
  CHECK_EQ(count(R"({"type": "ByteLM", "body": "bigram"})"), 256 * 256 + 256);
  CHECK_EQ(count(R"({"type": "ByteLM"})"), both_ends + 8 * w * w + 8 * w + 2 * w);
  CHECK_EQ(count(R"({"type": "ByteLM", "body": "gru", "layers": 2})"),
           both_ends + 2 * (6 * w * w + 6 * w + w));
  CHECK_EQ(count(R"({"type": "ByteLM", "body": "transformer", "layers": 3, "length": 20})"),
           both_ends + 20 * w + 3 * (12 * w * w + 13 * w) + 2 * w);
  CHECK_EQ(
      MakeTask(R"({"type": "ByteLM", "body": "bigram", "length": 5, "batch_size": 3})")->flops(),
      4 * 15 * 256);
  CHECK_EQ(MakeTask(R"({"type": "ByteLM", "length": 5, "batch_size": 3})")->flops(),
           15 * (4 * w + 6 * (w * 256 + 8 * w * w)));
  CHECK_EQ(MakeTask(R"({"type": "ByteLM", "length": 5, "batch_size": 3, "body": "transformer"})")
               ->flops(),
           15 * (4 * w + 6 * (w * 256 + 12 * w * w + 2 * 5 * w)));
}

TEST_CASE("The loss of ByteLM is the mean cross-entropy of its windows, over whole splits too") {
  const auto task = MakeTask(R"({"type": "ByteLM", "body": "bigram", "length": 9})");
  const auto data = GetText({}, TaskResources(""));
  const std::span<const uint8_t> text = data->bytes();
  const TextWindows windows({.length = 9}, *data);
  for (const Split split : kSplits) {
    CHECK_EQ(task->ExampleRange(split), windows.splits[static_cast<size_t>(split)]);
  }
  CHECK_EQ(*task->NormalizerMaximum(), doctest::Approx(1.5 * std::log(256.0)));
  std::vector<float> params(256 * 256 + 256);
  Normal(KeyFromSeed(1), params);
  const auto [first, last] = task->ExampleRange(Split::kTest);
  std::vector<int32_t> examples(last - first);  // 9,999 bytes
  std::iota(examples.begin(), examples.end(), static_cast<int32_t>(first));
  const auto expected = [&](std::span<const int32_t> rows) {
    double sum = 0;
    double correct = 0;
    for (const int32_t row : rows) {
      for (int64_t at = windows.starts[row]; at < windows.starts[row] + 9; ++at) {
        std::vector<double> logits(256);
        double total = 0;
        for (int64_t c = 0; c < 256; ++c) {
          logits[c] = double{params[256 * text[at] + c]} + params[256 * 256 + c];
          total += std::exp(logits[c]);
        }
        sum += std::log(total) - logits[text[at + 1]];
        correct += std::ranges::max_element(logits) - logits.begin() == text[at + 1] ? 1 : 0;
      }
    }
    const auto bytes = static_cast<double>(9 * rows.size());
    return std::pair(sum / bytes, correct / bytes);
  };
  std::vector<float> gradients(params.size());
  const auto batch = std::span(examples).subspan(7, 5);
  for (const TaskScore& got :
       {EvaluateTask(*task, params, batch), EvaluateTask(*task, params, batch, gradients)}) {
    CHECK_EQ(got.loss, doctest::Approx(expected(batch).first).epsilon(1e-5));
    CHECK_EQ(got.accuracy, doctest::Approx(expected(batch).second).epsilon(1e-5));
  }
  // Twice the split, so that it is scored in pieces.
  std::vector<int32_t> twice = examples;
  twice.insert(twice.end(), examples.begin(), examples.end());
  for (const auto& rows : {examples, twice}) {
    const TaskScore whole = EvaluateTask(*task, params, rows);
    CHECK_EQ(whole.loss, doctest::Approx(expected(examples).first).epsilon(1e-5));
    CHECK_EQ(whole.accuracy, doctest::Approx(expected(examples).second).epsilon(1e-5));
  }
}

TEST_CASE("A linear model of bytes reaches the bigram entropy of its text and does not pass it") {
  const TempDirectory directory;
  const std::string path = directory / "text";
  const std::vector<uint8_t> text = SentenceSource().Generate(KeyFromSeed(8), 20000);
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(text.data()), 20000);
  std::vector<std::string> paths = {path};
  const std::string gpl = "/usr/share/common-licenses/GPL-3";
  if (std::filesystem::exists(gpl)) paths.push_back(gpl);
  for (const std::string& file : paths) {
    CAPTURE(file);
    // Windows of one byte leave out nothing but three pairs between splits.
    const auto task =
        MakeTask(R"({"type": "ByteLM", "body": "bigram", "length": 1, "text": ")" + file + "\"}");
    const double floor = BigramEntropy(GetText({.text = file}, TaskResources(""))->bytes());
    std::vector<int32_t> examples(task->ExampleRange(Split::kTest).second);
    std::iota(examples.begin(), examples.end(), 0);
    std::vector<int32_t> batch(1024);
    std::vector<float> params(task->params_layout().size());
    std::vector<float> gradients(params.size());
    task->Init({}, KeyFromSeed(1), params, {});
    Adam adam(params.size());
    constexpr int kSteps = 300;
    for (int step = 0; step < kSteps; ++step) {
      Randint(FoldIn(KeyFromSeed(2), step), 0, static_cast<int32_t>(examples.size()), batch);
      EvaluateTask(*task, params, batch, gradients);
      adam.Update(.5 * (kSteps - step) / kSteps, gradients, params);
    }
    const double reached = EvaluateTask(*task, params, examples).loss;
    CHECK_LE(reached, 1.01 * floor);
    CHECK_GE(reached, 0.999 * floor);
  }
}

TEST_CASE("ByteLM names what is wrong with its options") {
  CHECK_EQ(ErrorOf([] {
             MakeTask(R"({"type": "ByteLM", "body": "transformer", "width": 10, "heads": 4})");
           }),
           "ByteLM: a transformer's width must be a multiple of its heads, got width 10 and heads "
           "4");
  CHECK_EQ(MakeTask(R"({"type": "ByteLM", "body": "lstm", "width": 10, "heads": 4})")->aux_layout(),
           Layout({{"accuracy", Shape{}}}));
  CHECK_EQ(ErrorOf([] { MakeTask(R"({"type": "ByteLM", "length": 20000})"); }),
           "the generated text: of its 100000 bytes the split inner_valid has 10000, wanted at "
           "least 20001: the option length (20000) and a byte before it");
}

TEST_CASE("Sequence regression follows the golden trace, its state carried and cut") {
  const ArrayFile golden = ReadArrayFile(GoldenPath("torch_tasks.safetensors"));
  const auto array = [&](const std::string& name) {
    const auto values = golden.arrays.At("sin_lstm/" + name).As<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto task = MakeTask(R"({"type": "TorchSequenceRegression"})");
  REQUIRE_EQ(task->params_layout().size(), 4513);
  std::vector<float> params;
  for (const char* tensor : {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0",
                             "rnn.bias_hh_l0", "out.weight", "out.bias"}) {
    const std::vector<float> values = array(std::string("param0/") + tensor);
    params.insert(params.end(), values.begin(), values.end());
  }
  REQUIRE_EQ(params.size(), 4513);
  std::vector<float> gradients(params.size());
  std::vector<float> unused(params.size());
  std::vector<float> state(task->model_state_layout().size());
  task->Init({}, KeyFromSeed(1), unused, state);
  CHECK(state == std::vector<float>(32 + 32 + 1));
  Adam adam(params.size());
  const std::vector<float> losses = array("loss");
  REQUIRE_EQ(losses.size(), 30);
  for (const float loss : losses) {
    const std::vector<float> before = state;
    CHECK_EQ(EvaluateTask(*task, params, {}, {}, state, Split::kTest).loss,
             doctest::Approx(loss).epsilon(1e-5));
    CHECK(state == before);
    CHECK_EQ(EvaluateTask(*task, params, {}, gradients, state).loss,
             doctest::Approx(loss).epsilon(1e-5));
    CHECK_EQ(state.back(), before.back() + 1);
    adam.Update(.02, gradients, params);
  }
}

}  // namespace lopt
