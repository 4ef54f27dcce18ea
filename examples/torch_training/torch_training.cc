// A small convolutional net in LibTorch, trained on drawn digits by a learned optimizer and by Adam
// from the same initial parameters on the same batches.
#include <fmt/core.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lopt/tasks/data/glyphs.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/torch/learned_optimizer.h"

namespace {

constexpr int64_t kSize = 16;
constexpr int64_t kBatch = 64;

struct Net : torch::nn::Module {
  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("linear", linear);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    return linear(x.flatten(1));
  }
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 8, 3).padding(1)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(8, 16, 3).padding(1)};
  torch::nn::Linear linear{16 * (kSize / 4) * (kSize / 4), 10};
};

struct Digits {
  torch::Tensor images;  // [count, 1, kSize, kSize]
  torch::Tensor labels;  // [count]
};

Digits Load(const lopt::ImageData& data, lopt::Split split) {
  const auto [first, last] = data.range(split);
  auto* pixels = const_cast<float*>(data.images());
  auto* labels = const_cast<uint8_t*>(data.labels());
  return {torch::from_blob(pixels, {data.count(), 1, kSize, kSize},
                           {data.stride(), data.stride(), kSize, 1})
              .slice(0, first, last)
              .clone(),
          torch::from_blob(labels, {data.count()}, torch::kUInt8)
              .slice(0, first, last)
              .to(torch::kInt64)};
}

struct Run {
  std::vector<double> losses;  // of each step
  double test_accuracy;
};

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> params)>;

Run Train(const Digits& train, const Digits& test, int64_t steps, const MakeOptimizer& make) {
  torch::manual_seed(0);  // the same net and batches for every optimizer
  Net net;
  const auto optimizer = make(net.parameters());
  Run run;
  for (int64_t step = 0; step < steps; ++step) {
    const torch::Tensor rows = torch::randint(train.labels.size(0), {kBatch}, torch::kInt64);
    const torch::Tensor x = train.images.index_select(0, rows);
    const torch::Tensor y = train.labels.index_select(0, rows);
    const torch::Tensor loss = optimizer->step([&] {
      optimizer->zero_grad();
      const torch::Tensor value = torch::nn::functional::cross_entropy(net.forward(x), y);
      value.backward();
      return value;
    });
    run.losses.push_back(loss.item<double>());
  }
  const torch::NoGradGuard no_grad;
  run.test_accuracy =
      net.forward(test.images).argmax(1).eq(test.labels).to(torch::kFloat64).mean().item<double>();
  return run;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) {
    fmt::print(stderr, "Usage: torch_training THETA [STEPS]\n");
    return 2;
  }
  const std::string theta = argv[1];
  const int64_t steps = argc == 3 ? std::atoll(argv[2]) : 300;

  const lopt::ImageData data(lopt::GenerateImages(), kSize);
  const Digits train = Load(data, lopt::Split::kTrain);
  const Digits test = Load(data, lopt::Split::kTest);
  const Run learned = Train(train, test, steps, [&](std::vector<torch::Tensor> params) {
    using lopt::torch_optim::LearnedOptimizer;
    const auto options = lopt::torch_optim::LearnedOptimizerOptions().num_steps(steps);
    return std::make_unique<LearnedOptimizer>(LearnedOptimizer::FromFile(params, theta, options));
  });
  const Run adam = Train(train, test, steps, [](std::vector<torch::Tensor> params) {
    return std::make_unique<torch::optim::Adam>(params, torch::optim::AdamOptions(1e-3));
  });

  fmt::print("{:>13}  {:>8}  {:>10}\n", "step", "learned", "Adam 0.001");
  for (int64_t step = 0; step < steps; step += std::max<int64_t>(1, steps / 10)) {
    fmt::print("{:>13}  {:>8.4f}  {:>10.4f}\n", step, learned.losses[step], adam.losses[step]);
  }
  fmt::print("{:>13}  {:>8.4f}  {:>10.4f}\n", "test accuracy", learned.test_accuracy,
             adam.test_accuracy);
  return std::isfinite(learned.losses.back()) ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "torch_training: {}\n", error.what());
  return 1;
}
