#include "lopt/torch/script_module.h"

#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lopt/base/error.h"

namespace lopt {
namespace {

using Json = nlohmann::ordered_json;

c10::IValue ToValue(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  Require(json.is_array(), "TorchScript: {} is no value of a module", json.dump());
  const bool integers = !json.empty() && std::ranges::all_of(json, &Json::is_number_integer);
  if (integers) return json.get<std::vector<int64_t>>();
  return json.get<std::vector<double>>();
}

// Finds the functions of a compilation unit, constants, and the modules torch and math.
class ScriptResolver : public torch::jit::Resolver {
 public:
  ScriptResolver(const std::shared_ptr<torch::jit::CompilationUnit>& unit, Config constants)
      : unit_(unit), constants_(std::move(constants)) {}

  std::shared_ptr<torch::jit::SugaredValue> resolveValue(
      const std::string& name, torch::jit::GraphFunction& caller,
      const torch::jit::SourceRange& place) override {
    if (name == "torch" || name == "math") {
      return std::make_shared<torch::jit::BuiltinModule>("aten");
    }
    if (!constants_.empty() && constants_.json().contains(name)) {
      return std::make_shared<torch::jit::SimpleValue>(
          caller.graph()->insertConstant(ToValue(constants_.json().at(name)), place));
    }
    torch::jit::Function* const function = unit_->find_function(Qualified(name));
    if (function == nullptr) return nullptr;
    return std::make_shared<torch::jit::FunctionValue>(function);
  }

  static c10::QualifiedName Qualified(const std::string& name) {
    return c10::QualifiedName(c10::QualifiedName(kFunctions), name);
  }
  static constexpr const char* kFunctions = "__torch__.lopt";

 private:
  std::shared_ptr<torch::jit::CompilationUnit> unit_;
  Config constants_;
};

// Gives a module its buffers and theta().
void AddTheta(const std::vector<std::pair<std::string, Array>>& theta, torch::jit::Module* module) {
  for (const auto& [name, array] : theta) {
    module->register_buffer(BufferName(name), TensorOf(array));
  }
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::Value* const self = graph->addInput("self")->setType(module->type());
  std::vector<torch::jit::Value*> names;
  std::vector<torch::jit::Value*> tensors;
  for (const auto& [name, array] : theta) {
    names.push_back(graph->insertConstant(name));
    tensors.push_back(graph->insertGetAttr(self, BufferName(name)));
  }
  torch::jit::Node* const all =
      graph->createDict(c10::StringType::get(), c10::TensorType::get(), names, tensors);
  graph->registerOutput(graph->insertNode(all)->output());
  module->type()->addMethod(module->_ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*module->type()->name(), "theta"), graph));
}

torch::jit::Module MakeModuleIn(const std::shared_ptr<torch::jit::CompilationUnit>& unit,
                                const std::shared_ptr<ScriptResolver>& resolver,
                                const std::string& name, const ScriptModule& script) {
  torch::jit::Module module(c10::QualifiedName(name), unit);
  if (!script.attributes.empty()) {
    for (const auto& [attribute, json] : script.attributes.json().items()) {
      const c10::IValue value = ToValue(json);
      module.register_attribute(attribute, value.type(), value);
    }
  }
  for (const auto& [own, other] : script.modules) {
    module.register_module(own, MakeModuleIn(unit, resolver, name + "." + own, other));
  }
  for (const auto& [tensor, array] : script.parameters) {
    module.register_parameter(tensor, TensorOf(array).requires_grad_(), /*is_buffer=*/false);
  }
  for (const auto& [tensor, array] : script.buffers) {
    module.register_buffer(tensor, TensorOf(array));
  }
  if (!script.theta.empty()) AddTheta(script.theta, &module);
  module.define(script.methods, resolver);
  return module;
}

}  // namespace

std::string BufferName(std::string name) {
  std::ranges::replace(name, '/', '_');
  return name;
}

torch::Tensor TensorOf(const Array& array) {
  const auto values = array.As<float>();
  return torch::from_blob(const_cast<float*>(values.data()), array.shape()).clone();
}

torch::jit::Module MakeModule(const std::string& name, const ScriptModule& script) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto resolver = std::make_shared<ScriptResolver>(unit, script.constants);
  unit->define(c10::QualifiedName(ScriptResolver::kFunctions), script.functions, resolver, nullptr);
  return MakeModuleIn(unit, resolver, "__torch__." + name, script);
}

}  // namespace lopt
