// Networks on images that are written with LibTorch, against traces of PyTorch's modules and
// against torch::nn in this program.

// The headers of LibTorch define a CHECK, which doctest's must replace.
// clang-format off
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/conv.h>
#include <doctest/doctest.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/safetensors.h"
#include "lopt/tasks/image/image_conv.h"
#include "lopt/tasks/image/image_mlp.h"
#include "lopt/torch/activate.h"
#include "lopt/torch/image_layers.h"
#include "lopt/torch/image_tensors.h"
#include "lopt/torch/registry.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/mnist_dir.h"
#include "tests/reference/image_conv_reference.h"
#include "tests/reference/image_mlp_reference.h"

namespace lopt {
namespace {

const NamedArrays& Golden() {
  static const ArrayFile file = ReadArrayFile(GoldenPath("torch_tasks.safetensors"));
  return file.arrays;
}

torch::Tensor GoldenTensor(const std::string& name) {
  const Array& array = Golden().At(name);
  return torch::from_blob(const_cast<float*>(array.As<float>().data()), array.shape()).clone();
}

std::shared_ptr<const TaskFamily> Make(const std::string& config,
                                       const TaskResources& resources = TaskResources("")) {
  return TorchTaskRegistry().Make(Config::Parse(config, "test"), resources);
}

double MaxDistance(const torch::Tensor& a, const torch::Tensor& b) {
  REQUIRE_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

// A tensor of a trace in the layout of the task.
using Convert = std::function<torch::Tensor(const torch::Tensor&)>;

// The arrays golden/<names[t]> as a row of the layout, tensor by tensor.
std::vector<float> GoldenRow(const Layout& layout, const std::string& prefix,
                             const std::vector<std::string>& names, const Convert& convert) {
  REQUIRE_EQ(names.size(), layout.entries().size());
  std::vector<float> row;
  for (size_t t = 0; t < names.size(); ++t) {
    CAPTURE(names[t]);
    const torch::Tensor tensor = convert(GoldenTensor(prefix + names[t])).contiguous();
    REQUIRE_EQ(tensor.sizes(), torch::IntArrayRef(layout.entries()[t].shape));
    row.insert(row.end(), tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel());
  }
  return row;
}

// Twelve steps of SGD as PyTorch's module of the same net made them. `names` are the trace's, in
// the order of the task's layout.
void TrainAsTraced(
    const std::string& net, const std::string& config, float learning_rate,
    const std::vector<std::string>& names,
    const Convert& convert = [](const torch::Tensor& tensor) { return tensor; }) {
  INFO(net);
  if (SkipsWithoutMnist()) return;
  const auto task = Make(config, TaskResources(MnistDir()));
  const Layout& layout = task->params_layout();
  std::vector<float> params = GoldenRow(layout, net + "/param0/", names, convert);
  const std::vector<float> first_gradient = GoldenRow(layout, net + "/gradient0/", names, convert);
  const auto losses = Golden().At(net + "/loss").As<float>();
  const auto index = Golden().At(net + "/index").As<int32_t>();
  const size_t batch = index.size() / losses.size();
  std::vector<float> gradient(params.size());
  Workspace scratch;
  for (size_t step = 0; step < losses.size(); ++step) {
    CAPTURE(step);
    float loss = 0;
    task->Evaluate({.params = params,
                    .examples = index.subspan(step * batch, batch),
                    .losses = {&loss, 1},
                    .gradients = gradient},
                   scratch);
    CHECK_LE(std::abs(loss - losses[step]), 1e-5 * losses[step]);
    for (size_t i = 0; i < params.size(); ++i) {
      if (step == 0) REQUIRE_LE(std::abs(gradient[i] - first_gradient[i]), 1e-5);
      params[i] -= learning_rate * gradient[i];
    }
  }
  for (size_t t = 0; t < names.size(); ++t) {
    CAPTURE(names[t]);
    const double wanted = Golden().At(net + "/norm_end/" + names[t]).As<double>()[0];
    double square = 0;
    for (int64_t i = 0; i < layout.entries()[t].size; ++i) {
      const double value = params[layout.entries()[t].offset + i];
      square += value * value;
    }
    CHECK_LE(std::abs(std::sqrt(square) - wanted), 1e-5 * std::max(1.0, wanted));
  }
}

// Weight and bias of each.
std::vector<std::string> Layers(const std::vector<std::string>& layers) {
  std::vector<std::string> names;
  for (const std::string& layer : layers) {
    names.push_back(layer + ".weight");
    names.push_back(layer + ".bias");
  }
  return names;
}

// A number that depends on every element, each with another weight.
torch::Tensor Score(const torch::Tensor& tensor) {
  return (tensor * torch::linspace(-1, 2, tensor.numel()).view_as(tensor)).sum();
}

// Gradients of the score of what a layer makes of images x.
std::vector<torch::Tensor> ScoreGradients(const torch::Tensor& outputs, const torch::Tensor& x,
                                          const torch::Tensor& weight, const torch::Tensor& bias) {
  return torch::autograd::grad({Score(outputs)}, {x, weight, bias}, {}, /*retain_graph=*/true);
}

// Compares a layer of n replicas with `Module` of each.
template <class Module, class Options, class Layer>
void CheckReplicas(const Options& options, torch::IntArrayRef weight_shape, int64_t out,
                   const torch::Tensor& x, const Layer& layer) {
  const int64_t n = x.size(0);
  NamedTensors drawn;
  for (int64_t row = 0; row < n; ++row) {
    AddLayer("layer", weight_shape, out, KeyFromSeed(row), &drawn);
  }
  ReplicaWeights w;
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> biases;
  for (int64_t row = 0; row < n; ++row) {
    weights.push_back(drawn[2 * row].second);
    biases.push_back(drawn[2 * row + 1].second);
  }
  w = {torch::stack(weights).requires_grad_(), torch::stack(biases).requires_grad_()};
  const torch::Tensor outputs =
      ByReplica(layer(x.transpose(0, 1).flatten(1, 2).contiguous(), w), n);
  for (int64_t row = 0; row < n; ++row) {
    CAPTURE(row);
    Module module(options);
    {
      const torch::NoGradGuard no_grad;
      REQUIRE_EQ(module->weight.sizes(), weight_shape);
      module->weight.copy_(weights[row]);
      module->bias.copy_(biases[row]);
    }
    const torch::Tensor wanted = module->forward(x[row]);
    CHECK_LE(MaxDistance(outputs[row], wanted), 1e-5);
    const auto got_gradients = ScoreGradients(outputs[row], x, w.weight, w.bias);
    const auto wanted_gradients = ScoreGradients(wanted, x, module->weight, module->bias);
    CHECK_LE(MaxDistance(got_gradients[0], wanted_gradients[0]), 1e-5);
    // Sums of up to a thousand numbers of size one, in another order: some units in the last place.
    for (const size_t k : {1, 2}) {
      const float largest = wanted_gradients[k].abs().max().template item<float>();
      CHECK_LE(MaxDistance(got_gradients[k][row], wanted_gradients[k]), 1e-6 * largest);
    }
  }
}

struct Evaluated {
  std::vector<float> losses, gradients, aux, model_state;
};

Evaluated EvaluateOne(const TaskFamily& task, std::span<const float> params, Key key,
                      Split split = Split::kTrain, std::span<const float> model_state = {}) {
  Evaluated results{std::vector<float>(1), std::vector<float>(params.size()), std::vector<float>(1),
                    std::vector<float>(model_state.begin(), model_state.end())};
  Workspace scratch;
  task.Evaluate({.params = params,
                 .model_state = results.model_state,
                 .split = split,
                 .keys = {&key, 1},
                 .losses = results.losses,
                 .gradients = results.gradients,
                 .aux = results.aux},
                scratch);
  return results;
}

void AddNoise(Key key, float scale, std::vector<float>* values) {
  std::vector<float> noise(values->size());
  Normal(key, noise);
  for (size_t i = 0; i < noise.size(); ++i) (*values)[i] += scale * noise[i];
}

}  // namespace

TEST_CASE("The torch image conv net is the native one: params, losses, gradients, accuracy") {
  for (const std::string options :
       {R"("image_size": 8)", R"("image_size": 7, "image_channels": 3, "strides": [2])",
        R"("image_size": 6, "channels": [3, 5, 4], "strides": [1, 3], "kernel": [4, 2],
           "activation": "tanh", "pool": "average")",
        R"("image_size": 9, "channels": [4, 6], "strides": [1], "kernel": [5, 5], "pool": "max",
           "head": "flatten", "activation": "gelu")",
        R"("image_size": 10, "channels": [3], "strides": [4], "kernel": [2, 1], "pool": "max",
           "head": "flatten")",
        R"("image_size": 5, "channels": [5, 5, 5], "strides": [2, 1], "kernel": [3, 3],
           "pool": "max", "activation": "leaky_relu")",
        R"("image_size": 0, "data": "mnist1d", "channels": [3, 4], "kernel": [5, 1],
           "pool": "max")"}) {
    CAPTURE(options);
    const bool drawn = options.find("data") == std::string::npos;
    const std::string rest =
        options + (drawn ? R"(, "data": "glyphs")" : "") + R"(, "batch_size": 9})";
    const auto read =
        ReadOptions<ImageConvOptions>(Config::Parse(R"({"type": "ImageConv", )" + rest, "test"));
    const TaskResources resources("");
    const ReferenceImageConv native(read, GetImages(read.images, resources));
    const auto task = Make(R"({"type": "TorchImageConv", )" + rest, resources);
    REQUIRE_EQ(task->params_layout(), native.params_layout());
    REQUIRE_EQ(task->aux_layout(), native.aux_layout());
    CHECK_EQ(task->NormalizerMaximum(), native.NormalizerMaximum());
    CHECK_EQ(task->flops(), native.flops());
    CHECK_EQ(task->ExampleRange(Split::kTest), native.ExampleRange(Split::kTest));

    std::vector<float> params(task->params_layout().size());
    std::vector<float> native_params(params.size());
    task->Init({}, KeyFromSeed(1), params, {});
    native.Init({}, KeyFromSeed(1), native_params, {});
    CHECK(params == native_params);
    AddNoise(KeyFromSeed(2), 0.1F, &params);
    const Evaluated got = EvaluateOne(*task, params, KeyFromSeed(3));
    const Evaluated wanted = EvaluateOne(native, params, KeyFromSeed(3));
    CHECK_LE(std::abs(got.losses[0] - wanted.losses[0]), 1e-5 * wanted.losses[0]);
    CHECK_EQ(got.aux[0], wanted.aux[0]);
    CHECK_LE(Farthest(got.gradients, wanted.gradients), 1e-5);
  }
}

TEST_CASE("The torch image MLP has the norms of the native one, and their running statistics") {
  const TaskResources resources("");
  for (const Norm norm : {Norm::kLayer, Norm::kBatch}) {
    for (const int64_t batch_size : {1, 13}) {
      CAPTURE(NameOf("norm", norm, kNorms));
      CAPTURE(batch_size);
      const ImageMlpOptions options{.images = {.image_size = 4, .batch_size = batch_size},
                                    .hidden = {6, 5},
                                    .activation = Activation::kTanh,
                                    .norm = norm};
      const ReferenceImageMlp native(options, GetImages(options.images, resources));
      const auto task = TorchTaskRegistry().Make(WriteOptions("TorchImageMLP", options), resources);
      REQUIRE_EQ(task->params_layout(), native.params_layout());
      REQUIRE_EQ(task->model_state_layout(), native.model_state_layout());
      std::vector<float> params(task->params_layout().size());
      std::vector<float> state(task->model_state_layout().size());
      std::vector<float> native_state(state.size());
      native.Init({}, KeyFromSeed(1), params, native_state);
      task->Init({}, KeyFromSeed(1), params, state);
      CHECK(state == native_state);
      AddNoise(KeyFromSeed(2), 0.3F, &params);
      AddNoise(KeyFromSeed(3), 0.1F, &state);
      for (const Split split : {Split::kTrain, Split::kOuterValid}) {
        const Evaluated got = EvaluateOne(*task, params, KeyFromSeed(4), split, state);
        const Evaluated wanted = EvaluateOne(native, params, KeyFromSeed(4), split, state);
        CHECK_LE(Farthest(got.losses, wanted.losses), 1e-5);
        CHECK_LE(Farthest(got.gradients, wanted.gradients), 1e-5);
        CHECK_LE(Farthest(got.model_state, wanted.model_state), 1e-6);
        CHECK((got.model_state == state) == (split != Split::kTrain || norm == Norm::kLayer));
      }
    }
  }
}

TEST_CASE("The convolutional net follows the golden losses of real digits") {
  TrainAsTraced("cnn",
                R"({"type": "TorchImageConv", "image_size": 28, "data": "idx", "kernel": [5, 5],
                    "channels": [16, 32], "strides": [1], "pool": "max", "head": "flatten"})",
                0.05F, Layers({"conv1.0", "conv2.0", "out"}), [](const torch::Tensor& tensor) {
                  if (tensor.dim() == 1) return tensor;
                  // Channel first in the trace's last layer, channel last in the task's.
                  if (tensor.dim() == 2) {
                    return tensor.view({10, 32, 7, 7}).permute({2, 3, 1, 0}).reshape({1568, 10});
                  }
                  return tensor.permute({2, 3, 1, 0});
                });
}

TEST_CASE("The net of signs follows the golden losses of real digits") {
  TrainAsTraced("binary_mlp",
                R"({"type": "TorchImageMLP", "image_size": 28, "data": "idx",
                    "activation": "sign"})",
                0.05F, Layers({"l0", "l1"}), [](const torch::Tensor& tensor) {
                  return tensor.dim() == 2 ? tensor.t() : tensor;
                });
}

TEST_CASE("The sign of a number that is not one is none, and its gradient goes straight through") {
  const torch::Tensor x =
      torch::tensor({-2.F, -1.F, -0.5F, -0.F, 0.F, 1.F, 1.5F, std::nanf("")}).requires_grad_();
  const torch::Tensor y = Activate(Activation::kSign, x);
  CHECK(y.slice(0, 0, 7).equal(torch::tensor({-1.F, -1.F, -1.F, 1.F, 1.F, 1.F, 1.F})));
  CHECK(std::isnan(y[7].item<float>()));
  const torch::Tensor outer = torch::arange(1, 9).to(torch::kFloat32);
  CHECK(torch::autograd::grad({y}, {x}, {outer})[0].equal(
      torch::tensor({0.F, 2.F, 3.F, 4.F, 5.F, 6.F, 0.F, 0.F})));
}

TEST_CASE("The convolutional autoencoder follows the golden losses of real digits") {
  TrainAsTraced("conv_ae", R"({"type": "TorchImageAutoencoder", "image_size": 28, "data": "idx"})",
                1, Layers({"e1", "e2", "d1", "d2"}));
}

TEST_CASE("The spatial transformer follows the golden losses of real digits") {
  TrainAsTraced("stn", R"({"type": "TorchSTN", "image_size": 28, "data": "idx"})", 0.05F,
                Layers({"localization.0", "localization.3", "fc_loc.0", "fc_loc.2", "conv1",
                        "conv2", "fc1", "fc2"}));
}

TEST_CASE("The LSTM over the rows of images follows the golden losses of real digits") {
  std::vector<std::string> names = {"rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0",
                                    "rnn.bias_hh_l0"};
  for (const std::string& name : Layers({"out"})) names.push_back(name);
  TrainAsTraced("row_lstm", R"({"type": "TorchRowLSTM", "image_size": 28, "data": "idx"})", 0.5F,
                names);
}

TEST_CASE("The LSTM and the GRU read the rows of MNIST-1D's images as torch's do") {
  const TaskResources resources("");
  const auto data = GetImages({.image_size = 0, .data = ImageSource::kMnist1d}, resources);
  REQUIRE_EQ(data->height(), 40);
  REQUIRE_EQ(data->width(), 1);
  for (const std::string cell : {"lstm", "gru"}) {
    CAPTURE(cell);
    const auto task = Make(R"({"type": "TorchRowLSTM", "image_size": 0, "data": "mnist1d",
                               "hidden_size": 6, "cell": ")" +
                               cell + "\"}",
                           resources);
    std::vector<float> params(task->params_layout().size());
    task->Init({}, KeyFromSeed(1), params, {});
    std::vector<torch::Tensor> p;
    for (const LayoutEntry& entry : task->params_layout().entries()) {
      p.push_back(torch::from_blob(params.data() + entry.offset, entry.shape));
    }
    const std::vector<int32_t> examples = {3, 99, 500, 1};
    float loss = 0;
    Workspace scratch;
    task->Evaluate({.params = params, .examples = examples, .losses = {&loss, 1}}, scratch);

    const ImageTensors images(data);
    const torch::Tensor rows = torch::tensor(examples).to(torch::kInt64);
    const torch::Tensor x = images.Images(rows).view({4, 40, 1});
    const torch::Tensor zeros = torch::zeros({1, 4, 6});
    const auto weights = torch::TensorList(p).slice(0, 4);
    const torch::Tensor last =
        cell == "lstm"
            ? std::get<1>(torch::lstm(x, {zeros, zeros}, weights, true, 1, 0, true, false, true))
            : std::get<1>(torch::gru(x, zeros, weights, true, 1, 0, true, false, true));
    const torch::Tensor logits = torch::addmm(p[5], last[0], p[4].t());
    CHECK_LE(std::abs(loss - torch::cross_entropy_loss(logits, images.Labels(rows)).item<float>()),
             1e-5);
  }
}

TEST_CASE("Convolutions of several replicas are torch's of each, with gradients") {
  for (const auto& [batch, in, out, height, width, kernel_height, kernel_width, stride, padding] :
       std::vector<std::array<int64_t, 9>>{{5, 3, 4, 9, 7, 3, 3, 1, 1},
                                           {2, 1, 6, 8, 8, 5, 5, 2, 2},
                                           {3, 4, 2, 11, 1, 5, 1, 2, 0}}) {
    CAPTURE(kernel_height);
    const torch::Tensor x =
        NormalTensor(KeyFromSeed(9), {3, batch, in, height, width}).requires_grad_();
    const int64_t pad_width = kernel_width == 1 ? 0 : padding;
    CheckReplicas<torch::nn::Conv2d>(
        torch::nn::Conv2dOptions(in, out, {kernel_height, kernel_width})
            .stride(stride)
            .padding({padding, pad_width}),
        {out, in, kernel_height, kernel_width}, out, x,
        [&](const torch::Tensor& images, const ReplicaWeights& w) {
          return Convolution(images, w, stride, {padding, pad_width});
        });
    CheckReplicas<torch::nn::ConvTranspose2d>(
        torch::nn::ConvTranspose2dOptions(in, out, {kernel_height, kernel_width})
            .stride(stride)
            .padding({padding, pad_width})
            .output_padding(stride - 1),
        {in, out, kernel_height, kernel_width}, out, x,
        [&](const torch::Tensor& images, const ReplicaWeights& w) {
          return TransposedConvolution(images, w, stride, {padding, pad_width}, stride - 1);
        });
  }
}

TEST_CASE("Images with channel last lie side by side with channel first, and apart again") {
  const torch::Tensor images = NormalTensor(KeyFromSeed(1), {2, 3, 4 * 5 * 2});
  const torch::Tensor beside = SideBySide(images, 4, 5);
  REQUIRE_EQ(beside.sizes(), torch::IntArrayRef({3, 4, 4, 5}));
  CHECK(ByReplica(beside, 2).permute({0, 1, 3, 4, 2}).flatten(2).equal(images));
  CHECK_EQ(beside[2][3][1][4].item<float>(), images[1][2][(1 * 5 + 4) * 2 + 1].item<float>());
}

TEST_CASE("Affine samples of an image are the golden ones, with corners aligned or not") {
  const torch::Tensor image = GoldenTensor("grid/input").view({1, 1, 5, 7});
  for (const std::string matrix : {"0", "1", "2", "3"}) {
    CAPTURE(matrix);
    const torch::Tensor theta = GoldenTensor("grid/" + matrix + "/theta").unsqueeze(0);
    for (const bool aligned : {false, true}) {
      CAPTURE(aligned);
      const torch::Tensor wanted =
          GoldenTensor("grid/" + matrix + (aligned ? "/aligned" : "/default"));
      CHECK_LE(MaxDistance(SampleAffine(image, theta, aligned)[0][0], wanted), 1e-5);
    }
  }
}

TEST_CASE("Numbers of weights are those of the nets") {
  const auto weights = [](const std::string& config) {
    return Make(config)->params_layout().size();
  };
  CHECK_EQ(weights(R"({"type": "TorchImageAutoencoder"})"), 2481);
  CHECK_EQ(weights(R"({"type": "TorchSTN"})"), 27360);
  CHECK_EQ(weights(R"({"type": "TorchImageConv", "image_channels": 3})"), 5418);
  CHECK_EQ(weights(R"({"type": "TorchRowLSTM"})"), 24714);
  CHECK_EQ(weights(R"({"type": "TorchRowLSTM", "cell": "gru"})"), 18698);
}

TEST_CASE("The spatial transformer is the net assembled from torch's operations, with gradients") {
  const TaskResources resources("");
  const auto data = GetImages({.image_size = 20, .data = ImageSource::kGlyphs}, resources);
  for (const bool align_corners : {false, true}) {
    CAPTURE(align_corners);
    const auto task = Make(R"({"type": "TorchSTN", "image_size": 20, "data": "glyphs",
                               "align_corners": )" +
                               std::string(align_corners ? "true}" : "false}"),
                           resources);
    std::vector<float> params(task->params_layout().size());
    Normal(KeyFromSeed(1), params);
    std::vector<torch::Tensor> p;
    for (const LayoutEntry& entry : task->params_layout().entries()) {
      torch::Tensor tensor = torch::from_blob(params.data() + entry.offset, entry.shape);
      tensor *= 0.1F;
      p.push_back(tensor.detach().clone().requires_grad_());
    }
    const std::vector<int32_t> examples = {3, 99, 500, 1};
    std::vector<float> gradient(params.size());
    float loss = 0;
    Workspace scratch;
    task->Evaluate(
        {.params = params, .examples = examples, .losses = {&loss, 1}, .gradients = gradient},
        scratch);

    const ImageTensors images(data);
    const torch::Tensor rows = torch::tensor(examples).to(torch::kInt64);
    const auto features = [&](torch::Tensor x, size_t first) {
      for (size_t c = first; c < first + 4; c += 2) {
        x = torch::relu(torch::max_pool2d(torch::conv2d(x, p[c], p[c + 1]), 2));
      }
      return x.flatten(1);
    };
    const auto linear = [&](const torch::Tensor& x, size_t layer) {
      return torch::linear(x, p[layer], p[layer + 1]);
    };
    const torch::Tensor x = images.Images(rows).view({4, 1, 20, 20});
    const torch::Tensor theta = linear(torch::relu(linear(features(x, 0), 4)), 6).view({4, 2, 3});
    const torch::Tensor grid = torch::affine_grid_generator(theta, x.sizes(), align_corners);
    const torch::Tensor straight = torch::grid_sampler(x, grid, 0, 0, align_corners);
    const torch::Tensor logits = linear(torch::relu(linear(features(straight, 8), 12)), 14);
    const torch::Tensor wanted = torch::cross_entropy_loss(logits, images.Labels(rows));
    CHECK_LE(std::abs(loss - wanted.item<float>()), 1e-5);
    const auto gradients = torch::autograd::grad({wanted}, p);
    for (size_t t = 0; t < p.size(); ++t) {
      const LayoutEntry& entry = task->params_layout().entries()[t];
      CAPTURE(entry.name);
      CHECK_LE(
          MaxDistance(torch::from_blob(gradient.data() + entry.offset, entry.shape), gradients[t]),
          1e-5);
    }
  }
}

TEST_CASE("A masked number of theta stays the identity's and has no gradient") {
  const std::string start = R"({"type": "TorchSTN", "image_size": 20, "batch_size": 8,
                                "data": "glyphs")";
  const auto task = Make(start + R"(, "mask": [1, 0, 1, 0, 1, 1]})");
  const Layout& layout = task->params_layout();
  std::vector<float> params(layout.size());
  task->Init({}, KeyFromSeed(1), params, {});
  const Key key = KeyFromSeed(2);
  std::vector<float> gradient(params.size());
  const auto loss_with = [&](std::array<float, 6> theta) {
    const LayoutEntry& bias = layout.Find("localization/linear_1/bias");
    std::copy(theta.begin(), theta.end(), params.begin() + bias.offset);
    float loss = 0;
    Workspace scratch;
    task->Evaluate(
        {.params = params, .keys = {&key, 1}, .losses = {&loss, 1}, .gradients = gradient},
        scratch);
    for (int64_t i = 0; i < 6; ++i) {
      CHECK_EQ(gradient[bias.offset + i] == 0, i == 1 || i == 3);
    }
    return loss;
  };
  const float loss = loss_with({0.9F, 0.3F, 0.1F, -0.2F, 1.1F, -0.1F});
  CHECK_EQ(loss_with({0.9F, 0, 0.1F, 0, 1.1F, -0.1F}), loss);
  CHECK_NE(loss_with({0.8F, 0, 0.1F, 0, 1.1F, -0.1F}), loss);
}

TEST_CASE("What does not make up a net is an error") {
  CHECK_EQ(ErrorOf([] { Make(R"({"type": "TorchSTN", "mask": [1, 0, 1]})"); }),
           "TorchSTN: mask has 3 numbers, wanted 6, those of theta [2, 3]");
  CHECK_EQ(ErrorOf([] { Make(R"({"type": "TorchSTN", "channels": [1, 2, 3]})"); }),
           "TorchSTN: channels has 3 numbers, wanted 2, one for each convolution");
  CHECK_EQ(ErrorOf([] { Make(R"({"type": "TorchSTN", "localization_channels": []})"); }),
           "TorchSTN: localization_channels has 0 numbers, wanted 2, one for each convolution");
  CHECK_EQ(ErrorOf([] { Make(R"({"type": "TorchSTN", "image_size": 17})"); }),
           "TorchSTN: images of 17 x 17 pixels, wanted at least 18 x 18: two convolutions and "
           "poolings leave nothing of smaller ones");
  Make(R"({"type": "TorchSTN", "image_size": 18})");
  CHECK_EQ(
      ErrorOf(
          [] { Make(R"({"type": "TorchImageAutoencoder", "image_size": 0, "data": "mnist1d"})"); }),
      "TorchImageAutoencoder: the data are signals, wanted images: it gives numbers in [0, 1]");
  CHECK_EQ(ErrorOf([] { Make(R"({"type": "TorchImageAutoencoder", "channels": []})"); }),
           "TorchImageAutoencoder: channels is empty, wanted the channels behind each convolution "
           "of the encoder");
}

}  // namespace lopt
