#include "lopt/torch/task_graph.h"

#include <fmt/format.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/torch/call.h"
#include "lopt/torch/registry.h"
#include "lopt/torch/torch_task.h"

namespace lopt {
namespace {

constexpr const char* kParameter = "Parameter";
constexpr const char* kLosses = "losses";

// The part of a param's name before the last slash, with it: the layer; empty if there is none.
std::string LayerOf(const std::string& name) { return name.substr(0, name.rfind('/') + 1); }

// The layers that both are in.
std::string CommonLayer(const std::string& a, const std::string& b) {
  const auto differ = std::ranges::mismatch(a, b).in1;
  return LayerOf({a.begin(), differ});
}

std::optional<Shape> ShapeOfValue(const torch::jit::Value& value) {
  const auto type = value.type()->cast<c10::TensorType>();
  if (!type) return std::nullopt;
  const auto sizes = type->sizes().concrete_sizes();
  return sizes ? std::optional<Shape>(*sizes) : std::nullopt;
}

// Whether it gives a tensor that is always the same and no number.
bool IsConstantData(const torch::jit::Node& node) {
  const auto value = torch::jit::attr::value;
  return node.kind() == torch::jit::prim::Constant && node.hasAttribute(value) &&
         node.kindOf(value) == torch::jit::AttributeKind::t && node.t(value).dim() > 0;
}

// What a graph of LibTorch is for people: operations on tensors, without numbers that are constant
// and lists that only pass tensors on. An operation is in the layer of the params that it is given
// as they are, or changed by operations on nothing else.
class GraphOfTrace {
 public:
  GraphOfTrace(const torch::jit::Graph& graph, const Layout& params) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) AddParam(*graph.inputs()[i], params, i);
    for (const torch::jit::Node* node : graph.nodes()) AddNode(*node);
    std::vector<std::string> last;
    AddInputs(*graph.outputs().at(0), &last);
    nodes_.push_back({.name = kLosses, .op = "Output", .inputs = last});
  }
  std::vector<GraphNode> Take() { return std::move(nodes_); }

 private:
  // Where a value comes from.
  struct Source {
    std::vector<std::string> nodes = {};    // none: a constant, or no tensor
    std::optional<std::string> layer = {};  // of the params that alone it is made of
    bool data = false;                      // it is made of others, too
  };

  void AddParam(const torch::jit::Value& value, const Layout& params, size_t i) {
    const LayoutEntry& entry = params.entries().at(i);
    nodes_.push_back({.name = entry.name, .op = kParameter, .shape = entry.shape});
    sources_[&value] = {.nodes = {entry.name}, .layer = LayerOf(entry.name)};
  }
  void AddInputs(const torch::jit::Value& value, std::vector<std::string>* inputs) const {
    const auto found = sources_.find(&value);
    if (found == sources_.end()) return;
    for (const std::string& node : found->second.nodes) {
      if (std::ranges::count(*inputs, node) == 0) inputs->push_back(node);
    }
  }
  void AddNode(const torch::jit::Node& node) {
    Source source{.data = IsConstantData(node)};
    for (const torch::jit::Value* input : node.inputs()) {
      AddInputs(*input, &source.nodes);
      const auto found = sources_.find(input);
      if (found == sources_.end()) continue;
      source.data = source.data || found->second.data;
      if (const auto& of = found->second.layer) {
        source.layer = source.layer ? CommonLayer(*source.layer, *of) : *of;
      }
    }
    if (node.kind().is_aten()) {  // others are constants, lists and the like
      std::string name = fmt::format("{}{}_{}", source.layer.value_or(""),
                                     node.kind().toUnqualString(), ++operations_);
      nodes_.push_back(
          {.name = name,
           .op = node.kind().toQualString(),
           .inputs = std::move(source.nodes),
           .shape = node.outputs().size() == 1 ? ShapeOfValue(*node.output()) : std::nullopt});
      source.nodes = {std::move(name)};
      source.data = source.data || !source.layer;
    }
    if (source.data) source.layer.reset();
    for (const torch::jit::Value* output : node.outputs()) sources_[output] = source;
  }

  std::vector<GraphNode> nodes_;
  std::map<const torch::jit::Value*, Source> sources_;
  int64_t operations_ = 0;
};

}  // namespace

std::vector<GraphNode> TorchTaskFamily::Graph() const {
  std::vector<float> config(static_cast<size_t>(config_layout().size()));
  std::vector<float> params(static_cast<size_t>(params_layout().size()));
  std::vector<float> model_state(static_cast<size_t>(model_state_layout().size()));
  Sample(Key{}, config);
  Init(config, Key{}, params, model_state);
  const std::array<Key, 1> keys = {};
  Workspace scratch;
  TaskEvaluation at{.config = config, .params = params, .model_state = model_state, .keys = keys};
  at.examples = Examples(at, scratch);
  return CallTorch("torch task: the graph of the loss", [&] {
    const torch::NoGradGuard no_grad;
    TorchEvaluation evaluation = View(at, rows_ == TorchRows::kOneByOne ? Shape{} : Shape{1});
    const torch::jit::Stack inputs(evaluation.params.begin(), evaluation.params.end());
    const auto [state, outputs] = torch::jit::tracer::trace(
        inputs,
        [&](const torch::jit::Stack& traced) -> torch::jit::Stack {
          for (size_t i = 0; i < traced.size(); ++i) evaluation.params[i] = traced[i].toTensor();
          return {loss_(evaluation).losses};
        },
        [](const torch::Tensor&) { return std::string(); });
    torch::jit::EliminateDeadCode(state->graph);
    return GraphOfTrace(*state->graph, params_layout()).Take();
  });
}

std::vector<GraphNode> TorchTaskGraph(const Config& task, const TaskResources& resources) {
  const auto made = TorchTaskRegistry().Make(task, resources);
  const auto family = std::dynamic_pointer_cast<const TorchTaskFamily>(made);
  Require(family != nullptr, "task '{}' has no graph", task.Type());
  return family->Graph();
}

}  // namespace lopt
