// clang-format off
#include <torch/torch.h>  // first: its logging has other macros named CHECK
#include <doctest/doctest.h>
// clang-format on

#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "lopt/evaluation/baselines.h"
#include "lopt/tasks/data/glyphs.h"
#include "lopt/tasks/image/image_mlp.h"
#include "tests/farthest.h"

namespace lopt {
namespace {

constexpr int64_t kSteps = 100;
constexpr int64_t kBatchSize = 128;

// The classifier 64-32-10 of 8x8 drawn digits, its initial params and the rows of every batch.
struct Problem {
  Problem() : data(std::make_shared<ImageData>(GenerateImages(), 8)), task({}, data) {
    params.resize(static_cast<size_t>(task.params_layout().size()));
    task.Init({}, KeyFromSeed(5), params, {});
    const auto [first, last] = task.ExampleRange(Split::kTrain);
    for (int64_t step = 0; step < kSteps; ++step) {
      auto& batch = batches.emplace_back(kBatchSize);
      Randint(FoldIn(KeyFromSeed(6), static_cast<uint64_t>(step)), static_cast<int32_t>(first),
              static_cast<int32_t>(last), batch);
    }
  }

  std::shared_ptr<const ImageData> data;
  ImageMlp task;
  std::vector<float> params;
  std::vector<std::vector<int32_t>> batches;
};

struct Run {
  std::vector<float> losses;
  std::vector<float> params;
};

// The project's optimizer on the project's task.
Run OurRun(const Problem& problem, const LearnedOptimizer& optimizer) {
  const Eigen::VectorXf theta = optimizer.InitTheta({});
  const auto rule = optimizer.Bind(problem.task.params_layout(),
                                   {theta.data(), static_cast<size_t>(theta.size())});
  Run run{std::vector<float>(kSteps), problem.params};
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  std::vector<float> gradient(run.params.size());
  Workspace scratch;
  rule->InitState({.num_steps = kSteps}, run.params, state);
  for (int64_t step = 0; step < kSteps; ++step) {
    float& loss = run.losses[static_cast<size_t>(step)];
    problem.task.Evaluate({.params = run.params,
                           .examples = problem.batches[static_cast<size_t>(step)],
                           .losses = {&loss, 1},
                           .gradients = gradient},
                          scratch);
    rule->Update({.step = step, .num_steps = kSteps, .loss = loss}, gradient, run.params, state,
                 scratch);
  }
  return run;
}

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<torch::Tensor>&)>;

// Torch's optimizer on the same classifier in torch, gradients by autograd. The learning rate is
// set by hand before each step where `cosine` says so.
Run TorchRun(const Problem& problem, const MakeOptimizer& make, bool cosine) {
  const ImageData& data = *problem.data;
  const torch::Tensor images = torch::from_blob(
      const_cast<float*>(data.images()), {data.count(), data.features()}, {data.stride(), 1});
  const torch::Tensor labels = torch::from_blob(const_cast<uint8_t*>(data.labels()), {data.count()},
                                                torch::TensorOptions(torch::kUInt8))
                                   .to(torch::kInt64);
  std::vector<torch::Tensor> params;
  std::vector<float> initial = problem.params;
  for (const LayoutEntry& entry : problem.task.params_layout().entries()) {
    params.push_back(torch::from_blob(initial.data() + entry.offset, entry.shape)
                         .clone()
                         .set_requires_grad(true));
  }
  const auto optimizer = make(params);
  const double rate = optimizer->param_groups()[0].options().get_lr();
  Run run;
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<int32_t> batch = problem.batches[static_cast<size_t>(step)];
    const torch::Tensor rows =
        torch::from_blob(batch.data(), {kBatchSize}, torch::TensorOptions(torch::kInt32))
            .to(torch::kInt64);
    torch::Tensor x = images.index_select(0, rows);
    x = torch::relu(torch::addmm(params[1], x, params[0]));
    x = torch::addmm(params[3], x, params[2]);
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(x, labels.index_select(0, rows));
    optimizer->zero_grad();
    loss.backward();
    if (cosine) {
      const double done = static_cast<double>(step) / kSteps;
      optimizer->param_groups()[0].options().set_lr(rate * (1 + std::cos(std::numbers::pi * done)) /
                                                    2);
    }
    optimizer->step();
    run.losses.push_back(loss.item<float>());
  }
  for (const torch::Tensor& param : params) {
    const torch::Tensor flat = param.detach().flatten();
    run.params.insert(run.params.end(), flat.data_ptr<float>(),
                      flat.data_ptr<float>() + flat.numel());
  }
  return run;
}

void CheckFollows(const Problem& problem, const LearnedOptimizer& optimizer,
                  const MakeOptimizer& make, bool cosine) {
  CAPTURE(cosine);
  const Run ours = OurRun(problem, optimizer);
  const Run theirs = TorchRun(problem, make, cosine);
  double worst_loss = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    worst_loss = Farther(worst_loss, std::abs(double{ours.losses[i]} / theirs.losses[i] - 1));
  }
  CHECK_LE(worst_loss, 1e-5);
  CHECK_LE(Farthest(ours.params, theirs.params), 1e-5);
  // It was a training: the loss fell.
  CHECK_LT(ours.losses.back(), 0.9f * ours.losses.front());
}

// A baseline as an evaluation makes it, with these values of what it tunes.
std::shared_ptr<const LearnedOptimizer> TunedBaseline(const std::string& name, bool cosine,
                                                      const std::vector<double>& values) {
  return BaselinesNamed(name + (cosine ? "-cosine" : "")).front().Make(values);
}

// Torch's defaults, which the baselines share unless the test says otherwise: betas 0.9
// and 0.999, eps 1e-8 outside the root and nothing under it, no AMSGrad; weight decay 0 in Adam and
// 0.01 in AdamW; no momentum in SGD, and where there is one no dampening and no Nesterov.

TEST_CASE("The baseline Adam follows torch::optim::Adam for 100 steps") {
  const Problem problem;
  for (const bool cosine : {false, true}) {
    CheckFollows(
        problem, *TunedBaseline("Adam", cosine, {3e-3}),
        [](const std::vector<torch::Tensor>& params) {
          return std::make_unique<torch::optim::Adam>(params, torch::optim::AdamOptions(3e-3));
        },
        cosine);
  }
}

MakeOptimizer AdamW(double weight_decay) {
  return [=](const std::vector<torch::Tensor>& params) {
    return std::make_unique<torch::optim::AdamW>(
        params, torch::optim::AdamWOptions(3e-3).weight_decay(weight_decay));
  };
}

TEST_CASE("The baselines AdamW follow torch::optim::AdamW for 100 steps") {
  const Problem problem;
  for (const bool cosine : {false, true}) {
    CheckFollows(problem, *TunedBaseline("AdamW", cosine, {3e-3}), AdamW(0.01), cosine);
  }
  const auto with_decay = BaselinesNamed("AdamW-cosine-decay").front().Make(std::vector{3e-3, 1.0});
  CheckFollows(problem, *with_decay, AdamW(1), true);
}

TEST_CASE("The baseline SGD follows torch::optim::SGD for 100 steps") {
  const Problem problem;
  for (const bool cosine : {false, true}) {
    CheckFollows(
        problem, *TunedBaseline("SGD", cosine, {0.3}),
        [](const std::vector<torch::Tensor>& params) {
          return std::make_unique<torch::optim::SGD>(params, torch::optim::SGDOptions(0.3));
        },
        cosine);
  }
}

TEST_CASE("The baseline SGDM follows torch::optim::SGD with momentum for 100 steps") {
  const Problem problem;
  for (const bool cosine : {false, true}) {
    CheckFollows(
        problem, *TunedBaseline("SGDM", cosine, {0.05}),
        [](const std::vector<torch::Tensor>& params) {
          return std::make_unique<torch::optim::SGD>(params,
                                                     torch::optim::SGDOptions(0.05).momentum(0.9));
        },
        cosine);
  }
}

}  // namespace
}  // namespace lopt
