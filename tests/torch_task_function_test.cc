// Tasks of any family as functions that LibTorch's autograd differentiates.
#include "lopt/torch/task_function.h"

// The headers of LibTorch define a CHECK, which doctest's must replace.
// clang-format off
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/adam.h>
#include <doctest/doctest.h>
// clang-format on

#include <cmath>
#include <memory>
#include <vector>

#include "lopt/tasks/image/image_mlp.h"
#include "lopt/tasks/quadratic/quadratic.h"
#include "lopt/torch/registry.h"
#include "tests/error_of.h"
#include "tests/torch_example_tasks.h"

namespace lopt {
namespace {

std::shared_ptr<const ImageMlp> SmallMlp(Activation activation = Activation::kTanh) {
  const ImageMlpOptions options{
      .images = {.image_size = 5, .batch_size = 11}, .hidden = {7}, .activation = activation};
  return std::make_shared<ImageMlp>(options, GetImages(options.images, TaskResources("")));
}

// Initial params of n tasks.
torch::Tensor InitRows(const TaskFamily& family, int64_t n) {
  torch::Tensor params = torch::empty({n, family.params_layout().size()});
  for (int64_t row = 0; row < n; ++row) {
    family.Init({}, KeyFromSeed(row),
                {params[row].data_ptr<float>(), static_cast<size_t>(params.size(1))}, {});
  }
  return params;
}

double MaxDistance(const torch::Tensor& a, const torch::Tensor& b) {
  REQUIRE_EQ(a.sizes(), b.sizes());
  return (a - b).abs().max().item<double>();
}

}  // namespace

TEST_CASE("The gradient through a native task is that of differences of the loss") {
  const TaskFunction losses(SmallMlp());
  const torch::Tensor start = InitRows(*SmallMlp(), 3);
  const TaskCall call{.keys = SplitKey(KeyFromSeed(7), 3)};
  const torch::Tensor direction = NormalTensor(KeyFromSeed(8), start.sizes());
  // A number z, what makes params of it, the tasks, and what makes one number of their losses.
  const auto score = [&](const torch::Tensor& z) {
    return (losses(start + torch::sin(z) * direction, call).square() *
            torch::tensor({1.F, -2.F, 0.5F}))
        .sum();
  };
  const torch::Tensor z = torch::tensor(0.1F).requires_grad_();
  const double slope = torch::autograd::grad({score(z)}, {z})[0].item<double>();
  const torch::NoGradGuard no_grad;
  constexpr double kStep = 0.01;
  const double difference =
      (score(z + kStep).item<double>() - score(z - kStep).item<double>()) / (2 * kStep);
  CHECK_GT(std::abs(slope), 0.1);
  CHECK_EQ(slope, doctest::Approx(difference).epsilon(0.005));
}

TEST_CASE("A native task inside a torch program is the torch task of the same net") {
  const auto native = SmallMlp(Activation::kRelu);
  ImageMlpOptions options{.images = {.image_size = 5, .batch_size = 11}, .hidden = {7}};
  const auto torch_task =
      TorchTaskRegistry().Make(WriteOptions("TorchImageMLP", options), TaskResources(""));
  const torch::Tensor params = InitRows(*native, 4).requires_grad_();
  const torch::Tensor outer = torch::tensor({1.F, -1.F, 0.25F, 3.F});
  const auto evaluate = [&](const std::shared_ptr<const TaskFamily>& family, const TaskCall& call) {
    const torch::Tensor losses = TaskFunction(family)(params, call);
    REQUIRE_EQ(losses.sizes(), torch::IntArrayRef({4}));
    return std::pair(losses.detach(), torch::autograd::grad({losses}, {params}, {outer})[0]);
  };
  for (const TaskCall& call :
       {TaskCall{.keys = SplitKey(KeyFromSeed(7), 4)},
        TaskCall{.split = Split::kTest, .examples = torch::arange(9000, 9020).view({4, 5})}}) {
    const auto [got_losses, got_gradients] = evaluate(native, call);
    const auto [wanted_losses, wanted_gradients] = evaluate(torch_task, call);
    CHECK_LE(MaxDistance(got_losses, wanted_losses), 1e-5);
    CHECK_LE(MaxDistance(got_gradients, wanted_gradients), 1e-5);
    // One of them alone, as a row.
    const torch::Tensor row = params[2].detach().requires_grad_();
    TaskCall one = call;
    if (!one.keys.empty()) one.keys = {call.keys[2]};
    if (one.examples.defined()) one.examples = call.examples[2];
    const torch::Tensor loss = TaskFunction(native)(row, one);
    REQUIRE_EQ(loss.dim(), 0);
    CHECK_EQ(loss.item<float>(), got_losses[2].item<float>());
    CHECK_LE(MaxDistance(torch::autograd::grad({0.25 * loss}, {row})[0], got_gradients[2]), 1e-7);
  }
}

TEST_CASE("Losses without gradients have the same bits") {
  const TaskFunction losses(SmallMlp());
  const torch::Tensor params = InitRows(*SmallMlp(), 2);
  const TaskCall call{.keys = SplitKey(KeyFromSeed(3), 2)};
  const torch::Tensor plain = losses(params, call);
  CHECK_FALSE(plain.requires_grad());
  const torch::Tensor with = losses(params.clone().requires_grad_(), call);
  CHECK(with.requires_grad());
  CHECK(plain.equal(with));
}

TEST_CASE("A task's config is used and its model state is updated in place") {
  const auto quadratic = std::make_shared<FixedDimQuadraticFamily>(QuadraticOptions{.dim = 3});
  const torch::Tensor x = torch::tensor({{1.F, 2.F, 3.F}}).requires_grad_();
  const torch::Tensor c = torch::tensor({{0.F, 1.F, 5.F}});
  const torch::Tensor loss = TaskFunction(quadratic)(x, {.config = c, .keys = {KeyFromSeed(1)}});
  CHECK_EQ(loss.item<float>(), 1 + 1 + 4);
  CHECK(torch::autograd::grad({loss}, {x}, {torch::ones({1})})[0].equal(2 * (x - c).detach()));

  const TaskFunction normalized(NormalizedPoints(TaskResources("")));
  torch::Tensor state = torch::zeros({2, 3});
  const torch::Tensor w = torch::ones({2, 3});
  TaskCall call{.model_state = state, .split = Split::kTest, .keys = SplitKey(KeyFromSeed(2), 2)};
  normalized(w, call);
  CHECK_EQ(state.abs().max().item<float>(), 0);
  call.split = Split::kTrain;
  normalized(w, call);
  CHECK_GT(state.abs().min().item<float>(), 0);
}

TEST_CASE("A torch optimizer trains what makes the params of a native task") {
  const auto family = SmallMlp();
  const TaskFunction loss(family);
  const torch::Tensor origin = InitRows(*family, 1)[0];
  const torch::Tensor basis =
      0.1 * NormalTensor(KeyFromSeed(1), {family->params_layout().size(), 40});
  const torch::Tensor z = torch::zeros({40}).requires_grad_();
  torch::optim::Adam adam({z}, torch::optim::AdamOptions(0.05));
  const auto loss_on = [&](Split split) {
    const torch::NoGradGuard no_grad;
    const auto [first, last] = family->ExampleRange(split);
    return loss(origin + basis.matmul(z), {.split = split, .examples = torch::arange(first, last)})
        .item<float>();
  };
  const float before = loss_on(Split::kTest);
  for (uint64_t step = 0; step < 100; ++step) {
    adam.zero_grad();
    loss(origin + basis.matmul(z), {.keys = {FoldIn(KeyFromSeed(2), step)}}).backward();
    adam.step();
  }
  CHECK_LT(loss_on(Split::kTest), 0.92F * before);
}

TEST_CASE("Init and loss of a torch task may evaluate another torch task") {
  const TaskFunction points(NormalizedPoints(TaskResources("")));
  const torch::Tensor seven = torch::full({1, 3}, 7.F);
  const TaskCall call{.split = Split::kTrain, .keys = {KeyFromSeed(5)}};
  const auto evaluate = [points, call](const torch::Tensor& rows) {
    TaskCall with_state = call;
    with_state.model_state = torch::zeros({1, 3});
    return points(rows, with_state);
  };
  const auto init = [evaluate, seven](Key, const torch::Tensor&) -> TorchStart {
    return {{{"w", evaluate(seven)}}};
  };
  const auto loss = [evaluate, seven](const TorchEvaluation& e) -> TorchLoss {
    return evaluate(seven) * e.params[0].squeeze(1);
  };
  const TorchTaskFamily outer(init, loss);
  std::vector<float> params(1);
  outer.Init({}, KeyFromSeed(1), params, {});
  const float wanted = evaluate(seven).item<float>();
  CHECK_EQ(params[0], wanted);
  const auto shared = std::make_shared<TorchTaskFamily>(init, loss);
  CHECK_EQ(TaskFunction(shared)(torch::tensor({{2.F}}), {.keys = {KeyFromSeed(1)}}).item<float>(),
           2 * wanted);
}

TEST_CASE("Second derivatives of tasks and wrong params are errors") {
  const TaskFunction losses(SmallMlp());
  const torch::Tensor params = InitRows(*SmallMlp(), 2).requires_grad_();
  const TaskCall call{.keys = SplitKey(KeyFromSeed(3), 2)};
  const torch::Tensor gradient =
      torch::autograd::grad({losses(params, call).sum()}, {params}, {}, /*retain_graph=*/true,
                            /*create_graph=*/true)[0];
  CHECK_EQ(ErrorOf([&] { torch::autograd::grad({gradient.square().sum()}, {params}); }),
           "TaskFunction: the gradient of a task cannot be differentiated; a task has no second "
           "derivatives");
  CHECK_EQ(ErrorOf([&] {
             losses(torch::zeros({2, 3}), call);
           }),
           "TaskFunction: params must be float32 of shape [n, 262] or [262], got Float of shape "
           "[2, 3]");
  CHECK_EQ(ErrorOf([&] { losses(params.to(torch::kFloat64), call); }),
           "TaskFunction: params must be float32 of shape [n, 262] or [262], got Double of shape "
           "[2, 262]");
  CHECK_EQ(ErrorOf([&] { losses({}, call); }),
           "TaskFunction: params must be float32 of shape [n, 262] or [262]");
  TaskCall state{.model_state = torch::zeros({3, 2}).t()};
  CHECK_EQ(ErrorOf([&] { losses(params, state); }),
           "TaskFunction: model_state must be float32 and contiguous, as it is updated in place");
}

TEST_CASE("Examples that are no rows of a data set, and tensors of a device, are errors") {
  const TaskFunction losses(SmallMlp());
  const torch::Tensor params = InitRows(*SmallMlp(), 1);
  const auto error_of_examples = [&](const torch::Tensor& examples) {
    return ErrorOf([&] { losses(params, {.examples = examples}); });
  };
  CHECK_EQ(error_of_examples(torch::tensor({{1.F, 2.F}})),
           "TaskFunction: examples must be integers, the rows of a data set, got Float");
  CHECK_EQ(error_of_examples(torch::ones({1, 2}, torch::kBool)),
           "TaskFunction: examples must be integers, the rows of a data set, got Bool");
  // Cut to 32 bits this is row 1.
  CHECK_EQ(error_of_examples(torch::tensor({{int64_t{1}, (int64_t{1} << 32) + 1}})),
           "TaskFunction: examples must be rows of a data set, got 4294967297");
  for (const torch::ScalarType type : {torch::kUInt8, torch::kInt16, torch::kInt32}) {
    const torch::Tensor examples = torch::tensor({{1, 2}});
    CHECK(losses(params, {.examples = examples.to(type)})
              .equal(losses(params, {.examples = examples.to(torch::kInt64)})));
  }
  const auto away = torch::TensorOptions(torch::kMeta);
  const std::string wanted = " must be on the CPU, got one on meta";
  CHECK_EQ(ErrorOf([&] { losses(params.to(torch::kMeta), {}); }), "TaskFunction: params" + wanted);
  CHECK_EQ(ErrorOf([&] {
             losses(params, {.config = torch::empty({1, 0}, away)});
           }),
           "TaskFunction: config" + wanted);
  CHECK_EQ(ErrorOf([&] {
             losses(params, {.model_state = torch::empty({1, 0}, away)});
           }),
           "TaskFunction: model_state" + wanted);
  CHECK_EQ(error_of_examples(torch::empty({1, 2}, away.dtype(torch::kInt64))),
           "TaskFunction: examples" + wanted);
}

}  // namespace lopt
