#include "lopt/torch/activate.h"

#include <torch/csrc/autograd/custom_function.h>

namespace lopt {
namespace {

struct StraightSign : torch::autograd::Function<StraightSign> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x) {
    context->save_for_backward({x});
    return torch::where(x < 0, -1, torch::where(x >= 0, 1, x));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outer) {
    return {outer[0] * (context->get_saved_variables()[0].abs() <= 1)};
  }
};

}  // namespace

torch::Tensor Activate(Activation activation, const torch::Tensor& x) {
  switch (activation) {
    case Activation::kRelu:
      return torch::relu(x);
    case Activation::kTanh:
      return torch::tanh(x);
    case Activation::kRelu6:
      return torch::relu6(x);
    case Activation::kSelu:
      return torch::selu(x);
    case Activation::kCos:
      return torch::cos(x);
    case Activation::kSin:
      return torch::sin(x);
    case Activation::kSigmoid:
      return torch::sigmoid(x);
    case Activation::kSilu:
      return torch::silu(x);
    case Activation::kGelu:
      return torch::gelu(x, "tanh");
    case Activation::kLeakyRelu:
      return torch::leaky_relu(x, -0.5);
    case Activation::kSign:
      return StraightSign::apply(x);
  }
  return x;
}

}  // namespace lopt
