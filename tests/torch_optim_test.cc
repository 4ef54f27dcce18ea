// The headers of LibTorch define a CHECK, which doctest's must replace.
// clang-format off
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>
#include <doctest/doctest.h>
// clang-format on

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/key.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/data/idx.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/torch/learned_optimizer.h"
#include "lopt/torch/torch_task.h"
#include "tests/celo2_golden.h"
#include "tests/error_of.h"
#include "tests/golden_dir.h"
#include "tests/mnist_dir.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"
#include "tests/torch_order.h"

namespace lopt::torch_optim {
namespace {

using Tensors = std::vector<torch::Tensor>;
using Group = torch::optim::OptimizerParamGroup;
using Options = LearnedOptimizerOptions;

constexpr const char* kMlp = R"({"type": "MLPLOpt", "step_mult": 0.1})";

constexpr const char* kAllOptions =
    R"({"type": "MLPLOpt", "step_mult": 1, "progress_features": true, "schedule": "cosine",
        "relative_step": true, "relative_to_parameter": true, "normalizer_epsilon": 1e-24})";

constexpr const char* kLearnedScheduler =
    R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps", "optimizer":
        {"type": "LearnableSGDM", "learning_rate": 1000}}})";

constexpr const char* kMatricesAndVectors =
    R"({"type": "LearnedScheduler", "optimizer": {"type": "MatricesAndVectors",
        "matrices": {"type": "OrthogonalSteps", "optimizer": {"type": "LearnableSGDM"}},
        "vectors": {"type": "MLPLOpt", "step_mult": 1}}})";

ThetaFile Theta(const std::string& config = kMlp) {
  ThetaFile file;
  file.learned_optimizer = Config::Parse(config, "test");
  file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(3));
  return file;
}

ThetaFile GoldenTheta(const std::string& file) {
  const auto metadata = ReadArrayFile(GoldenPath(file)).metadata;
  const auto named = metadata.find("optimizer");
  return ReadThetaFile(
      GoldenPath(file),
      Config::Parse(named == metadata.end() ? R"({"type": "MLPLOpt"})" : named->second, file));
}

// Row `row` of a golden array, or all of it, as a tensor.
torch::Tensor Golden(const ArrayFile& file, const std::string& name, int64_t row = -1) {
  const Array& array = file.arrays.At(name);
  const auto values = array.As<float>();
  const torch::Tensor all =
      torch::from_blob(const_cast<float*>(values.data()), array.shape()).clone();
  return row < 0 ? all : all[row];
}

// Parameters of rank 0 to 5, sizes around the kernels' blocks of 16.
Tensors SomeParams(torch::Dtype dtype = torch::kFloat32) {
  const std::vector<Shape> shapes = {{},       {1},       {17},         {5, 3},
                                     {64, 33}, {2, 3, 4}, {3, 1, 2, 5}, {2, 2, 2, 2, 3}};
  Tensors params;
  for (size_t i = 0; i < shapes.size(); ++i) {
    params.push_back(
        NormalTensor(FoldIn(KeyFromSeed(1), i), shapes[i]).to(dtype).set_requires_grad(true));
  }
  return params;
}

torch::Tensor Gradient(const torch::Tensor& param, size_t index, uint64_t step) {
  const Key key = FoldIn(FoldIn(KeyFromSeed(2), index), step);
  return NormalTensor(key, param.sizes()).to(param.scalar_type());
}

void Train(LearnedOptimizer* optimizer, const Tensors& params, uint64_t from, uint64_t to) {
  for (uint64_t step = from; step < to; ++step) {
    for (size_t i = 0; i < params.size(); ++i) {
      torch::Tensor param = params[i];
      param.mutable_grad() = Gradient(param, i, step);
    }
    optimizer->step();
  }
}

bool SameBits(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor x = a.detach().contiguous();
  const torch::Tensor y = b.detach().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

bool SameBits(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameBits(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

double Difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.detach().to(torch::kFloat64) - b.detach().to(torch::kFloat64))
      .abs()
      .max()
      .item<double>();
}

// A pointer as text, or such a text: LibTorch 2 has one and LibTorch 1 the other as keys of states.
template <class Key>
std::string KeyText(const Key& key) {
  std::ostringstream text;
  text << key;
  return text.str();
}

int64_t StepsOf(LearnedOptimizer& optimizer, size_t index) {
  const void* param = optimizer.param_groups()[0].params()[index].unsafeGetTensorImpl();
  for (const auto& [key, state] : optimizer.state()) {
    if (KeyText(key) == KeyText(param))
      return static_cast<LearnedOptimizerParamState&>(*state).step();
  }
  return 0;
}

// What each tensor becomes when its own update rule is run by hand.
Tensors ByHand(const Tensors& start, const ThetaFile& file, uint64_t steps) {
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  const auto floats = [](const torch::Tensor& tensor) {
    return std::span<float>(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  };
  Tensors params;
  Workspace scratch;
  for (size_t i = 0; i < start.size(); ++i) {
    const bool turned = optimizer->sees_shapes();
    const torch::Tensor param =
        (turned ? InRuleOrder(start[i].detach()) : start[i].detach()).clone();
    const auto rule = optimizer->Bind(Layout({{"p", param.sizes().vec()}}),
                                      std::span(file.theta.data(), size_t(file.theta.size())));
    std::vector<float> state(size_t(rule->state_layout().size()));
    rule->InitState({}, floats(param), state);
    for (uint64_t step = 0; step < steps; ++step) {
      const torch::Tensor given = Gradient(start[i], i, step);
      const torch::Tensor gradient = turned ? InRuleOrder(given) : given;
      rule->Update({.step = int64_t(step), .num_steps = int64_t(steps)}, floats(gradient),
                   floats(param), state, scratch);
    }
    params.push_back(turned ? InTorchOrder(param) : param);
  }
  return params;
}

struct DigitClassifier : torch::nn::Module {
  explicit DigitClassifier(const ArrayFile& golden) {
    for (const std::string layer : {"linear_0", "linear_1"}) {
      for (const std::string part : {"w", "b"}) {
        params.push_back(
            register_parameter(layer + part, Golden(golden, "param0/mlp/" + layer + "/" + part)));
      }
    }
  }
  torch::Tensor Loss(const torch::Tensor& x, const torch::Tensor& label) const {
    const torch::Tensor hidden = torch::relu(torch::matmul(x, params[0]) + params[1]);
    return torch::nn::functional::cross_entropy(torch::matmul(hidden, params[2]) + params[3],
                                                label);
  }
  Tensors params;
};

void FollowGoldenTraining(torch::Dtype dtype) {
  const std::string file = "image_mlp_inner_training.safetensors";
  const ArrayFile golden = ReadArrayFile(GoldenPath(file));
  const Array& index = golden.arrays.At("index");
  const ImageData data(ReadImageDirectory(MnistDir()), 8);
  const torch::Tensor images =
      torch::from_blob(const_cast<float*>(data.images()), {data.count(), 64}, {data.stride(), 1})
          .to(dtype);
  const torch::Tensor labels =
      torch::from_blob(const_cast<uint8_t*>(data.labels()), {data.count()}, torch::kUInt8)
          .to(torch::kInt64);
  DigitClassifier model(golden);
  model.to(dtype);
  LearnedOptimizer optimizer(model.params = model.parameters(), GoldenTheta(file));
  const auto wanted = golden.arrays.At("loss").As<float>();
  REQUIRE(wanted.size() == 60);
  for (int64_t step = 0; step < 60; ++step) {
    CAPTURE(step);
    const torch::Tensor rows = torch::from_blob(const_cast<int32_t*>(index.As<int32_t>().data()),
                                                index.shape(), torch::kInt32)[step]
                                   .to(torch::kInt64);
    optimizer.zero_grad();
    const torch::Tensor loss = model.Loss(images.index_select(0, rows), labels.index({rows}));
    loss.backward();
    optimizer.step();
    CHECK(std::abs(loss.item<double>() - wanted[step]) <= 1e-5 * wanted[step]);
  }
  for (const auto& item : model.named_parameters()) {
    const std::string name = item.key().substr(0, 8) + "/" + item.key().substr(8);
    CAPTURE(name);
    CHECK(Difference(item.value(), Golden(golden, "param_end/mlp/" + name)) <= 1e-5);
  }
}

TEST_CASE("A LibTorch training loop follows the golden losses of real digits") {
  if (SkipsWithoutMnist()) return;
  FollowGoldenTraining(torch::kFloat32);
  FollowGoldenTraining(torch::kFloat64);
}

TEST_CASE("Tensors of rank 0 to 4 follow the golden steps") {
  for (const std::string file :
       {"mlp_lopt_steps.safetensors", "mlp_lopt_steps_large.safetensors"}) {
    const ArrayFile golden = ReadArrayFile(GoldenPath(file));
    std::vector<std::string> names;
    Tensors params;
    for (const auto& [name, array] : golden.arrays.Extract("param0/")) {
      names.push_back(name);
      const torch::Tensor param = Golden(golden, "param0/" + name);
      params.push_back(name == "b/scalar" ? param[0].clone() : param);  // rank 0 acts as rank 1
    }
    LearnedOptimizer optimizer(params, GoldenTheta(file));
    for (int64_t step = 0; step < std::stoll(golden.metadata.at("steps")); ++step) {
      for (size_t i = 0; i < params.size(); ++i) {
        params[i].mutable_grad() =
            Golden(golden, "gradient/" + names[i], step).view(params[i].sizes());
      }
      optimizer.step();
      for (size_t i = 0; i < params.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(Difference(params[i],
                         Golden(golden, "param/" + names[i], step).view(params[i].sizes())) <=
              1e-6);
      }
    }
  }
}

TEST_CASE("Parameters in torch's order of axes follow the golden steps of AdafacMLPLOpt") {
  for (const std::string file :
       {"adafac_mlp_steps.safetensors", "adafac_mlp_steps_large.safetensors"}) {
    const ArrayFile golden = ReadArrayFile(GoldenPath(file));
    std::vector<std::string> names;
    Tensors params;
    for (const auto& [name, array] : golden.arrays.Extract("param0/")) {
      names.push_back(name);
      params.push_back(InTorchOrder(Golden(golden, "param0/" + name)));
    }
    params.push_back(torch::empty({4, 0}));
    LearnedOptimizer optimizer(params, GoldenTheta(file));
    for (int64_t step = 0; step < std::stoll(golden.metadata.at("steps")); ++step) {
      for (size_t i = 0; i < names.size(); ++i) {
        params[i].mutable_grad() = InTorchOrder(Golden(golden, "gradient/" + names[i], step));
      }
      params.back().mutable_grad() = torch::empty({4, 0});
      optimizer.step();
      for (size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(Difference(params[i], InTorchOrder(Golden(golden, "param/" + names[i], step))) <=
              1e-6);
      }
    }
  }
}

TEST_CASE("Parameters in torch's order of axes follow the golden steps of Celo2 and Celo2Base") {
  for (const Celo2Golden& golden : Celo2Goldens()) {
    CAPTURE(golden.prefix);
    std::vector<std::string> names;
    Tensors params;
    Group network((Tensors()));
    Group tables(Tensors(), std::make_unique<Options>(Options().as_vectors(true)));
    for (const auto& [name, array] : golden.file.arrays.Extract("param0/")) {
      names.push_back(name);
      params.push_back(InTorchOrder(Golden(golden.file, "param0/" + name)));
      (name.starts_with("embed") ? tables : network).params().push_back(params.back());
    }
    LearnedOptimizer optimizer(std::vector<Group>{network, tables}, golden.theta);
    for (int64_t step = 0; step < std::stoll(golden.file.metadata.at("steps")); ++step) {
      for (size_t i = 0; i < names.size(); ++i) {
        params[i].mutable_grad() = InTorchOrder(Golden(golden.file, "gradient/" + names[i], step));
      }
      if (step == 4) {  // goes on from an archive
        std::stringstream archive;
        torch::save(optimizer, archive);
        torch::load(optimizer, archive);
        const auto& options = static_cast<Options&>(optimizer.param_groups()[1].options());
        CHECK(options.as_vectors());
      }
      optimizer.step();
      for (size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        const torch::Tensor wanted =
            Golden(golden.file, golden.prefix + "/param/" + names[i], step);
        CHECK(Difference(params[i], InTorchOrder(wanted)) <= 1e-6);
      }
    }
  }
}

TEST_CASE("AdafacMLPLOpt has the same bits for any strides, from an archive, and moves float64") {
  const ThetaFile theta = Theta(R"({"type": "AdafacMLPLOpt", "step_mult": 0.1})");
  const Tensors params = SomeParams();
  Tensors others;
  Tensors doubles;
  for (const torch::Tensor& param : SomeParams()) {
    const torch::Tensor moved =
        param.dim() < 2 ? param : param.transpose(0, 1).contiguous().transpose(0, 1);
    others.push_back(moved.detach().set_requires_grad(true));
    doubles.push_back(param.detach().to(torch::kFloat64).set_requires_grad(true));
  }
  LearnedOptimizer optimizer(params, theta);
  LearnedOptimizer strided(others, theta);
  LearnedOptimizer of_doubles(doubles, theta);
  Train(&optimizer, params, 0, 3);
  Train(&strided, others, 0, 3);
  Train(&of_doubles, doubles, 0, 3);
  std::stringstream archive;
  torch::save(strided, archive);
  LearnedOptimizer resumed(others, theta);
  torch::load(resumed, archive);
  Train(&optimizer, params, 3, 6);
  Train(&resumed, others, 3, 6);
  Train(&of_doubles, doubles, 3, 6);
  CHECK(SameBits(params, others));
  for (size_t i = 0; i < params.size(); ++i) CHECK(Difference(params[i], doubles[i]) <= 1e-5);
  CHECK(Difference(params[4], SomeParams()[4]) > 1e-3);
}

TEST_CASE("Contiguous float32 parameters get the bits of their update rules, in place") {
  for (const char* config :
       {kMlp, R"({"type": "LearnableAdam"})", R"({"type": "LearnableSGDM"})",
        R"({"type": "LearnableSGD"})", kAllOptions, kLearnedScheduler, kMatricesAndVectors}) {
    CAPTURE(config);
    const Tensors params = SomeParams();
    std::vector<const void*> places;
    for (const torch::Tensor& param : params) places.push_back(param.data_ptr());
    const Tensors wanted = ByHand(params, Theta(config), 4);
    LearnedOptimizer optimizer(params, Theta(config), Options().num_steps(4));
    Train(&optimizer, params, 0, 4);
    CHECK(SameBits(params, wanted));
    for (size_t i = 0; i < params.size(); ++i) CHECK(params[i].data_ptr() == places[i]);
    CHECK_FALSE(SameBits(params, SomeParams()));
  }
}

TEST_CASE("The number of threads does not change the bits") {
  Tensors wanted;
  for (const int threads : {1, 2, 4}) {
    at::set_num_threads(threads);
    Tensors params;
    for (uint64_t i = 0; i < 7; ++i) {
      params.push_back(
          NormalTensor(FoldIn(KeyFromSeed(5), i), {100, int64_t(30 + i)}).set_requires_grad(true));
    }
    LearnedOptimizer optimizer(params, Theta());
    Train(&optimizer, params, 0, 3);
    if (wanted.empty()) wanted = params;
    CHECK(SameBits(params, wanted));
  }
  at::set_num_threads(1);
}

TEST_CASE("The number of threads does not change the bits of one large tensor") {
  const torch::Tensor start = NormalTensor(KeyFromSeed(9), {301, 701});
  const Tensors by_hand = ByHand({start}, Theta(), 2);
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const Tensors params = {start.clone()};
    LearnedOptimizer optimizer(params, Theta());
    Train(&optimizer, params, 0, 2);
    CHECK(SameBits(params, by_hand));
  }
  at::set_num_threads(1);
}

TEST_CASE("Strides of parameters and gradients do not change the bits") {
  const Tensors contiguous = {NormalTensor(KeyFromSeed(6), {6, 4}),
                              NormalTensor(KeyFromSeed(7), {2, 3, 4, 5}),
                              NormalTensor(KeyFromSeed(8), {9})};
  const auto strided = [&] {
    return Tensors{contiguous[0].t().contiguous().t(),
                   contiguous[1].contiguous(torch::MemoryFormat::ChannelsLast),
                   contiguous[2].repeat_interleave(2).slice(0, 0, 18, 2)};
  };
  for (const Options& options : {Options(), Options().lr(0.5).weight_decay(0.01)}) {
    Tensors plain;
    for (const torch::Tensor& tensor : contiguous) plain.push_back(tensor.clone());
    const Tensors params = strided();
    LearnedOptimizer plain_optimizer(plain, Theta(), options);
    LearnedOptimizer optimizer(params, Theta(), options);
    for (uint64_t step = 0; step < 3; ++step) {
      for (size_t i = 0; i < params.size(); ++i) {
        const torch::Tensor gradient = Gradient(plain[i], i, step);
        plain[i].mutable_grad() = gradient;
        torch::Tensor param = params[i];
        REQUIRE_FALSE(param.is_contiguous());
        // Its last step's gradient has strides that are neither C order nor the parameter's.
        param.mutable_grad() = step == 2 ? gradient.expand_as(gradient)
                                         : torch::stack({gradient, gradient}, -1).select(-1, 1);
      }
      plain_optimizer.step();
      optimizer.step();
    }
    CHECK(SameBits(params, plain));
    CHECK(params[0].strides() == strided()[0].strides());
  }
}

TEST_CASE("Gradients and parameters that torch negates only when it reads them are read so") {
  const Tensors plain = {NormalTensor(KeyFromSeed(6), {6, 4})};
  const Tensors params = {at::_neg_view(-plain[0])};
  REQUIRE(params[0].is_neg());
  LearnedOptimizer plain_optimizer(plain, Theta());
  LearnedOptimizer optimizer(params, Theta());
  for (uint64_t step = 0; step < 3; ++step) {
    const torch::Tensor gradient = Gradient(plain[0], 0, step);
    torch::Tensor(plain[0]).mutable_grad() = gradient;
    torch::Tensor(params[0]).mutable_grad() = at::_neg_view(-gradient);
    REQUIRE(params[0].grad().is_neg());
    plain_optimizer.step();
    optimizer.step();
  }
  CHECK(SameBits(params[0].resolve_neg(), plain[0]));
}

TEST_CASE("Steps of float64 parameters are those of float32 and are added in float64") {
  const Tensors singles = SomeParams();
  Tensors params;
  for (const torch::Tensor& single : singles) {
    params.push_back((single.detach().to(torch::kFloat64) + 1e-12).set_requires_grad(true));
  }
  const Tensors start = SomeParams();
  LearnedOptimizer single_optimizer(singles, Theta());
  LearnedOptimizer optimizer(params, Theta());
  Train(&single_optimizer, singles, 0, 1);
  Train(&optimizer, params, 0, 1);
  for (size_t i = 0; i < params.size(); ++i) {
    CAPTURE(i);
    const torch::Tensor step = singles[i].detach() - start[i].detach();
    const torch::Tensor before = start[i].detach().to(torch::kFloat64) + 1e-12;
    CHECK(SameBits(params[i], before + step.to(torch::kFloat64)));
  }
  Train(&single_optimizer, singles, 1, 20);
  Train(&optimizer, params, 1, 20);
  for (size_t i = 0; i < params.size(); ++i) CHECK(Difference(params[i], singles[i]) <= 1e-5);
}

TEST_CASE("A parameter without a gradient keeps its value, state and step count") {
  const Tensors params = {torch::ones({3}), torch::ones({3}), torch::empty({0, 2})};
  LearnedOptimizer optimizer(params, Theta());
  for (int step = 0; step < 3; ++step) {
    torch::Tensor first = params[0];
    first.mutable_grad() = torch::full({3}, 0.5F);
    torch::Tensor second = params[1];
    second.mutable_grad() = step == 1 ? torch::Tensor() : torch::full({3}, 0.5F);
    torch::Tensor empty = params[2];
    empty.mutable_grad() = torch::empty({0, 2});
    optimizer.step();
    if (step == 0) CHECK(SameBits(params[0], params[1]));
  }
  CHECK(StepsOf(optimizer, 0) == 3);
  CHECK(StepsOf(optimizer, 1) == 2);
  CHECK(StepsOf(optimizer, 2) == 0);

  const torch::Tensor twice = torch::ones({3});
  LearnedOptimizer other(Tensors{twice}, Theta());
  for (int step = 0; step < 2; ++step) {
    twice.mutable_grad() = torch::full({3}, 0.5F);
    other.step();
  }
  CHECK(SameBits(params[1], twice));
  CHECK_FALSE(SameBits(params[0], twice));
}

TEST_CASE("A gradient that is not finite is an error and changes nothing") {
  const Tensors params = {torch::ones({2}), torch::ones({3}, torch::kFloat64)};
  LearnedOptimizer optimizer(params, Theta());
  torch::Tensor first = params[0];
  first.mutable_grad() = torch::ones({2});
  for (const double bad : {double{NAN}, double{INFINITY}, -1e300}) {  // the last in float32
    torch::Tensor second = params[1];
    second.mutable_grad() = torch::tensor({1.0, bad, 1.0}, torch::kFloat64);
    CHECK(ErrorOf([&] { optimizer.step(); }) ==
          "LearnedOptimizer: parameter 1 of group 0, shape [3], has a gradient that is not finite; "
          "nothing was changed. NonFinite::kSkip leaves such a parameter as it is and goes on");
  }
  CHECK(SameBits(params, {torch::ones({2}), torch::ones({3}, torch::kFloat64)}));
  CHECK(optimizer.state().empty());
  CHECK(optimizer.skipped() == 0);
}

TEST_CASE("A gradient that is not finite can be skipped and is counted") {
  const Tensors params = {torch::ones({3}), torch::ones({3})};
  LearnedOptimizer optimizer(params, Theta(), Options().non_finite(NonFinite::kSkip));
  for (int step = 0; step < 3; ++step) {
    torch::Tensor first = params[0];
    first.mutable_grad() = torch::full({3}, 0.5F);
    torch::Tensor second = params[1];
    second.mutable_grad() = torch::tensor({0.5F, step == 1 ? NAN : 0.5F, 0.5F});
    optimizer.step();
  }
  CHECK(optimizer.skipped() == 1);
  CHECK(StepsOf(optimizer, 0) == 3);
  CHECK(StepsOf(optimizer, 1) == 2);
  torch::Tensor twice = torch::ones({3});
  LearnedOptimizer other(Tensors{twice}, Theta());
  for (int step = 0; step < 2; ++step) {
    twice.mutable_grad() = torch::full({3}, 0.5F);
    other.step();
  }
  CHECK(SameBits(params[1], twice));
}

// Losses that are not finite in float32.
const double kBadLosses[] = {NAN, INFINITY, -INFINITY, 1e39};
constexpr const char* kToldOfLosses[] = {"Celo", "CeloAdam", "Sinv6"};

// A step of an optimizer that is told the loss.
void StepWith(LearnedOptimizer* optimizer, const Tensors& params, float gradient, double loss) {
  for (torch::Tensor param : params) param.mutable_grad() = torch::full_like(param, gradient);
  optimizer->step([&] { return torch::tensor(loss, torch::kFloat64); });
}

TEST_CASE("A loss that is needed and not finite is an error and changes nothing") {
  for (const std::string type : kToldOfLosses) {
    CAPTURE(type);
    const ThetaFile theta = Theta(R"({"type": ")" + type + R"("})");
    const Tensors params = {torch::ones({3, 2}), torch::ones({4})};
    const Tensors twin = {torch::ones({3, 2}), torch::ones({4})};
    LearnedOptimizer optimizer(params, theta, Options().num_steps(3));
    LearnedOptimizer undisturbed(twin, theta, Options().num_steps(3));
    for (int step = 0; step < 3; ++step) {
      for (const double bad : kBadLosses) {
        CHECK(ErrorOf([&] { StepWith(&optimizer, params, 0.5F, bad); }) ==
              fmt::format("LearnedOptimizer: a {} is told the loss {} at step {}, which is not "
                          "finite in float32; nothing was changed. NonFinite::kSkip leaves all "
                          "parameters as they are and goes on",
                          type, bad, step + 1));
      }
      StepWith(&optimizer, params, 0.5F, 2.0 - step);
      StepWith(&undisturbed, twin, 0.5F, 2.0 - step);
    }
    CHECK(optimizer.skipped() == 0);
    CHECK(SameBits(params, twin));
    CHECK(torch::isfinite(twin[0]).all().item<bool>());
  }
}

TEST_CASE("A loss that is needed and not finite can be skipped for all tensors") {
  for (const std::string type : kToldOfLosses) {
    CAPTURE(type);
    const ThetaFile theta = Theta(R"({"type": ")" + type + R"("})");
    const Tensors params = {torch::ones({3, 2}), torch::ones({4})};
    const Tensors twin = {torch::ones({3, 2}), torch::ones({4})};
    LearnedOptimizer optimizer(params, theta, Options().num_steps(3).non_finite(NonFinite::kSkip));
    LearnedOptimizer undisturbed(twin, theta, Options().num_steps(3));
    for (int step = 0; step < 3; ++step) {
      for (const double bad : kBadLosses) StepWith(&optimizer, params, 0.5F, bad);
      StepWith(&optimizer, params, 0.5F, 2.0 - step);
      StepWith(&undisturbed, twin, 0.5F, 2.0 - step);
    }
    CHECK(optimizer.skipped() == 3 * 4 * 2);
    CHECK(StepsOf(optimizer, 0) == 3);
    CHECK(SameBits(params, twin));
    CHECK(torch::isfinite(twin[0]).all().item<bool>());
  }
}

TEST_CASE("A loss that is not needed may be anything") {
  const Tensors params = {torch::ones({3})};
  LearnedOptimizer optimizer(params, Theta());
  for (const double bad : kBadLosses) StepWith(&optimizer, params, 0.5F, bad);
  CHECK(StepsOf(optimizer, 0) == 4);
  CHECK(torch::isfinite(params[0]).all().item<bool>());
}

TEST_CASE("Zero gradients move parameters unless they are skipped") {
  const torch::Tensor start = NormalTensor(KeyFromSeed(10), {5, 3});
  torch::Tensor used = torch::full({5, 3}, 0.3F);
  used.slice(0, 1, 4).zero_();
  // After a step with gradients everywhere, and after more in which the rows 1 to 3 have none.
  const auto train = [&](const Options& options, torch::Dtype dtype) {
    torch::Tensor param = start.to(dtype, false, /*copy=*/true);
    LearnedOptimizer optimizer(Tensors{param}, Theta(), options);
    torch::Tensor first;
    for (int step = 0; step < 20; ++step) {
      param.mutable_grad() = (step == 0 ? torch::full({5, 3}, 0.3F) : used).to(dtype);
      optimizer.step();
      if (step == 0) first = param.clone();
    }
    return std::pair(first, param);
  };
  const auto [first, last] = train({}, torch::kFloat32);
  CHECK((last - first).slice(0, 1, 4).abs().min().item<float>() > 1e-3);
  const Options skip = Options().skip_zero_gradients(true);
  for (const Options& options : {skip, Options(skip).lr(0.5).weight_decay(0.1)}) {
    for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
      const auto [before, after] = train(options, dtype);
      CHECK(SameBits(after.slice(0, 1, 4), before.slice(0, 1, 4)));
      CHECK((after - before)[0].abs().min().item<float>() > 1e-3);
      CHECK((after - before)[4].abs().min().item<float>() > 1e-3);
    }
  }
}

// What is written to stderr while `body` runs.
std::string Errors(const std::function<void()>& body) {
  const TempDirectory directory;
  const std::string path = directory / "stderr";
  const int before = dup(STDERR_FILENO);
  const int file = open(path.c_str(), O_CREAT | O_WRONLY, 0600);
  REQUIRE(dup2(file, STDERR_FILENO) == STDERR_FILENO);
  body();
  dup2(before, STDERR_FILENO);
  close(before);
  close(file);
  return ReadTextFile(path);
}

TEST_CASE("A training beyond the trained horizon is warned of once") {
  ThetaFile theta = Theta();
  theta.trained_horizon = 3;
  const Tensors params = {torch::ones({3}), torch::ones({2})};
  LearnedOptimizer optimizer(params, theta);
  CHECK(Errors([&] { Train(&optimizer, params, 0, 3); }).empty());
  const std::string errors = Errors([&] { Train(&optimizer, params, 3, 6); });
  const std::string warning = "step 4 is beyond the 3 steps that this optimizer was trained for";
  const size_t at = errors.find(warning);
  CHECK(at != std::string::npos);
  CHECK(errors.find("was trained for", at + warning.size()) == std::string::npos);

  // Where num_steps says so, the first step warns, and no other.
  for (const int64_t num_steps : {3, 4}) {
    LearnedOptimizer told(params, theta, Options().num_steps(num_steps));
    const std::string first = Errors([&] { Train(&told, params, 0, 1); });
    CHECK(Count(first, ": num_steps 4 (there at most 3). Try") == num_steps - 3);
    CHECK(Errors([&] { Train(&told, params, 1, 3); }).empty());
    CHECK(Count(Errors([&] { Train(&told, params, 3, 5); }), warning) == 4 - num_steps);
  }
}

TEST_CASE("A training unlike all that the optimizer was trained on is warned of once") {
  ThetaFile theta = Theta();
  theta.trained_range = {.shortest_training = 10,
                         .smallest_batch = 8,
                         .largest_batch = 16,
                         .most_params = 6,
                         .largest_tensor = 3};
  const auto warnings = [&](int64_t size, const Options& options) {
    const Tensors params = {torch::ones({size}), torch::ones({size})};
    LearnedOptimizer optimizer(params, theta, options);
    optimizer.step();  // without gradients
    return Errors([&] { Train(&optimizer, params, 0, 3); });
  };
  CHECK(warnings(30, Options()).empty());
  CHECK(warnings(30, Options().num_steps(5).batch_size(4)).empty());
  CHECK(Count(warnings(30, Options().batch_size(3)), ": batches of 3 (there at least 8). Try") ==
        1);
  CHECK(Count(warnings(30, Options().batch_size(161)), ": batches of 161 (there at most 16)") == 1);
  const std::string unlike = UnlikeTrained(theta.trained_range, 4, std::vector<int64_t>{31, 31});
  const std::string errors = warnings(31, Options().num_steps(4));
  const size_t at = errors.find("LearnedOptimizer: " + unlike);
  CHECK(at != std::string::npos);
  CHECK(errors.find("unlike", at + unlike.size()) == std::string::npos);
  CHECK(warnings(31, Options()).find("num_steps") == std::string::npos);
  theta.trained_range = {};
  CHECK(warnings(31, Options().num_steps(4)).empty());
}

TEST_CASE("Weight decay that takes more than 0.1 % of a tensor in a step is warned of once") {
  const auto warnings = [](double factor) {
    // The root mean square of the first step, without weight decay, says how much of it a weight
    // decay takes.
    const torch::Tensor start = NormalTensor(KeyFromSeed(4), {8, 5});
    const auto step = [&](const Tensors& params, const Options& options) {
      LearnedOptimizer optimizer(params, Theta(), options);
      return Errors([&] { Train(&optimizer, params, 0, 3); });
    };
    torch::Tensor moved = start.clone();
    LearnedOptimizer first(Tensors{moved}, Theta());
    moved.mutable_grad() = Gradient(moved, 0, 0);
    first.step();
    const double size = (moved - start).square().mean().sqrt().item<double>();
    const double weight_decay = factor * 1e-3 / (size / 0.2);
    return step({start.clone(), start.clone()}, Options().weight_decay(weight_decay));
  };
  const std::string errors = warnings(2);
  CHECK(Count(errors, "LearnedOptimizer: parameter 0 of group 0, shape [8, 5], loses ") == 1);
  CHECK(Count(errors, " % in a step by weight_decay ") == 1);
  CHECK(Count(errors, "; that is more than 0.1 %, which few trainings bear") == 1);
  CHECK(warnings(0.2).empty());
}

TEST_CASE("lr scales the step, weight_decay is decoupled, and each group has its own") {
  const torch::Tensor start = NormalTensor(KeyFromSeed(4), {8, 5});
  Tensors params;
  for (int i = 0; i < 5; ++i) params.push_back(start.clone().set_requires_grad(true));
  std::vector<Group> groups = {Group({params[0]}),
                               Group({params[1]}, std::make_unique<Options>(Options().lr(0.25))),
                               Group({params[2]}, std::make_unique<Options>(Options().lr(0)))};
  LearnedOptimizer optimizer(groups, Theta());
  optimizer.add_param_group(
      Group({params[3]}, std::make_unique<Options>(Options().lr(0.5).weight_decay(0.1))));
  optimizer.add_param_group(
      Group({params[4]}, std::make_unique<Options>(Options().weight_decay(0.1))));
  for (torch::Tensor& param : params) param.mutable_grad() = torch::sin(start);
  optimizer.step();
  const torch::Tensor step = params[0].detach() - start;
  CHECK(step.abs().min().item<float>() > 0);
  CHECK(Difference(params[1], start + 0.25 * step) <= 1e-6);
  CHECK(SameBits(params[2], start));
  const double part = 0.1 * std::sqrt(step.square().mean().item<double>()) / 0.2;
  CHECK(part > 1e-3);
  CHECK(Difference(params[3], start + 0.5 * step - 0.5 * part * start) <= 1e-6);
  CHECK(Difference(params[3], start + 0.5 * step) > 1e-4);
  CHECK(Difference(params[4], start + step - part * start) <= 1e-6);
}

TEST_CASE("Schedulers of learning rates work") {
  torch::Tensor param = torch::ones({4});
  LearnedOptimizer optimizer(Tensors{param}, Theta());
  torch::optim::StepLR scheduler(optimizer, 2, 0.5);
  std::vector<double> rates;
  for (int step = 0; step < 5; ++step) {
    param.mutable_grad() = torch::ones({4});
    optimizer.step();
    rates.push_back(optimizer.param_groups()[0].options().get_lr());
    scheduler.step();
  }
  CHECK((rates == std::vector<double>{1, 1, 1, 0.5, 0.5}));
}

TEST_CASE("A closure computes the gradients, and its loss is returned") {
  torch::Tensor param = torch::full({3}, 2.0F).set_requires_grad(true);
  LearnedOptimizer optimizer(Tensors{param}, Theta());
  CHECK_FALSE(optimizer.step().defined());
  CHECK(SameBits(param, torch::full({3}, 2.0F)));
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    const torch::Tensor value = param.square().sum();
    value.backward();
    return value;
  });
  CHECK(loss.item<float>() == 12);
  CHECK_FALSE(SameBits(param, torch::full({3}, 2.0F)));
  optimizer.zero_grad();
  CHECK((!param.grad().defined() || param.grad().abs().max().item<float>() == 0));
}

TEST_CASE("A graph from before a step cannot be differentiated after it") {
  torch::Tensor param = torch::ones({3}).set_requires_grad(true);
  LearnedOptimizer optimizer(Tensors{param}, Theta());
  const torch::Tensor loss = param.square().sum();
  param.mutable_grad() = torch::ones({3});
  optimizer.step();
  CHECK_THROWS_AS(loss.backward(), c10::Error);
}

TEST_CASE("Training that is saved and loaded in the middle goes on with the same bits") {
  const TempDirectory directory;
  const auto groups = [](const Tensors& params, double lr) {
    return std::vector<Group>{
        Group(Tensors(params.begin(), params.begin() + 3)),
        Group(Tensors(params.begin() + 3, params.end()),
              std::make_unique<Options>(
                  Options()
                      .lr(lr)
                      .weight_decay(0.01)
                      .non_finite(lr == 0.7 ? NonFinite::kSkip : NonFinite::kError)
                      .skip_zero_gradients(lr == 0.7)))};
  };
  for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
    const Tensors wanted = SomeParams(dtype);
    LearnedOptimizer uninterrupted(groups(wanted, 0.7), Theta());
    Train(&uninterrupted, wanted, 0, 6);

    const Tensors first = SomeParams(dtype);
    LearnedOptimizer optimizer(groups(first, 0.7), Theta());
    Train(&optimizer, first, 0, 3);
    torch::save(optimizer, directory / "optimizer.pt");
    torch::save(first, directory / "params.pt");

    Tensors second;
    torch::load(second, directory / "params.pt");
    LearnedOptimizer resumed(groups(second, 0.1), Theta());
    Train(&resumed, SomeParams(dtype), 0, 1);
    torch::load(resumed, directory / "optimizer.pt");
    CHECK(resumed.param_groups()[1].options().get_lr() == 0.7);
    const auto& options = static_cast<Options&>(resumed.param_groups()[1].options());
    CHECK(options.non_finite() == NonFinite::kSkip);
    CHECK(options.skip_zero_gradients());
    Train(&resumed, second, 3, 6);
    CHECK(SameBits(second, wanted));
    CHECK_FALSE(SameBits(second, first));
  }
}

TEST_CASE("An archive that does not fit is an error and changes nothing") {
  const TempDirectory directory;
  const std::string path = directory / "optimizer.pt";
  const Tensors params = SomeParams();
  LearnedOptimizer optimizer(params, Theta());
  Train(&optimizer, params, 0, 2);
  torch::save(optimizer, path);
  const auto load = [&](LearnedOptimizer&& into) {
    const std::string error = ErrorOf([&] { torch::load(into, path); });
    CHECK(into.state().empty());
    return error;
  };
  CHECK(load(LearnedOptimizer(params, Theta(R"({"type": "MLPLOpt", "step_mult": 0.2})"))) ==
        "LearnedOptimizer: the archive is of another learned optimizer: step_mult: 0.1 in the "
        "archive, 0.2 here");
  ThetaFile other = Theta();
  other.theta[5] += 1;
  CHECK(load(LearnedOptimizer(params, other)) ==
        "LearnedOptimizer: the archive was saved with another theta");
  CHECK(load(LearnedOptimizer(Tensors{params[0]}, Theta())) ==
        "LearnedOptimizer: the archive has 8 parameters in group 0, this optimizer 1");
  CHECK(
      load(LearnedOptimizer(std::vector<Group>{Group({params[0]}), Group({params[1]})}, Theta())) ==
      "LearnedOptimizer: the archive has 1 param groups, this optimizer 2");
  Tensors reshaped = SomeParams();
  reshaped[3] = torch::zeros({3, 5});
  CHECK(load(LearnedOptimizer(reshaped, Theta())) ==
        "LearnedOptimizer: parameter 3 of group 0, shape [3, 5], has the shape [5, 3] in the "
        "archive");
  torch::optim::Adam adam(params);
  torch::save(adam, path);
  CHECK(load(LearnedOptimizer(params, Theta())) ==
        "LearnedOptimizer: the archive is not one of a LearnedOptimizer ('lopt torch optimizer "
        "3')");
}

TEST_CASE("An archive whose values are of another kind is an error and changes nothing") {
  const TempDirectory directory;
  const std::string path = directory / "optimizer.pt";
  const Tensors params = {torch::ones({3})};
  LearnedOptimizer optimizer(params, Theta());
  Train(&optimizer, params, 0, 2);
  torch::save(optimizer, path);
  torch::serialize::InputArchive good;
  good.load_from(path);
  // The message where the archive has this value under `key`.
  const auto load = [&](const std::string& key, const c10::IValue& value) {
    torch::serialize::OutputArchive changed;
    bool found = false;
    for (const std::string& name : good.keys()) {
      c10::IValue saved;
      if (!good.try_read(name, saved)) continue;
      found = found || name == key;
      changed.write(name, name == key ? value : saved);
    }
    REQUIRE(found);
    changed.save_to(path);
    LearnedOptimizer into(params, Theta());
    const std::string error = ErrorOf([&] { torch::load(into, path); });
    CHECK(into.state().empty());
    return error;
  };
  c10::IValue value;
  REQUIRE(good.try_read("theta", value));
  const torch::Tensor theta = value.toTensor();
  const std::string other_theta = "LearnedOptimizer: the archive was saved with another theta";
  CHECK(load("theta", theta.to(torch::kFloat64)) == other_theta);
  CHECK(load("theta", theta.repeat_interleave(2).slice(0, 0, 2 * theta.numel(), 2)) == other_theta);
  const std::string failed = "LearnedOptimizer: loading the archive failed: ";
  CHECK(load("theta", "text").starts_with(failed));
  CHECK(load("learned_optimizer", int64_t{1}).starts_with(failed));
  CHECK(load("groups/0/lr", "text").starts_with(failed));
  CHECK(load("groups/0/params/0/state", int64_t{1}).starts_with(failed));
  const std::string name = "LearnedOptimizer: parameter 0 of group 0, shape [3], ";
  CHECK(load("groups/0/params/0/step", int64_t{-1}) ==
        name + "has made -1 steps in the archive; wanted 0 or more");
  REQUIRE(good.try_read("groups/0/params/0/state", value));
  const torch::Tensor state = value.toTensor();
  const std::string size = std::to_string(state.numel());
  const auto wanted = [&](const std::string& got) {
    return name + "in the archive has a state of " + got + " on the device cpu; needed are " +
           size + " of type Float, one after the other, on the CPU";
  };
  CHECK(load("groups/0/params/0/state", state.to(torch::kInt32)) ==
        wanted(size + " numbers of type Int"));
  CHECK(load("groups/0/params/0/state", torch::zeros({1}).expand({state.numel()})) ==
        wanted(size + " numbers of type Float"));
  CHECK(load("groups/0/params/0/state", torch::zeros({2})) == wanted("2 numbers of type Float"));
}

TEST_CASE("A state that does not fit its parameter any more is an error before any is stepped") {
  Tensors params = {NormalTensor(KeyFromSeed(1), {3}), NormalTensor(KeyFromSeed(2), {4, 2})};
  LearnedOptimizer optimizer(params, Theta(R"({"type": "AdafacMLPLOpt", "step_mult": 0.1})"));
  const auto step = [&] {
    for (torch::Tensor& param : params) {
      param.mutable_grad() = NormalTensor(KeyFromSeed(3), param.sizes());
    }
    optimizer.step();
  };
  step();
  const Tensors before = {params[0].clone(), params[1].clone()};
  static_cast<Options&>(optimizer.param_groups()[0].options()).as_vectors(true);
  const std::string error = ErrorOf(step);
  CHECK(
      error.starts_with("LearnedOptimizer: parameter 1 of group 0, shape [4, 2], has a state of "));
  CHECK(
      error.ends_with("(as_vectors of its group is true; has it been changed?); nothing was "
                      "changed"));
  CHECK(SameBits(params, before));
  static_cast<Options&>(optimizer.param_groups()[0].options()).as_vectors(false);
  step();
  CHECK_FALSE(SameBits(params, before));
}

TEST_CASE("Parameters that cannot be updated are an error that names them") {
  const auto error = [](const torch::Tensor& param) {
    return ErrorOf([&] { LearnedOptimizer(Tensors{torch::ones({2}), param}, Theta()); });
  };
  const std::string who = "LearnedOptimizer: parameter 1 of group 0, shape [4, 3], ";
  for (const auto& [dtype, name] :
       {std::pair(torch::kFloat16, "Half"), std::pair(torch::kBFloat16, "BFloat16"),
        std::pair(torch::kInt64, "Long")}) {
    CHECK(error(torch::zeros({4, 3}, dtype)) ==
          who + "has elements of type " + name + "; valid types: Float, Double");
  }
  CHECK(error(torch::empty({4, 3}, torch::kMeta)) ==
        who + "is on the device meta; it must be on the CPU");
  CHECK(error(torch::zeros({4, 3}).to_sparse()) ==
        who + "has the layout Sparse; it must be Strided");
  const torch::Tensor same = torch::ones({4, 3});
  CHECK(ErrorOf([&] { LearnedOptimizer(Tensors{same, same}, Theta()); }) == who + "is given twice");
}

TEST_CASE(
    "A gradient that does not fit or a bad option is an error, and no parameter has changed") {
  const Tensors params = {torch::ones({2}), torch::ones({4, 3})};
  LearnedOptimizer optimizer(params, Theta());
  torch::Tensor first = params[0];
  torch::Tensor second = params[1];
  first.mutable_grad() = torch::ones({2});
  second.mutable_grad() = torch::ones({4, 3}).to_sparse();
  CHECK(ErrorOf([&] { optimizer.step(); }) ==
        "LearnedOptimizer: parameter 1 of group 0, shape [4, 3], has a gradient with the layout "
        "Sparse; it must be Strided (dense)");
  second.mutable_grad() = torch::ones({3, 4});
  CHECK(ErrorOf([&] { optimizer.step(); }) ==
        "LearnedOptimizer: parameter 1 of group 0, shape [4, 3], has a gradient of shape [3, 4] on "
        "the device cpu; it must be like the parameter");
  second.mutable_grad() = torch::ones({4, 3});
  for (const auto& [rate, text] : {std::pair(-0.5, "-0.5"), std::pair(1e39, "1e+39")}) {
    optimizer.param_groups()[0].options().set_lr(rate);
    CHECK(ErrorOf([&] { optimizer.step(); }) ==
          std::string("LearnedOptimizer: param group 0: lr must be a number from 0 to 3.4e+38, the "
                      "largest of float32, got ") +
              text);
  }
  CHECK(SameBits(params[0], torch::ones({2})));
  CHECK(optimizer.state().empty());
  CHECK(ErrorOf([&] { LearnedOptimizer(params, Theta(), Options().weight_decay(NAN)); }) ==
        "LearnedOptimizer: weight_decay must be a number from 0 to 3.4e+38, the largest of "
        "float32, got nan");
  CHECK(ErrorOf([&] { LearnedOptimizer(params, Theta(), Options().weight_decay(1e39)); })
            .ends_with("weight_decay must be a number from 0 to 3.4e+38, the largest of float32, "
                       "got 1e+39"));
  CHECK(ErrorOf([&] {
          LearnedOptimizer(std::vector<Group>{Group(
                               {params[0]}, std::make_unique<torch::optim::AdamOptions>(0.1))},
                           Theta());
        }) ==
        "LearnedOptimizer: param group 0 has the options of another optimizer; "
        "LearnedOptimizerOptions needed");
}

// Gradient descent with the gradient divided by its norm over all tensors.
struct NormedDescentOptions {
  void Visit(FieldVisitor&) {}
};
class NormedDescent : public lopt::LearnedOptimizer {
 public:
  NormedDescent() : lopt::LearnedOptimizer(Layout({{"lr", {1}}})) {}

 private:
  struct Rule : UpdateRule {
    explicit Rule(const Layout& params) : UpdateRule(params, Layout()) {}
    void DoUpdate(const StepInfo&, std::span<const float> gradient, std::span<float> params,
                  std::span<float>, Workspace&) const override {
      float norm = 0;
      for (const float g : gradient) norm += g * g;
      for (size_t i = 0; i < params.size(); ++i) params[i] -= 0.1F * gradient[i] / norm;
    }
  };
  void DoInitTheta(Key, std::span<float> theta) const override { theta[0] = 0; }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params, std::span<const float>) const override {
    return std::make_unique<Rule>(params);
  }
};

TEST_CASE("An optimizer that couples tensors, or a wrong theta, is an error") {
  OptimizerRegistry().Add<NormedDescentOptions>(
      "NormedDescent", "For this test.",
      [](const NormedDescentOptions&) { return std::make_shared<NormedDescent>(); });
  const Tensors params = {torch::ones({2})};
  CHECK(ErrorOf([&] { LearnedOptimizer(params, Theta(R"({"type": "NormedDescent"})")); }) ==
        "LearnedOptimizer: a NormedDescent does not treat each tensor by itself, which this class "
        "needs");
  CHECK(ErrorOf([&] { LearnedOptimizer(params, Theta(R"({"type": "RNNMLPLOpt"})")); }) ==
        "LearnedOptimizer: a RNNMLPLOpt does not treat each tensor by itself, which this class "
        "needs");
  CHECK(
      ErrorOf([&] {
        LearnedOptimizer(params, Theta(R"({"type": "UnknownLength",
                                             "optimizer": {"type": "LearnableSGD"}})"));
      }) ==
      "LearnedOptimizer: wanted an optimizer whose steps make the params that it stands for; this "
      "one keeps those, an average, in its state");
  ThetaFile shorter = Theta();
  shorter.theta.conservativeResize(7);
  CHECK(ErrorOf([&] { LearnedOptimizer(params, shorter); }) ==
        "LearnedOptimizer: theta has 7 numbers, a MLPLOpt needs 1762");
}

// Gradient descent that cannot begin at 13.
class Superstitious : public lopt::LearnedOptimizer {
 public:
  Superstitious() : lopt::LearnedOptimizer(Layout({{"lr", {1}}})) {}

 private:
  struct Rule : UpdateRule {
    explicit Rule(const Layout& params) : UpdateRule(params, params) {}
    void DoInitState(const StepInfo&, std::span<const float> params,
                     std::span<float> state) const override {
      Require(params[0] != 13, "Superstitious: 13");
      std::ranges::fill(state, 0.0F);
    }
    void DoUpdate(const StepInfo&, std::span<const float> gradient, std::span<float> params,
                  std::span<float>, Workspace&) const override {
      for (size_t i = 0; i < params.size(); ++i) params[i] -= 0.5F * gradient[i];
    }
  };
  void DoInitTheta(Key, std::span<float> theta) const override { theta[0] = 0; }
  std::unique_ptr<UpdateRule> DoBind(const Layout& params, std::span<const float>) const override {
    return std::make_unique<Rule>(params);
  }
};

TEST_CASE("A first step that fails leaves no state that a later one would read") {
  OptimizerRegistry().Add<NormedDescentOptions>(
      "Superstitious", "For this test.",
      [](const NormedDescentOptions&) { return std::make_shared<Superstitious>(); });
  torch::Tensor param = torch::full({2}, 13.0F);
  LearnedOptimizer optimizer({param}, Theta(R"({"type": "Superstitious"})"));
  param.mutable_grad() = torch::ones({2});
  for (int i = 0; i < 2; ++i) {
    CHECK(ErrorOf([&] { optimizer.step(); }) == "Superstitious: 13");
    CHECK(optimizer.state().empty());
  }
  param.fill_(1);
  optimizer.step();
  CHECK(SameBits(param, torch::full({2}, 0.5F)));
  CHECK(optimizer.state().size() == 1);
}

constexpr const char* kCosine =
    R"({"type": "LearnableAdam", "learning_rate": 0.1, "schedule": "cosine"})";

TEST_CASE("A rule with a schedule gets the length of the training, and goes on from an archive") {
  const Tensors params = SomeParams();
  const Tensors wanted = ByHand(params, Theta(kCosine), 6);
  LearnedOptimizer optimizer(params, Theta(kCosine), Options().num_steps(6));
  Train(&optimizer, params, 0, 3);
  const TempDirectory directory;
  torch::save(optimizer, directory / "optimizer.pt");
  LearnedOptimizer resumed(params, Theta(kCosine), Options().num_steps(6));
  torch::load(resumed, directory / "optimizer.pt");
  Train(&resumed, params, 3, 6);
  CHECK(SameBits(params, wanted));
  CHECK_FALSE(SameBits(params, SomeParams()));
}

TEST_CASE("A num_steps that the new optimizer has stays when an archive is loaded") {
  const auto num_steps = [](LearnedOptimizer& optimizer) {
    return static_cast<const Options&>(optimizer.param_groups()[0].options()).num_steps();
  };
  const Tensors params = SomeParams();
  const TempDirectory directory;
  LearnedOptimizer optimizer(params, Theta(), Options().num_steps(6));
  torch::save(optimizer, directory / "optimizer.pt");
  LearnedOptimizer longer(params, Theta(), Options().num_steps(99));
  torch::load(longer, directory / "optimizer.pt");
  CHECK(num_steps(longer) == 99);
  LearnedOptimizer without(params, Theta());
  torch::load(without, directory / "optimizer.pt");
  CHECK(num_steps(without) == 6);
}

TEST_CASE("A tensor that its step would make not finite is left and counted") {
  const Tensors params = {torch::ones({2}), torch::ones({3, 2}), torch::ones({2}, torch::kFloat64)};
  const Tensors before = {params[0].clone(), params[1].clone(), params[2].clone()};
  LearnedOptimizer optimizer(params, Theta(R"({"type": "LearnableSGD", "learning_rate": 1e30})"));
  params[0].mutable_grad() = torch::full({2}, 1e-30);
  params[1].mutable_grad() = torch::full({3, 2}, 1e20);
  params[2].mutable_grad() = torch::full({2}, 1e20, torch::kFloat64);
  const std::string errors = Errors([&] {
    optimizer.step();
    optimizer.step();
  });
  CHECK(Count(errors, " would not be finite after its step, so it is left as it is; ") == 1);
  CHECK(optimizer.skipped() == 4);
  CHECK_FALSE(SameBits(params[0], before[0]));
  CHECK(SameBits(params[1], before[1]));
  CHECK(SameBits(params[2], before[2]));
  CHECK(StepsOf(optimizer, 1) == 2);
}

TEST_CASE("A rule with a schedule without num_steps, or beyond it, is an error") {
  const Tensors params = {torch::ones({2}), torch::ones({3})};
  CHECK(
      ErrorOf([&] { LearnedOptimizer(params, Theta(kCosine)); }) ==
      "LearnedOptimizer: param group 0: LearnableAdam with schedule 'cosine' needs num_steps, the "
      "number of steps of the training, which is not given");
  CHECK(ErrorOf([&] { LearnedOptimizer(params, Theta(), Options().batch_size(-1)); }) ==
        "LearnedOptimizer: batch_size must be at least 0, got -1");
  CHECK(ErrorOf([&] { LearnedOptimizer(params, Theta(), Options().num_steps(-1)); }) ==
        "LearnedOptimizer: num_steps must be at least 0, got -1");
  LearnedOptimizer optimizer(params, Theta(kCosine), Options().num_steps(2));
  Train(&optimizer, {params[1]}, 0, 2);
  const Tensors before = {params[0].clone(), params[1].clone()};
  CHECK(ErrorOf([&] { Train(&optimizer, params, 2, 3); }) ==
        "LearnedOptimizer: parameter 1 of group 0, shape [3], has made all 2 steps of its training "
        "(num_steps), which LearnableAdam with schedule 'cosine' needs; nothing was changed. A "
        "higher num_steps lets it go on");
  CHECK(SameBits(params, before));
  static_cast<Options&>(optimizer.param_groups()[0].options()).num_steps(3);
  Train(&optimizer, params, 2, 3);
  CHECK_FALSE(SameBits(params[0], before[0]));
  CHECK_FALSE(SameBits(params[1], before[1]));
  // A scheduler's means of the losses are of the length that it was told.
  const Tensors told = {torch::ones({3})};
  LearnedOptimizer of_losses(told, Theta(R"({"type": "CeloAdam"})"), Options().num_steps(1));
  StepWith(&of_losses, told, 0.5F, 1);
  CHECK(ErrorOf([&] { StepWith(&of_losses, told, 0.5F, 1); }) ==
        "LearnedOptimizer: parameter 0 of group 0, shape [3], has made all 1 steps of its training "
        "(num_steps), which CeloAdam needs; nothing was changed");
  // Rules that do without it go on.
  LearnedOptimizer free(params, Theta(), Options().num_steps(1));
  Train(&free, params, 0, 2);
  CHECK(StepsOf(free, 0) == 2);
}

TEST_CASE("An optimizer from a theta file is that of the file") {
  const TempDirectory directory;
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, Theta());
  const Tensors params = SomeParams();
  const Tensors grouped = SomeParams();
  const Tensors wanted = ByHand(params, Theta(), 2);
  LearnedOptimizer optimizer = LearnedOptimizer::FromFile(params, path);
  Train(&optimizer, params, 0, 2);
  CHECK(SameBits(params, wanted));
  LearnedOptimizer of_groups =
      LearnedOptimizer::FromFile(std::vector<Group>{Group(grouped)}, path, Options().lr(0));
  Train(&of_groups, grouped, 0, 2);
  CHECK(SameBits(grouped, SomeParams()));
  CHECK(ErrorOf([&] {
          LearnedOptimizer::FromFile(params, directory / "none");
        }).find(directory / "none") != std::string::npos);
}

}  // namespace
}  // namespace lopt::torch_optim
