// A small convolutional net in LibTorch learns in which of ten directions stripes run, trained by a
// learned optimizer and by Adam from the same initial parameters on the same batches.
#include <fmt/core.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "lopt/base/tensorboard.h"
#include "lopt/torch/learned_optimizer.h"

namespace {

constexpr int64_t kSize = 16;
constexpr int64_t kBatch = 64;
constexpr int64_t kDirections = 10;

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
  torch::nn::Linear linear{16 * (kSize / 4) * (kSize / 4), kDirections};
};

struct Stripes {
  torch::Tensor images;  // [count, 1, kSize, kSize], stripes in noise
  torch::Tensor labels;  // [count], their directions
};

Stripes Draw(int64_t count, uint64_t seed) {
  torch::manual_seed(seed);
  const torch::Tensor labels = torch::randint(kDirections, {count}, torch::kInt64);
  const torch::Tensor angle = (labels * (std::numbers::pi / kDirections)).view({count, 1, 1});
  const torch::Tensor phase = 2 * std::numbers::pi * torch::rand({count, 1, 1});
  const torch::Tensor place = torch::arange(kSize, torch::kFloat32);
  const torch::Tensor along =
      torch::cos(angle) * place.view({1, 1, kSize}) + torch::sin(angle) * place.view({1, kSize, 1});
  const torch::Tensor noise = torch::randn({count, kSize, kSize});
  return {(torch::sin(along + phase) + noise).unsqueeze(1), labels};
}

struct Run {
  std::vector<double> losses;  // of each step
  double test_accuracy;
};

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor> params)>;

Run Train(const Stripes& train, const Stripes& test, int64_t steps, const MakeOptimizer& make) {
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

// The losses as TensorBoard shows them, in an event file of its own.
void WriteLosses(const std::string& directory, const Run& learned, const Run& adam) {
  const auto now = static_cast<double>(std::time(nullptr));
  lopt::TensorBoardWriter writer(directory, now);
  for (size_t step = 0; step < learned.losses.size(); ++step) {
    writer.Write(static_cast<int64_t>(step), now,
                 {{"loss/learned", learned.losses[step]}, {"loss/adam", adam.losses[step]}});
  }
  writer.Flush();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 4) {
    fmt::print(stderr, "Usage: torch_training THETA [STEPS [DIRECTORY]]\n");
    return 2;
  }
  const std::string theta = argv[1];
  const int64_t steps = argc >= 3 ? std::atoll(argv[2]) : 300;

  const Stripes train = Draw(8000, 1);
  const Stripes test = Draw(2000, 2);
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
  if (argc == 4) WriteLosses(argv[3], learned, adam);
  return std::isfinite(learned.losses.back()) ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "torch_training: {}\n", error.what());
  return 1;
}
