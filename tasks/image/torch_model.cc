#include "lopt/tasks/image/torch_model.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/tasks/image/image_conv.h"
#include "lopt/tasks/image/image_mlp.h"

namespace lopt {
namespace {

// An array of this shape with its axes in another order: axis i of the result is axes[i]. All from
// axis `joined` on are one in the result's shape.
Array Permuted(std::span<const float> values, const Shape& shape, const std::vector<size_t>& axes,
               size_t joined) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * shape[d];
  std::vector<float> permuted(values.size());
  std::vector<int64_t> at(shape.size());  // in the result
  for (float& value : permuted) {
    int64_t from = 0;
    for (size_t d = 0; d < axes.size(); ++d) from += at[d] * strides[axes[d]];
    value = values[from];
    for (size_t d = axes.size(); d-- > 0;) {
      if (++at[d] < shape[axes[d]]) break;
      at[d] = 0;
    }
  }
  Shape result;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (d > joined) {
      result.back() *= shape[axes[d]];
    } else {
      result.push_back(shape[axes[d]]);
    }
  }
  return Array::Of<float>(result, permuted);
}

// Takes the tensors of a row, one after the other.
class RowReader {
 public:
  explicit RowReader(std::span<const float> row) : row_(row) {}

  std::span<const float> Next(int64_t size) {
    return row_.subspan(std::exchange(at_, at_ + size), size);
  }
  Array Vector(int64_t size) { return Array::Of<float>({size}, Next(size)); }
  // Weight and bias of a linear layer, of `inputs` in the order [height, width, channel].
  ScriptModule Linear(const Shape& inputs, int64_t out) {
    Shape shape = inputs;
    shape.push_back(out);
    const std::span<const float> w = Next(NumElements(shape));
    Array weight =
        inputs.size() == 1 ? Permuted(w, shape, {1, 0}, 1) : Permuted(w, shape, {3, 2, 0, 1}, 1);
    return {.parameters = {{"weight", std::move(weight)}, {"bias", Vector(out)}}};
  }
  ScriptModule Convolution(const ConvLayer& layer) {
    const Shape shape = {layer.rows.kernel, layer.columns.kernel, layer.channels, layer.filters};
    Array weight = Permuted(Next(layer.weights()), shape, {3, 2, 0, 1}, 3);
    return {.parameters = {{"weight", std::move(weight)}, {"bias", Vector(layer.filters)}}};
  }

 private:
  std::span<const float> row_;
  int64_t at_ = 0;
};

std::string ActivationText(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "torch.gelu(x, approximate=\"tanh\")";
    case Activation::kLeakyRelu:
      return "torch.leaky_relu(x, -0.5)";
    case Activation::kSign:
      return "torch.where(x < 0, -torch.ones_like(x), "
             "torch.where(x >= 0, torch.ones_like(x), x))";
    default:
      return fmt::format("torch.{}(x)", NameOf("activation", activation, kActivations));
  }
}

std::string LinearText(const std::string& name) {
  return fmt::format("    x = torch.linear(x, self.{0}.weight, self.{0}.bias)\n", name);
}

Shape ImageShape(const ImageData& data) { return {data.height(), data.width(), data.channels()}; }

ScriptModule MlpModule(const ImageMlp& task, std::span<const float> params,
                       std::span<const float> statistics) {
  const MlpShape& shape = task.shape();
  RowReader row(params);
  RowReader running(statistics);
  ScriptModule module{.methods = "def forward(self, images):\n    x = images.flatten(1)\n"};
  for (int64_t l = 0; l < shape.layers(); ++l) {
    const int64_t out = shape.sizes[l + 1];
    const std::string linear = fmt::format("linear_{}", l);
    const Shape inputs = l == 0 ? ImageShape(task.images().data()) : Shape{shape.sizes[l]};
    module.modules[linear] = row.Linear(inputs, out);
    module.methods += LinearText(linear);
    if (l + 1 == shape.layers()) break;
    if (shape.norm != Norm::kNone) {
      const std::string name = fmt::format("norm_{}", l);
      ScriptModule& norm = module.modules[name];
      norm.parameters = {{"weight", row.Vector(out)}, {"bias", row.Vector(out)}};
      if (shape.norm == Norm::kBatch) {
        norm.buffers = {{"running_mean", running.Vector(out)},
                        {"running_var", running.Vector(out)}};
        module.methods += fmt::format(
            "    x = torch.batch_norm(x, self.{0}.weight, self.{0}.bias, self.{0}.running_mean, "
            "self.{0}.running_var, False, {1}, {2}, False)\n",
            name, kNormMomentum, kNormEpsilon);
      } else {
        module.methods +=
            fmt::format("    x = torch.layer_norm(x, [{1}], self.{0}.weight, self.{0}.bias, {2})\n",
                        name, out, kNormEpsilon);
      }
    }
    module.methods += "    x = " + ActivationText(task.activation()) + "\n";
  }
  module.methods += "    return x\n";
  return module;
}

ScriptModule ConvModule(const ImageConv& task, std::span<const float> params) {
  const ConvShape& shape = task.shape();
  RowReader row(params);
  ScriptModule module{.methods = "def forward(self, images):\n    x = images\n"};
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    const ConvLayer& layer = shape.layers[l];
    const std::string name = fmt::format("conv_{}", l);
    module.modules[name] = row.Convolution(layer);
    const auto behind = [](const SameWindow& window) {
      return window.padded() - window.size - window.low();
    };
    module.methods +=
        fmt::format("    x = torch.constant_pad_nd(x, [{}, {}, {}, {}])\n", layer.columns.low(),
                    behind(layer.columns), layer.rows.low(), behind(layer.rows));
    module.methods += fmt::format(
        "    x = torch.conv2d(x, self.{0}.weight, self.{0}.bias, [{1}, {2}])\n    x = {3}\n", name,
        layer.rows.stride, layer.columns.stride, ActivationText(task.activation()));
    if (layer.pool == Pool::kNone) continue;
    module.methods += fmt::format("    x = torch.{}_pool2d(x, [{}, {}])\n",
                                  layer.pool == Pool::kMax ? "max" : "avg", layer.pool_height(),
                                  layer.pool_width());
  }
  const ConvLayer& last = shape.layers.back();
  const bool mean = shape.head == ConvHead::kMean;
  module.methods += mean ? "    x = x.mean([2, 3])\n" : "    x = x.flatten(1)\n";
  module.modules["linear"] = row.Linear(
      mean ? Shape{last.filters} : Shape{last.pooled_height(), last.pooled_width(), last.filters},
      shape.classes);
  module.methods += LinearText("linear") + "    return x\n";
  return module;
}

// Throws Error if the network sees other images than the model would.
void RequireSameImages(const std::string& type, const ImageBatches& images) {
  Require(
      !images.ChangesEverySplit(),
      "{}: augment is '{}', which changes the images of every split, and an exported model would "
      "see them unchanged; only models of an augment that is for training alone can be exported, "
      "such as 'None' and 'CTAugment'",
      type, images.augmentation());
}

std::string InputWords(const ImageData& data) {
  const std::string sizes = fmt::format("float32 [n, {}, {}, {}] ([n, channel, height, width])",
                                        data.channels(), data.height(), data.width());
  if (data.holds_signals()) return sizes + ", signals as they are";
  return sizes +
         ", bytes / 255, of images prepared as the task's config says (csv_white, image_size, "
         "image_channels, distortion)";
}

void AddToDict(const std::string& prefix, const ScriptModule& module, NamedArrays* dict) {
  for (const auto* tensors : {&module.parameters, &module.buffers}) {
    for (const auto& [name, array] : *tensors) dict->Set(prefix + name, array);
  }
  for (const auto& [name, inside] : module.modules) AddToDict(prefix + name + ".", inside, dict);
}

}  // namespace

TorchModel MakeTorchModel(const std::string& type, const TaskFamily& task,
                          std::span<const float> params, std::span<const float> model_state) {
  if (const auto* mlp = dynamic_cast<const ImageMlp*>(&task)) {
    RequireSameImages(type, mlp->images());
    const auto statistics = model_state.subspan(mlp->images().model_state_layout().size());
    return {MlpModule(*mlp, params, statistics), InputWords(mlp->images().data())};
  }
  const auto* conv = dynamic_cast<const ImageConv*>(&task);
  Require(
      conv != nullptr,
      "{}: only models of ImageMLP, ImageConv, TorchImageMLP and TorchImageConv can be exported",
      type);
  RequireSameImages(type, conv->images());
  return {ConvModule(*conv, params), InputWords(conv->images().data())};
}

NamedArrays StateDict(const ScriptModule& module) {
  NamedArrays dict;
  AddToDict("", module, &dict);
  return dict;
}

}  // namespace lopt
