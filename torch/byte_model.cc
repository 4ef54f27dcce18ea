#include "lopt/torch/byte_model.h"

#include <fmt/core.h>

#include <cmath>
#include <string>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/tasks/sequence/byte_sequences.h"
#include "lopt/torch/recurrent.h"

namespace lopt {
namespace {

bool IsRecurrent(ByteBody body) { return body == ByteBody::kLstm || body == ByteBody::kGru; }
RecurrentCell CellOf(ByteBody body) {
  return body == ByteBody::kLstm ? RecurrentCell::kLstm : RecurrentCell::kGru;
}

// Collects the weights of a replica, the key of each a function of its place.
class WeightList {
 public:
  explicit WeightList(Key key) : key_(key) {}

  void AddNormal(const std::string& name, torch::IntArrayRef shape, double deviation) {
    Add(name, NormalTensor(NextKey(), shape) * deviation);
  }
  // Rows are inputs.
  void AddMatrix(const std::string& name, int64_t inputs, int64_t outputs) {
    AddNormal(name, {inputs, outputs}, 1 / std::sqrt(static_cast<double>(inputs)));
  }
  void AddLinear(const std::string& name, int64_t inputs, int64_t outputs) {
    AddMatrix(name + "/w", inputs, outputs);
    Add(name + "/b", torch::zeros({outputs}));
  }
  void AddNorm(const std::string& name, int64_t width) {
    Add(name + "/gain", torch::ones({width}));
    Add(name + "/bias", torch::zeros({width}));
  }
  void AddRecurrent(const std::string& name, RecurrentCell cell, int64_t width) {
    for (auto& [weight, tensor] : RecurrentInit(cell, NextKey(), name + "/", width, width)) {
      Add(weight, tensor);
    }
    for (size_t i = 0; i < RecurrentStates(cell); ++i) {
      Add(name + (i == 0 ? "/h" : "/c"), torch::zeros({width}));
    }
  }
  NamedTensors Take() { return std::move(weights_); }

 private:
  void Add(const std::string& name, torch::Tensor tensor) {
    weights_.emplace_back(name, std::move(tensor));
  }
  Key NextKey() const { return FoldIn(key_, weights_.size()); }

  Key key_;
  NamedTensors weights_;
};

// Hands out the weights of n replicas in the order in which WeightList collected them, and computes
// with them. x [n, rows, inputs].
class WeightReader {
 public:
  explicit WeightReader(const std::vector<torch::Tensor>& params) : params_(params) {}

  const torch::Tensor& Next() { return params_[next_++]; }
  torch::ArrayRef<torch::Tensor> Next(size_t count) {
    next_ += count;
    return torch::ArrayRef<torch::Tensor>(params_).slice(next_ - count, count);
  }
  torch::Tensor Linear(const torch::Tensor& x) {
    const torch::Tensor& w = Next();
    return torch::baddbmm(Next().unsqueeze(1), x, w);
  }
  torch::Tensor Norm(const torch::Tensor& x) {
    const torch::Tensor& gain = Next();
    return torch::addcmul(Next().unsqueeze(1), torch::layer_norm(x, {x.size(-1)}),
                          gain.unsqueeze(1));
  }
  // The rows of a table [n, 256, outputs] that `bytes` [n, rows] name: [n, rows, outputs].
  torch::Tensor Lookup(const torch::Tensor& bytes) {
    const torch::Tensor& table = Next();
    const int64_t n = table.size(0);
    const torch::Tensor first = torch::arange(n, bytes.options()).mul_(kByteValues).unsqueeze(1);
    return table.flatten(0, 1).index({bytes + first});
  }

 private:
  const std::vector<torch::Tensor>& params_;
  size_t next_ = 0;
};

// Of x [n, windows * time, width], each place attending to itself and those before it.
torch::Tensor CausalAttention(const torch::Tensor& x, int64_t windows, int64_t heads,
                              WeightReader* weights) {
  const int64_t n = x.size(0);
  const int64_t width = x.size(2);
  const int64_t time = x.size(1) / windows;
  const int64_t size = width / heads;
  // [3, n * windows * heads, time, size].
  const torch::Tensor qkv = weights->Linear(x)
                                .view({n * windows, time, 3, heads, size})
                                .permute({2, 0, 3, 1, 4})
                                .reshape({3, n * windows * heads, time, size});
  const torch::Tensor hidden = torch::full({time, time}, -INFINITY, x.device()).triu_(1);
  const torch::Tensor scores =
      torch::baddbmm(hidden, qkv[0], qkv[1].transpose(1, 2), 1, 1 / std::sqrt(double(size)));
  const torch::Tensor mixed = torch::bmm(torch::softmax(scores, -1), qkv[2])
                                  .view({n, windows, heads, time, size})
                                  .transpose(2, 3)
                                  .reshape({n, windows * time, width});
  return weights->Linear(mixed);
}

}  // namespace

ByteModel::ByteModel(const ByteModelOptions& options, int64_t length)
    : options_(CheckOptions("ByteLM", options)), length_(length) {
  Require(
      options.body != ByteBody::kTransformer || options.width % options.heads == 0,
      "ByteLM: a transformer's width must be a multiple of its heads, got width {} and heads {}",
      options.width, options.heads);
}

NamedTensors ByteModel::Init(Key key) const {
  WeightList weights(key);
  const int64_t width = options_.width;
  if (options_.body == ByteBody::kBigram) {
    weights.AddLinear("bigram", kByteValues, kByteValues);
    return weights.Take();
  }
  weights.AddNormal("embedding", {kByteValues, width}, 1);
  if (IsRecurrent(options_.body)) {
    for (int64_t l = 0; l < options_.layers; ++l) {
      weights.AddRecurrent(fmt::format("{}_{}", NameOf("body", options_.body, kByteBodies), l),
                           CellOf(options_.body), width);
    }
  } else {
    weights.AddNormal("place", {length_, width}, 1);
    for (int64_t l = 0; l < options_.layers; ++l) {
      const std::string block = fmt::format("block_{}/", l);
      weights.AddNorm(block + "attention/norm", width);
      weights.AddLinear(block + "attention/qkv", width, 3 * width);
      weights.AddLinear(block + "attention/out", width, width);
      weights.AddNorm(block + "mlp/norm", width);
      weights.AddLinear(block + "mlp/linear_0", width, 4 * width);
      weights.AddLinear(block + "mlp/linear_1", 4 * width, width);
    }
    weights.AddNorm("norm", width);
  }
  weights.AddLinear("logits", width, kByteValues);
  return weights.Take();
}

torch::Tensor ByteModel::Logits(const std::vector<torch::Tensor>& params,
                                const torch::Tensor& bytes) const {
  WeightReader weights(params);
  const int64_t n = bytes.size(0);
  const int64_t windows = bytes.size(1);
  const int64_t time = bytes.size(2);
  torch::Tensor x = weights.Lookup(bytes.flatten(1));
  if (options_.body == ByteBody::kBigram) {
    return (x + weights.Next().unsqueeze(1)).view({n, windows, time, kByteValues});
  }
  if (IsRecurrent(options_.body)) {
    const RecurrentCell cell = CellOf(options_.body);
    x = x.view({n, windows, time, -1});
    for (int64_t l = 0; l < options_.layers; ++l) {
      const auto layer = weights.Next(kRecurrentWeights);
      RecurrentState state(RecurrentStates(cell));
      for (torch::Tensor& tensor : state) {
        tensor = weights.Next().unsqueeze(1).expand({n, windows, options_.width});
      }
      x = RunRecurrent(cell, x, layer, std::move(state)).outputs;
    }
    x = x.flatten(1, 2);
  } else {
    const torch::Tensor place = weights.Next().narrow(1, 0, time).unsqueeze(1);
    x = (x.view({n, windows, time, -1}) + place).flatten(1, 2);
    for (int64_t l = 0; l < options_.layers; ++l) {
      x = x + CausalAttention(weights.Norm(x), windows, options_.heads, &weights);
      const torch::Tensor units = torch::gelu(weights.Linear(weights.Norm(x)));
      x = x + weights.Linear(units);
    }
    x = weights.Norm(x);
  }
  return weights.Linear(x).view({n, windows, time, kByteValues});
}

double ByteModel::Flops(int64_t windows) const {
  const auto bytes = static_cast<double>(windows * length_);
  const auto width = static_cast<double>(options_.width);
  const auto layers = static_cast<double>(options_.layers);
  constexpr double kValues = kByteValues;
  // Of a one-hot product forward and of its weights' gradient; of others, of their inputs' as well.
  if (options_.body == ByteBody::kBigram) return 2 * 2 * bytes * kValues;
  double forward = 2 * bytes * width * kValues;
  if (IsRecurrent(options_.body)) {
    forward += layers * RecurrentFlops(CellOf(options_.body), windows, length_, options_.width,
                                       options_.width);
  } else {
    const double weights = (3 + 1 + 4 + 4) * width * width;
    const double attention = 2 * static_cast<double>(length_) * width;
    forward += layers * 2 * bytes * (weights + attention);
  }
  return 3 * forward + 2 * 2 * bytes * width;
}

}  // namespace lopt
