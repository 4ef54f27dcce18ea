// The headers of LibTorch define a CHECK, which doctest's must replace.
// clang-format off
#include <torch/script.h>
#include <torch/nn.h>
#include <doctest/doctest.h>
// clang-format on

#include "lopt/lopt/use/torch_script.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/key.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/use/tensor_updates.h"
#include "lopt/tasks/data/idx.h"
#include "lopt/tasks/data/image_data.h"
#include "lopt/torch/torch_script_file.h"
#include "lopt/torch/torch_task.h"
#include "tests/celo2_golden.h"
#include "tests/farthest.h"
#include "tests/golden_dir.h"
#include "tests/mnist_dir.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/temp_directory.h"
#include "tests/torch_order.h"

namespace lopt {
namespace {

torch::Tensor FromArray(const Array& array) {
  const auto values = array.As<float>();
  return torch::from_blob(const_cast<float*>(values.data()), array.shape()).clone();
}

// The learned optimizer, exported to a file and read again.
torch::jit::Module Export(const ThetaFile& theta_file) {
  const TempDirectory directory;
  WriteTorchScriptFile(
      directory / "theta.pt",
      {.name = "LearnedOptimizer", .module = MakeTorchScript(theta_file), .extra_files = {}});
  return torch::jit::load(directory / "theta.pt");
}

ThetaFile GoldenTheta(const std::string& file) {
  const auto metadata = ReadArrayFile(GoldenPath(file)).metadata;
  const auto named = metadata.find("optimizer");
  return ReadThetaFile(
      GoldenPath(file),
      Config::Parse(named == metadata.end() ? R"({"type": "MLPLOpt"})" : named->second, file));
}

ThetaFile Drawn(const std::string& config) {
  ThetaFile file;
  file.learned_optimizer = Config::Parse(config, "test");
  file.theta = OptimizerRegistry().Make(file.learned_optimizer)->InitTheta(KeyFromSeed(3));
  return file;
}

// A parameter that is trained by the script.
struct Scripted {
  Scripted(torch::jit::Module module, const torch::Tensor& start)
      : module(std::move(module)),
        param(start),
        state(this->module.get_method("init_state")({start}).toTensor()) {}

  void Update(const torch::Tensor& gradient) {
    const torch::NoGradGuard no_grad;
    std::vector<c10::IValue> inputs = {param, gradient, state, step++};
    if (num_steps > 0) inputs.emplace_back(num_steps);
    if (loss) inputs.emplace_back(*loss);
    const auto results = module.get_method("update")(inputs, options).toTuple()->elements().vec();
    param = results[0].toTensor();
    state = results[1].toTensor();
  }

  torch::jit::Module module;
  torch::Tensor param;
  torch::Tensor state;
  int64_t step = 0;
  int64_t num_steps = 0;            // 0: not given to the script
  std::optional<double> loss = {};  // given where num_steps is
  torch::jit::Kwargs options = {};  // others
};

// The largest |got - wanted|, as a part of the largest |wanted| where that is above 1.
double Difference(const torch::Tensor& got, const torch::Tensor& wanted) {
  const torch::Tensor expected = wanted.to(torch::kFloat64);
  return (got.to(torch::kFloat64) - expected).abs().max().item<double>() /
         std::max(1.0, expected.abs().max().item<double>());
}

TEST_CASE("An exported script follows the golden steps of every optimizer") {
  for (const std::string name :
       {"mlp_lopt_steps", "mlp_lopt_steps_large", "learnable_adam_steps", "learnable_sgdm_steps",
        "adafac_mlp_steps", "adafac_mlp_steps_large"}) {
    const std::string path = name + ".safetensors";
    const ArrayFile golden = ReadArrayFile(GoldenPath(path));
    const torch::jit::Module module = Export(GoldenTheta(path));
    for (const auto& [tensor, start] : golden.arrays.Extract("param0/")) {
      CAPTURE(name);
      CAPTURE(tensor);
      Scripted scripted(module, InTorchOrder(FromArray(start)));
      const torch::Tensor gradients = FromArray(golden.arrays.At("gradient/" + tensor));
      const torch::Tensor wanted = FromArray(golden.arrays.At("param/" + tensor));
      double worst = 0;
      for (int64_t step = 0; step < gradients.size(0); ++step) {
        scripted.Update(InTorchOrder(gradients[step]));
        worst = Farther(worst, Difference(scripted.param, InTorchOrder(wanted[step])));
      }
      CHECK(worst <= 1e-6);
    }
  }
}

constexpr const char* kAllOptions =
    R"({"type": "MLPLOpt", "step_mult": 1, "progress_features": true, "schedule": "cosine",
        "relative_step": true, "relative_to_parameter": true, "normalizer_epsilon": 1e-24,
        "precision": "bf16"})";

TEST_CASE("A script of an MLPLOpt with all options follows it as gradients vanish") {
  const ThetaFile file = Drawn(kAllOptions);
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  const auto rule = optimizer->Bind(Layout({{"p", {5, 7}}}),
                                    {file.theta.data(), static_cast<size_t>(file.theta.size())});
  const torch::jit::Module module = Export(file);
  const auto floats = [](const torch::Tensor& tensor) {
    return std::span<float>(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  };
  Workspace scratch;
  for (const double scale : {1.0, 0.0}) {
    torch::Tensor param = scale * NormalTensor(KeyFromSeed(1), {5, 7});
    std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
    Scripted scripted(module, param.clone());
    scripted.num_steps = 30;
    double moved = 0;
    for (int64_t step = 0; step < scripted.num_steps; ++step) {
      const bool still = step == 0 || step == 20;
      const double size = still ? 0 : step == 10 ? 5 : std::pow(0.3, static_cast<double>(step));
      const Key key = FoldIn(KeyFromSeed(2), static_cast<uint64_t>(step));
      const torch::Tensor gradient = size * NormalTensor(key, {5, 7});
      const torch::Tensor before = param.clone();
      rule->Update({.step = step, .num_steps = scripted.num_steps}, floats(gradient), floats(param),
                   state, scratch);
      scripted.Update(gradient);
      moved = Difference(param, before);
      CHECK(Difference(scripted.param, param) <= 1e-5);
      if (step == 1) CHECK(moved > 1e-4);
      if (still) CHECK(moved == 0);
    }
    CHECK(moved < 1e-10);
  }
}

TEST_CASE("Scripts of optimizers that change another's steps follow them on every shape") {
  const auto orthogonal = [](const std::string& optimizer) {
    return R"({"type": "OrthogonalSteps", "optimizer": )" + optimizer + "}";
  };
  const auto scheduled = [](const std::string& optimizer, const std::string& more = "") {
    return R"({"type": "LearnedScheduler", "optimizer": )" + optimizer + more + "}";
  };
  const auto both = [](const std::string& matrices, const std::string& vectors) {
    return R"({"type": "MatricesAndVectors", "matrices": )" + matrices + R"(, "vectors": )" +
           vectors + "}";
  };
  // Large steps, of which little is rounded away beside the params.
  const std::string sgdm = R"({"type": "LearnableSGDM", "learning_rate": 10})";
  const std::string mlp = R"({"type": "MLPLOpt", "step_mult": 1, "relative_step": true})";
  for (const std::string& config :
       {scheduled(orthogonal(sgdm)), orthogonal(scheduled(sgdm)), scheduled(mlp), orthogonal(mlp),
        scheduled(scheduled(sgdm), R"(, "step_size": 2, "schedule": "linear")"),
        scheduled(orthogonal(R"({"type": "LearnableSGD", "learning_rate": 10})")),
        scheduled(orthogonal(R"({"type": "AdafacMLPLOpt", "step_mult": 1})"),
                  R"(, "hidden_size": 3, "weight_decay": 0.1, "schedule": "constant")"),
        scheduled(R"({"type": "Celo2Base", "learning_rate": 1, "schedule": "cosine"})"),
        scheduled(R"({"type": "Celo2", "learning_rate": 1, "one_d": "adamw"})"),
        scheduled(both(orthogonal(sgdm), mlp)), both(sgdm, orthogonal(mlp)),
        both(R"({"type": "AdafacMLPLOpt", "step_mult": 0.1})",
             R"({"type": "LearnableAdam", "learning_rate": 0.1, "schedule": "cosine"})")}) {
    CAPTURE(config);
    ThetaFile file = Drawn(config);
    std::vector<float> noise(static_cast<size_t>(file.theta.size()));
    Normal(KeyFromSeed(4), noise);
    for (Eigen::Index i = 0; i < file.theta.size(); ++i) file.theta[i] += 0.1F * noise[i];
    const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
    const torch::jit::Module module = Export(file);
    for (const Shape& shape :
         std::vector<Shape>{{7, 5}, {3, 2, 2, 9}, {5, 5}, {6}, {6, 1}, {}, {0, 3}}) {
      CAPTURE(ToString(shape));
      const auto rule = optimizer->Bind(Layout({{"p", shape}}), AsSpan(file.theta));
      torch::Tensor param = NormalTensor(KeyFromSeed(1), shape);
      const torch::Tensor start = param.clone();
      const auto floats = [](const torch::Tensor& tensor) {
        return std::span<float>(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
      };
      std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
      const StepInfo info = {.step = 0, .num_steps = 12};
      rule->InitState(info, floats(param), state);
      Scripted scripted(module, InTorchOrder(param).clone());
      scripted.num_steps = info.num_steps;
      Workspace scratch;
      for (int64_t step = 0; step < 8; ++step) {
        const Key key = FoldIn(KeyFromSeed(2), static_cast<uint64_t>(step));
        const torch::Tensor gradient =
            step == 4 ? torch::zeros(shape) : NormalTensor(key, shape) + 0.3 * param;
        rule->Update({.step = step, .num_steps = info.num_steps}, floats(gradient), floats(param),
                     state, scratch);
        scripted.Update(InTorchOrder(gradient));
        if (param.numel() == 0) continue;
        CHECK(Difference(scripted.param, InTorchOrder(param)) <= 1e-5);
        CHECK(Difference(param, start) > 1e-3);
      }
      CHECK((scripted.state.numel() >= param.numel()));
    }
  }
}

TEST_CASE("lr and weight_decay of an exported script are those of tensor updates") {
  const ThetaFile file = Drawn(
      R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
          "optimizer": {"type": "LearnableSGDM", "learning_rate": 10}}})");
  torch::jit::Module module = Export(file);
  TensorRules rules(file.learned_optimizer, file.theta);
  const UpdateRule& rule = rules.For({7, 5});
  const auto floats = [](const torch::Tensor& tensor) {
    return std::span<float>(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  };
  const torch::Tensor start = NormalTensor(KeyFromSeed(1), {7, 5});
  const auto trained = [&](const StepOptions& options) {
    torch::Tensor param = start.clone();
    std::vector<float> state(static_cast<size_t>(rule.state_layout().size()));
    rule.InitState({.num_steps = 8}, floats(param), state);
    Scripted scripted(module, InTorchOrder(param).clone());
    scripted.num_steps = 8;
    scripted.options = {{"lr", options.lr}, {"weight_decay", options.weight_decay}};
    Workspace scratch;
    for (int64_t step = 0; step < scripted.num_steps; ++step) {
      const torch::Tensor gradient =
          NormalTensor(FoldIn(KeyFromSeed(2), static_cast<uint64_t>(step)), {7, 5});
      RunUpdate({.rule = &rule,
                 .info = {.step = step, .num_steps = scripted.num_steps},
                 .options = options,
                 .gradient = floats(gradient),
                 .params = floats(param),
                 .state = state},
                scratch);
      scripted.Update(InTorchOrder(gradient));
    }
    CHECK(Difference(scripted.param, InTorchOrder(param)) <= 1e-5);
    return param;
  };
  const torch::Tensor plain = trained({});
  CHECK(Difference(trained({.lr = 0.3}), plain) > 1e-3);
  CHECK(Difference(trained({.weight_decay = 0.3}), plain) > 1e-3);
  trained({.lr = 0.3, .weight_decay = 0.3});

  Scripted wrong(module, start);
  wrong.num_steps = 8;
  wrong.options = {{"lr", -0.5}};
  CHECK_THROWS_WITH(wrong.Update(start), doctest::Contains("lr and weight_decay must be numbers "));
}

TEST_CASE("An exported script of Celo2 and Celo2Base follows the golden steps") {
  for (const Celo2Golden& golden : Celo2Goldens()) {
    const torch::jit::Module module = Export(golden.theta);
    for (const auto& [tensor, start] : golden.file.arrays.Extract("param0/")) {
      CAPTURE(golden.prefix);
      CAPTURE(tensor);
      const bool table = tensor.starts_with("embed");
      const auto seen = [&](const torch::Tensor& x) {
        return table ? x.reshape({-1}) : InTorchOrder(x);
      };
      Scripted scripted(module, seen(FromArray(start)));
      const torch::Tensor gradients = FromArray(golden.file.arrays.At("gradient/" + tensor));
      const torch::Tensor wanted =
          FromArray(golden.file.arrays.At(golden.prefix + "/param/" + tensor));
      for (int64_t step = 0; step < gradients.size(0); ++step) {
        scripted.Update(seen(gradients[step]));
        CHECK(Difference(scripted.param, seen(wanted[step])) <= 1e-6);
      }
    }
  }
}

TEST_CASE("An exported script of Celo, CeloAdam and Sinv6 follows the traces, told the losses") {
  for (const auto& [trace, weights, config] :
       {std::tuple("celo_steps_drawn", "celo_steps_drawn", R"({"type": "Celo"})"),
        std::tuple("celo_phase1_steps_drawn", "celo_steps_drawn",
                   R"({"type": "Celo", "scheduled": false})"),
        std::tuple("celo_adam_steps_drawn", "celo_adam_steps_drawn", R"({"type": "CeloAdam"})"),
        std::tuple("sinv6_steps_drawn", "sinv6_steps_drawn", R"({"type": "Sinv6"})")}) {
    CAPTURE(trace);
    const std::string path = GoldenPath(std::string(weights) + ".safetensors");
    const torch::jit::Module module = Export(ReadThetaFile(path, Config::Parse(config, "test")));
    const NamedArrays golden =
        ReadArrayFile(GoldenPath(std::string(trace) + ".safetensors")).arrays;
    const torch::Tensor losses = FromArray(golden.At("loss"));
    for (const auto& [tensor, start] : golden.Extract("param0/")) {
      CAPTURE(tensor);
      Scripted scripted(module, InTorchOrder(FromArray(start)));
      scripted.num_steps = 15;
      const torch::Tensor gradients = FromArray(golden.At("gradient/" + tensor));
      const torch::Tensor wanted = FromArray(golden.At("param/" + tensor));
      for (int64_t step = 0; step < gradients.size(0); ++step) {
        scripted.loss = losses[step].item<double>();
        scripted.Update(InTorchOrder(gradients[step]));
        CHECK(Difference(scripted.param, InTorchOrder(wanted[step])) <= 5e-6);
      }
    }
    Scripted untold(module, torch::ones({3}));
    untold.num_steps = 15;
    if (std::string(config).find("scheduled") != std::string::npos) {
      untold.Update(torch::ones({3}));
    } else {
      CHECK_THROWS_WITH_AS(untold.Update(torch::ones({3})),
                           doctest::Contains("needs the loss of the batch"), std::exception);
    }
  }
}

TEST_CASE("An exported script repeats the golden check of its theta file") {
  const TempDirectory directory;
  for (
      const char* config :
      {R"({"type": "MLPLOpt", "hidden_size": 5, "hidden_layers": 1, "step_mult": 0.1})",
       R"({"type": "AdafacMLPLOpt", "step_mult": 0.1, "hidden_layers": 1,
           "initial_rms_decays": [0.9, 0.5], "initial_momentum_decays": [0.5, 0],
           "initial_adafactor_decays": [0.9, 0]})",
       R"({"type": "Celo2", "learning_rate": 0.01})",
       R"({"type": "Celo2", "one_d": "adamw", "weight_decay": 0.5, "schedule": "linear"})",
       R"({"type": "Celo2Base", "schedule": "cosine"})",
       R"({"type": "Celo2", "one_d": "learned", "schedule": "warmup-cosine"})",
       R"({"type": "MLPLOpt", "schedule": "warmup-cosine", "progress_features": true})",
       R"({"type": "LearnableSGD", "learning_rate": 0.1})", R"({"type": "LearnableSGDM"})",
       R"({"type": "LearnableAdam", "epsilon_root": 0})",
       R"({"type": "LearnableAdam", "learning_rate": 0.1, "weight_decay": 0.5})",
       R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps", "optimizer":
           {"type": "LearnableSGDM", "learning_rate": 100}}})",
       R"({"type": "OrthogonalSteps", "optimizer": {"type": "MLPLOpt", "step_mult": 1}})",
       R"({"type": "MatricesAndVectors", "matrices": {"type": "AdafacMLPLOpt", "step_mult": 0.1},
           "vectors": {"type": "LearnableAdam", "learning_rate": 0.1}})",
       R"({"type": "LearnableSGD", "learning_rate": 0.1, "schedule": "cosine"})",
       R"({"type": "LearnableSGDM", "schedule": "linear"})",
       R"({"type": "LearnableAdam", "learning_rate": 0.1, "weight_decay": 0.5, "schedule": "cosine"})"}) {
    CAPTURE(config);
    WriteThetaFile(directory / "theta.safetensors", Drawn(config));
    const ArrayFile file = ReadArrayFile(directory / "theta.safetensors");
    const torch::jit::Module module = Export(ReadThetaFile(directory / "theta.safetensors"));
    const GoldenSteps golden = *TakeGoldenSteps(file, "test");
    std::vector<float> result(golden.result.size());
    for (const LayoutEntry& entry : golden.layout.entries()) {
      CAPTURE(entry.name);
      const torch::Tensor start =
          InTorchOrder(FromArray(file.arrays.At("golden/params/" + entry.name)));
      const torch::Tensor gradients = FromArray(file.arrays.At("golden/gradients/" + entry.name));
      Scripted scripted(module, start);
      scripted.num_steps = golden.num_steps;
      for (int64_t update = 0; update < gradients.size(0); ++update) {
        scripted.step = golden.steps[update];
        scripted.Update(InTorchOrder(gradients[update]));
      }
      if (entry.name != "resting/w") CHECK(Difference(scripted.param, start) > 1e-6);
      const torch::Tensor param = InRuleOrder(scripted.param).contiguous();
      std::copy_n(param.data_ptr<float>(), entry.size, result.begin() + entry.offset);
    }
    const GoldenDeviation found = CompareGoldenResult(golden, "TorchScript", result);
    CHECK_MESSAGE(found.within, found.Describe());
    // A limit is 8 times what rounding did to the readers in C++; another reader's does no more.
    CHECK_MESSAGE(found.deviation <= found.limit / 4, found.Describe());
  }
}

TEST_CASE("Training with an exported script follows the golden losses of real digits") {
  if (SkipsWithoutMnist()) return;
  const std::string path = "image_mlp_inner_training.safetensors";
  const ArrayFile golden = ReadArrayFile(GoldenPath(path));
  const Array& index = golden.arrays.At("index");
  const auto wanted = golden.arrays.At("loss").As<float>();
  const ImageData data(ReadImageDirectory(MnistDir()), 8);
  const torch::Tensor images =
      torch::from_blob(const_cast<float*>(data.images()), {data.count(), 64}, {data.stride(), 1});
  const torch::Tensor labels =
      torch::from_blob(const_cast<uint8_t*>(data.labels()), {data.count()}, torch::kUInt8)
          .to(torch::kInt64);
  const std::vector<std::string> names = {"linear_0/w", "linear_0/b", "linear_1/w", "linear_1/b"};
  const torch::jit::Module module = Export(GoldenTheta(path));
  std::vector<Scripted> scripted;
  for (const std::string& name : names) {
    scripted.emplace_back(module, FromArray(golden.arrays.At("param0/mlp/" + name)));
  }
  REQUIRE(wanted.size() == 60);
  for (int64_t step = 0; step < 60; ++step) {
    CAPTURE(step);
    std::vector<torch::Tensor> p;
    for (const Scripted& one : scripted) {
      p.push_back(one.param.detach().clone().set_requires_grad(true));
    }
    const torch::Tensor rows = torch::from_blob(const_cast<int32_t*>(index.As<int32_t>().data()),
                                                index.shape(), torch::kInt32)[step]
                                   .to(torch::kInt64);
    const torch::Tensor hidden =
        torch::relu(torch::matmul(images.index_select(0, rows), p[0]) + p[1]);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(
        torch::matmul(hidden, p[2]) + p[3], labels.index_select(0, rows));
    loss.backward();
    for (size_t i = 0; i < p.size(); ++i) scripted[i].Update(p[i].grad());
    CHECK(std::abs(loss.item<double>() - wanted[step]) <= 1e-5 * wanted[step]);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    CAPTURE(names[i]);
    CHECK(Difference(scripted[i].param, FromArray(golden.arrays.At("param_end/mlp/" + names[i]))) <=
          1e-5);
  }
}

TEST_CASE("Scripts keep shape and dtype of the parameter and change nothing in place") {
  for (const char* config :
       {R"({"type": "MLPLOpt"})", R"({"type": "LearnableSGD"})", R"({"type": "LearnableSGDM"})",
        R"({"type": "LearnableAdam"})",
        R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
            "optimizer": {"type": "LearnableSGDM"}}})",
        R"({"type": "MatricesAndVectors", "matrices": {"type": "LearnableSGDM"},
            "vectors": {"type": "LearnableAdam"}})"}) {
    CAPTURE(config);
    const torch::jit::Module module = Export(Drawn(config));
    for (const Shape& shape : std::vector<Shape>{{}, {1}, {17}, {2, 3}, {2, 1, 3, 2, 2}, {0, 3}}) {
      for (const torch::Dtype dtype : {torch::kFloat32, torch::kFloat64}) {
        CAPTURE(ToString(shape));
        const torch::Tensor start = NormalTensor(KeyFromSeed(1), shape).to(dtype);
        const torch::Tensor before = start.clone();
        Scripted scripted(module, start);
        scripted.num_steps = 9;
        const torch::Tensor first_state = scripted.state;
        scripted.Update(before.cos());
        CHECK((scripted.param.scalar_type() == dtype));
        CHECK((scripted.param.sizes().vec() == shape));
        CHECK((scripted.state.scalar_type() == torch::kFloat32));
        CHECK((scripted.state.sizes() == first_state.sizes()));
        CHECK(torch::equal(start, before));
        CHECK(first_state.abs().sum().item<float>() == 0);
        CHECK((start.numel() == 0 || !torch::equal(scripted.param, start)));
      }
    }
  }
}

TEST_CASE("lopt export writes a script that follows the golden steps and names its optimizer") {
  const TempDirectory directory;
  const std::string golden_path = GoldenPath("mlp_lopt_steps.safetensors");
  const FinishedProcess finished =
      RunProcess({BuildPath("lopt"), "export", golden_path, "--format", "torchscript", "--out",
                  directory / "theta.pt", "--learned-optimizer", R"({"type": "MLPLOpt"})"});
  CHECK(finished.errors == "");
  REQUIRE(finished.exit_code == 0);
  torch::jit::ExtraFilesMap extra_files = {{"learned_optimizer.json", ""}};
  const torch::jit::Module module =
      torch::jit::load(directory / "theta.pt", c10::nullopt, extra_files);
  CHECK(extra_files["learned_optimizer.json"] == R"({"type":"MLPLOpt"})");
  const ArrayFile golden = ReadArrayFile(golden_path);
  Scripted scripted(module, FromArray(golden.arrays.At("param0/w/rank4")));
  const torch::Tensor gradients = FromArray(golden.arrays.At("gradient/w/rank4"));
  for (int64_t step = 0; step < gradients.size(0); ++step) scripted.Update(gradients[step]);
  CHECK(Difference(scripted.param, FromArray(golden.arrays.At("param/w/rank4"))[-1]) <= 1e-6);
}

TEST_CASE("A script's file holds the extra files that it was given") {
  torch::jit::ExtraFilesMap extra_files = {{"learned_optimizer.json", ""}};
  const TempDirectory directory;
  WriteTorchScriptFile(
      directory / "x.pt",
      {.name = "X",
       .module = {.methods = "def twice(self, x: int) -> int:\n    return 2 * x\n"},
       .extra_files = {{"learned_optimizer.json", "{\"type\": \"X\"}"}}});
  torch::jit::Module module = torch::jit::load(directory / "x.pt", c10::nullopt, extra_files);
  CHECK(module.get_method("twice")({21}).toInt() == 42);
  CHECK(extra_files["learned_optimizer.json"] == "{\"type\": \"X\"}");
}

TEST_CASE("A script with a schedule raises without num_steps and at a step that is not below it") {
  for (const std::string type : {"LearnableSGD", "LearnableSGDM", "LearnableAdam"}) {
    Scripted scripted(Export(Drawn(R"({"type": ")" + type + R"(", "schedule": "cosine"})")),
                      torch::ones({2}));
    const auto error = [&] {
      try {
        scripted.Update(torch::ones({2}));
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
      return std::string("no error");
    };
    const std::string who = type + " with schedule 'cosine' needs num_steps: step ";
    CHECK(error().find(who + "0 is not one of a training of 0 steps") != std::string::npos);
    scripted.num_steps = 2;
    CHECK(error() == "no error");  // its step 1
    CHECK(error().find(who + "2 is not one of a training of 2 steps") != std::string::npos);
  }
  for (const auto& [config, need] :
       {std::pair(R"({"type": "LearnedScheduler", "schedule": "constant",
                      "optimizer": {"type": "LearnableSGD"}})",
                  "LearnedScheduler needs num_steps: step 0 is not one"),
        std::pair(R"({"type": "OrthogonalSteps",
                      "optimizer": {"type": "LearnableSGD", "schedule": "cosine"}})",
                  "LearnableSGD with schedule 'cosine' needs num_steps: step 0 is not one"),
        std::pair(R"({"type": "MatricesAndVectors", "matrices": {"type": "LearnableSGD"},
                      "vectors": {"type": "LearnableSGD", "schedule": "cosine"}})",
                  "LearnableSGD with schedule 'cosine' needs num_steps: step 0 is not one")}) {
    Scripted scripted(Export(Drawn(config)), torch::ones({2}));
    CHECK_THROWS_WITH(scripted.Update(torch::ones({2})), doctest::Contains(need));
  }
}

TEST_CASE("A source that does not compile or a type without a script is an Error") {
  const TempDirectory directory;
  const auto error = [](const auto& what) -> std::string {
    try {
      what();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string path = directory / "x.pt";
  const std::string message = error([&] {
    WriteTorchScriptFile(path, {.name = "X",
                                .module = {.methods = "def f(self) -> int:\n    return nothing\n"},
                                .extra_files = {}});
  });
  CHECK(message.find(path) == 13);
  CHECK(message.find("undefined value nothing") != std::string::npos);
  ThetaFile file;
  file.learned_optimizer = Config::Parse(R"({"type": "Nesterov"})", "test");
  CHECK(error([&] { MakeTorchScript(file); }) ==
        "TorchScript: a Nesterov cannot be exported; types that can: AdafacMLPLOpt, Celo, Celo2, "
        "Celo2Base, CeloAdam, LearnableAdam, LearnableSGD, LearnableSGDM, LearnedScheduler, "
        "MLPLOpt, MatricesAndVectors, OrthogonalSteps, Sinv6");
  file.learned_optimizer = Config::Parse(R"({"type": "RNNMLPLOpt"})", "test");
  CHECK(error([&] { MakeTorchScript(file); })
            .starts_with(
                "TorchScript: a RNNMLPLOpt cannot be exported, for it sees all tensors and a "
                "script sees one; types that can: "));
  for (const std::string inner : {"RNNMLPLOpt", "Muon"}) {
    file.learned_optimizer = Config::Parse(
        R"({"type": "LearnedScheduler", "optimizer": {"type": "OrthogonalSteps",
            "optimizer": {"type": ")" +
            inner + "\"}}}",
        "test");
    CHECK(error([&] {
            MakeTorchScript(file);
          }).starts_with("TorchScript: a " + inner + " cannot be exported"));
    file.learned_optimizer = Config::Parse(
        R"({"type": "MatricesAndVectors", "matrices": {"type": "LearnableSGD"},
            "vectors": {"type": ")" +
            inner + "\"}}",
        "test");
    CHECK(error([&] {
            MakeTorchScript(file);
          }).starts_with("TorchScript: a " + inner + " cannot be exported"));
  }
}

}  // namespace
}  // namespace lopt
