#include <ATen/Context.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/device.h"
#include "lopt/base/emulated_device.h"
#include "lopt/torch/constant_tensor.h"
#include "lopt/torch/registry.h"
#include "tests/error_of.h"
#include "tests/torch_example_tasks.h"

namespace lopt {
namespace {

// A GPU by name alone.
class NamedGpu : public Device {
 public:
  Kind kind() const override { return Kind::kCuda; }
  std::string_view name() const override { return "cuda:0"; }
  std::string model() const override { return "none"; }
  std::string description() const override { return "none"; }
  const Memory& memory() const override { return HostMemory(); }
  size_t shared_memory() const override { return 0; }
};

// Every type of torch/tasks/, and what of its options decides which tensors it makes.
constexpr const char* kTorchTasks[] = {
    R"({"type": "TorchImageMLP", "hidden": [5], "norm": "batch", "data": "glyphs"})",
    R"({"type": "TorchImageMLP", "hidden": [5], "norm": "layer", "data": "glyphs"})",
    R"({"type": "TorchImageConv", "image_size": 5, "channels": [3, 2], "data": "glyphs"})",
    R"({"type": "TorchImageAutoencoder", "image_size": 5, "channels": [2], "data": "glyphs"})",
    R"({"type": "TorchRowLSTM", "image_size": 4, "hidden_size": 3, "data": "glyphs"})",
    R"({"type": "TorchRowLSTM", "image_size": 4, "cell": "gru", "data": "glyphs"})",
    R"({"type": "TorchSTN", "image_size": 18, "data": "glyphs"})",
    R"({"type": "TorchSequenceRegression", "hidden": 3, "steps": 4})",
    R"({"type": "ByteLM", "body": "bigram", "length": 5})",
    R"({"type": "ByteLM", "body": "gru", "width": 2, "length": 5})",
    R"({"type": "ByteLM", "body": "transformer", "width": 4, "length": 5})",
};

// Torch's device "meta" has shapes and no numbers: a loss function can run there without a GPU, and
// an operation on a tensor there and one on the host throws, as on a GPU. Operations that it lacks,
// which depends on LibTorch's version, are made here, with zeros on the host.
torch::Tensor ZerosOnHost(const torch::Tensor& tensor) {
  return torch::zeros(tensor.sizes(), tensor.options().device(torch::kCPU));
}

void RunWithZeros(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  for (size_t i = first; i < stack->size(); ++i) {
    if (!(*stack)[i].isTensor() || !(*stack)[i].toTensor().defined()) continue;
    const torch::Tensor tensor = (*stack)[i].toTensor();
    TORCH_CHECK(tensor.is_meta() || tensor.dim() == 0, toString(op.schema()),
                ": expected all tensors on one device");
    (*stack)[i] = ZerosOnHost(tensor);
  }
  op.callBoxed(stack);
  for (c10::IValue& value : *stack) {
    if (value.isTensor()) value = value.toTensor().to(torch::kMeta);
  }
}

torch::Tensor ConvolutionOfZeros(const torch::Tensor& input, const torch::Tensor& weight,
                                 const c10::optional<torch::Tensor>& bias,
                                 torch::IntArrayRef stride, torch::IntArrayRef padding,
                                 torch::IntArrayRef dilation, bool transposed,
                                 torch::IntArrayRef output_padding, int64_t groups) {
  TORCH_CHECK(input.is_meta() && weight.is_meta() && (!bias || bias->is_meta()),
              "convolution: expected all tensors on one device");
  return torch::convolution(ZerosOnHost(input), ZerosOnHost(weight), {}, stride, padding, dilation,
                            transposed, output_padding, groups)
      .to(torch::kMeta);
}

bool IsMadeOnMeta(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  for (const Key key : {Key::Meta, Key::CompositeImplicitAutograd, Key::CompositeExplicitAutograd,
                        Key::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("convolution_overrideable", ConvolutionOfZeros);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (name.name.starts_with("aten::") && op && !IsMadeOnMeta(*op)) {
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunction<&RunWithZeros>());
    }
  }
}

// Tensors of these shapes there.
std::vector<torch::Tensor> OnMeta(const Layout& layout, int64_t n) {
  std::vector<torch::Tensor> tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    Shape shape = {n};
    shape.insert(shape.end(), entry.shape.begin(), entry.shape.end());
    tensors.push_back(torch::empty(shape, torch::TensorOptions(torch::kMeta)));
  }
  return tensors;
}

TEST_CASE("The loss functions of all torch tasks leave their tensors where the params are") {
  constexpr int64_t kRows = 2;
  const TaskResources resources("");
  std::set<std::string> tested;
  for (const char* text : kTorchTasks) {
    CAPTURE(text);
    const Config config = Config::Parse(text, "test");
    tested.insert(config.Type());
    const auto family = std::dynamic_pointer_cast<const TorchTaskFamily>(
        TorchTaskRegistry().Make(config, resources));
    REQUIRE(family != nullptr);
    const std::vector<Key> keys = SplitKey(KeyFromSeed(1), kRows);
    for (const bool with_gradient : {true, false}) {
      const torch::AutoGradMode mode(with_gradient);
      TorchEvaluation e{.params = OnMeta(family->params_layout(), kRows),
                        .model_state = OnMeta(family->model_state_layout(), kRows),
                        .config = torch::empty({kRows, family->config_layout().size()},
                                               torch::TensorOptions(torch::kMeta)),
                        .keys = keys,
                        .examples = {},
                        .aux_wanted = family->aux_layout().size() > 0,
                        .device = torch::kMeta};
      if (family->parts().data.batch_size > 0) {
        e.examples = torch::zeros({kRows, 4}, torch::TensorOptions(torch::kMeta).dtype(at::kLong));
      }
      for (const torch::Tensor& tensor : e.params) tensor.requires_grad_(with_gradient);
      const std::string error = ErrorOf([&] {
        const TorchLoss loss = family->loss()(e);
        CHECK(loss.losses.is_meta());
        CHECK(loss.losses.sizes() == torch::IntArrayRef({kRows}));
        CHECK((!e.aux_wanted || loss.aux.is_meta()));
        for (const torch::Tensor& tensor : loss.model_state) CHECK(tensor.is_meta());
      });
      CHECK_EQ(error, "no error");
    }
  }
  for (const TypeEntry& entry : TorchTaskRegistry().table().entries()) {
    CHECK_MESSAGE(tested.contains(entry.type), entry.type);
  }
}

TEST_CASE("A torch task evaluates in an emulated device's memory as on the host") {
  const EmulatedDevice device;
  const auto family = NormalizedPoints(TaskResources(""));
  REQUIRE(family->EvaluatesOn(device));
  constexpr int64_t kRows = 3;
  const std::vector<Key> keys = SplitKey(KeyFromSeed(2), kRows);
  const auto evaluate = [&](const Device* on) {
    const Memory& memory = on == nullptr ? HostMemory() : on->memory();
    std::vector<float> start(kRows * 6);
    for (int64_t r = 0; r < kRows; ++r) {
      family->Init({}, keys[r], std::span(start).subspan(r * 3, 3),
                   std::span(start).subspan(kRows * 3 + r * 3, 3));
    }
    // Params, model states, gradients, losses, aux.
    start.resize(kRows * 11);
    Array all = Array::Of({kRows * 11}, std::span<const float>(start)).To(memory);
    float* floats = reinterpret_cast<float*>(all.buffer().data());
    Workspace scratch;
    family->Evaluate({.rows = kRows,
                      .params = {floats, kRows * 3},
                      .model_state = {floats + kRows * 3, kRows * 3},
                      .keys = keys,
                      .losses = {floats + kRows * 9, kRows},
                      .gradients = {floats + kRows * 6, kRows * 3},
                      .aux = {floats + kRows * 10, kRows},
                      .device = on},
                     scratch);
    return all.To(HostMemory());
  };
  const Array host = evaluate(nullptr);
  CHECK(evaluate(&device) == host);
  CHECK(host.As<float>()[kRows * 9] > 0);
}

TEST_CASE("A torch task says what LibTorch lacks for a GPU, and what it does on the host alone") {
  const auto family = NormalizedPoints(TaskResources(""));
  const std::string error = ErrorOf([&] { family->EvaluatesOn(NamedGpu()); });
  if (at::hasCUDA()) {
    CHECK_EQ(error, "no error");
  } else {
    CHECK(
        error.starts_with("torch task: the device 'cuda:0' needs a LibTorch with CUDA, and this"));
    CHECK(error.ends_with(at::globalContext().hasCUDART()
                              ? "finds no GPU; choose the device 'cpu'"
                              : "is built without CUDA; choose the device 'cpu'"));
  }
  const EmulatedDevice device;
  const Key key = KeyFromSeed(1);
  std::vector<float> params(3);
  std::vector<float> model_state(3);
  Workspace scratch;
  const TaskEvaluation there{
      .params = params, .model_state = model_state, .keys = {&key, 1}, .device = &device};
  CHECK_EQ(ErrorOf([&] { family->Show(there, scratch); }),
           "TaskFamily: pictures are made on the host alone");
  CHECK_EQ(ErrorOf([&] { family->Differentiate(there, {}, params, model_state, scratch); }),
           "torch task: derivatives are made on the host alone");
}

TEST_CASE("A constant is copied to each device once") {
  const torch::Tensor values = torch::ones({3});
  const ConstantTensor constant(values);
  CHECK(constant.On(torch::kCPU).is_same(values));
  const torch::Tensor there = constant.On(torch::kMeta);
  CHECK(there.is_meta());
  CHECK(ConstantTensor(constant).On(torch::kMeta).is_same(there));
}

}  // namespace
}  // namespace lopt
