#include "lopt/learner/parameter_server/parameter_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/finite.h"
#include "lopt/base/options.h"
#include "lopt/base/utf8.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

// What keys are drawn for, under the run's key.
constexpr uint64_t kVariableDomain = 0;
constexpr uint64_t kVectorDomain = 1;

constexpr int64_t kMostServers = 100000;

template <class T>
std::vector<std::string> NamesOf(const std::map<std::string, T>& named) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : named) names.push_back(name);
  return names;
}

template <class T>
const T& FindNamed(const std::map<std::string, const T*>& named, const std::string& name,
                   const char* what) {
  const auto found = named.find(name);
  Require(found != named.end(), "parameter server: there is no {} '{}'; there are: {}", what,
          PlainText(name),
          named.empty() ? "none" : fmt::format("{}", fmt::join(NamesOf(named), ", ")));
  return *found->second;
}

void CheckInitial(const InitialValues& initial, const char* what, const std::string& name) {
  Require(std::isfinite(initial.mean) && std::isfinite(initial.stddev) && initial.stddev >= 0,
          "parameter server: {} '{}': initial values want a finite mean and a finite stddev of at "
          "least 0, got {} and {}",
          what, name, initial.mean, initial.stddev);
}

std::string InitialText(const InitialValues& initial) {
  return fmt::format("{} {}", initial.mean, initial.stddev);
}

// All of the options, as text.
std::string OptionsText(const ParameterServerOptions& options) {
  std::string text = WriteOptions("", options).Dump();
  for (const DenseVariable& variable : options.variables) {
    text += fmt::format("\nvariable {} {} {}", variable.name, ToString(variable.shape),
                        InitialText(variable.initial));
  }
  for (const EmbeddingLayer& layer : options.layers) {
    text += fmt::format("\nlayer {} {} {} {}", layer.name, layer.width, layer.ids,
                        InitialText(layer.initial));
  }
  return text + fmt::format("\nkey {} {} theta {}", options.key.hi, options.key.lo,
                            fmt::join(AsSpan(options.theta), " "));
}

}  // namespace

uint64_t Fnv1a64(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

void ParameterServerOptions::Visit(FieldVisitor& v) {
  v.Typed("optimizer", &optimizer, OptimizerRegistry().table(), "What steps the parameters.");
  v.Field("servers", &servers, Between(1, kMostServers), "Servers that share the parameters.");
  v.Field("grads_to_wait", &grads_to_wait, AtLeast(1),
          "Gradients that a step waits for and takes the mean of.");
  v.Field("staleness", &staleness, AtLeast(0),
          "Steps that gradients may be behind the server that gets them; null: any number.");
  v.Field("num_steps", &num_steps, AtLeast(0), "Steps of the run; 0: unknown.");
}

ParameterModel::ParameterModel(const ParameterServerOptions& options)
    : options_(CheckOptions("parameter server", options)) {
  CheckNames();
  for (const DenseVariable& variable : options_.variables) {
    Require(variables_.emplace(variable.name, &variable).second,
            "parameter server: two variables have the name '{}'", variable.name);
  }
  for (const EmbeddingLayer& layer : options_.layers) {
    Require(layers_.emplace(layer.name, &layer).second,
            "parameter server: two embedding layers have the name '{}'", layer.name);
  }
  CheckSizes();
  digest_ = Fnv1a64(OptionsText(options_));
}

void ParameterModel::CheckNames() const {
  Require(!options_.variables.empty() || !options_.layers.empty(),
          "parameter server: wanted variables or embedding layers, got neither");
  for (const DenseVariable& variable : options_.variables) {
    Require(!variable.name.empty(), "parameter server: a variable has no name");
    CheckInitial(variable.initial, "variable", variable.name);
  }
  for (const EmbeddingLayer& layer : options_.layers) {
    Require(!layer.name.empty(), "parameter server: an embedding layer has no name");
    Require(layer.width >= 1 && layer.width <= kMostNumbers,
            "parameter server: embedding layer '{}': width must be in [1, {}], got {}", layer.name,
            kMostNumbers, layer.width);
    Require(layer.ids >= 1,
            "parameter server: embedding layer '{}': ids must be at least 1, got {}", layer.name,
            layer.ids);
    CheckInitial(layer.initial, "embedding layer", layer.name);
  }
}

void ParameterModel::CheckSizes() const {
  std::map<int, int64_t> numbers;  // by server
  for (const DenseVariable& variable : options_.variables) {
    const int64_t size = NumElements(variable.shape);
    int64_t& all = numbers[ServerOf(variable.name)];
    Require(size <= kMostNumbers - all,
            "parameter server: with variable '{}' {}, server {} has more than {} numbers in "
            "variables; take more servers, or an embedding layer",
            variable.name, ToString(variable.shape), ServerOf(variable.name), kMostNumbers);
    all += size;
  }
}

size_t ParameterModel::MostMessageBytes(int server) const {
  constexpr size_t kFew = 64 << 10;  // of what is in each message, errors that list names included
  constexpr size_t kOfOne = 64;      // sizes of a variable's or a list's parts
  constexpr size_t kMostAxis = 8;    // bytes of an axis, an id
  size_t bytes = kFew;
  for (const DenseVariable& variable : options_.variables) {
    bytes += kOfOne + variable.name.size();  // of all: errors name them
    if (ServerOf(variable.name) != server) continue;
    bytes += variable.name.size() + kMostAxis * variable.shape.size() +
             sizeof(float) * static_cast<size_t>(NumElements(variable.shape));
  }
  size_t most_of_layers = 0;
  for (const EmbeddingLayer& layer : options_.layers) {
    bytes += kOfOne + layer.name.size();
    const auto ids = static_cast<size_t>(kMostNumbers / layer.width);
    most_of_layers =
        std::max(most_of_layers, ids * (kMostAxis + kOfOne + layer.name.size()) +
                                     sizeof(float) * static_cast<size_t>(kMostNumbers));
  }
  return bytes + most_of_layers;
}

Key ParameterModel::KeyOfVariable(std::string_view name) const {
  return FoldIn(FoldIn(options_.key, kVariableDomain), Fnv1a64(name));
}

Key ParameterModel::KeyOfVector(std::string_view layer, int64_t id) const {
  return FoldIn(FoldIn(FoldIn(options_.key, kVectorDomain), Fnv1a64(layer)),
                static_cast<uint64_t>(id));
}

const DenseVariable& ParameterModel::Variable(const std::string& name) const {
  return FindNamed(variables_, name, "variable");
}

const EmbeddingLayer& ParameterModel::Layer(const std::string& name) const {
  return FindNamed(layers_, name, "embedding layer");
}

void ParameterModel::CheckWorkers(int64_t workers) const {
  const int64_t wanted = options_.grads_to_wait;
  Require(wanted <= workers,
          "parameter server: grads_to_wait must be at most the number of workers, {}, got {}",
          workers, wanted);
  Require(options_.servers == 1 || wanted == 1 || wanted == workers,
          "parameter server: with {} servers grads_to_wait must be 1 or the number of workers, {}, "
          "got {}: servers could wait for different workers, which wait for them, for ever",
          options_.servers, workers, wanted);
}

void ParameterModel::CheckIdsInRange(const EmbeddingLayer& layer,
                                     std::span<const int64_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    Require(ids[i] >= 0 && ids[i] < layer.ids,
            "parameter server: embedding layer '{}': ids must be in [0, {}), got {} at place {}",
            layer.name, layer.ids, ids[i], i);
  }
}

void ParameterModel::CheckIds(const EmbeddingLayer& layer, std::span<const int64_t> ids) const {
  CheckIdsInRange(layer, ids);
  Require(std::ssize(ids) <= kMostNumbers / layer.width,
          "parameter server: embedding layer '{}': {} ids of width {} are more than the {} numbers "
          "of one message; take fewer at a time",
          layer.name, ids.size(), layer.width, kMostNumbers);
}

void ParameterModel::CheckSparse(const SparseGradient& gradient) const {
  const EmbeddingLayer& layer = Layer(gradient.layer);
  CheckIds(layer, gradient.ids);
  const int64_t wanted = std::ssize(gradient.ids) * layer.width;
  Require(std::ssize(gradient.rows) == wanted,
          "parameter server: gradient of embedding layer '{}': {} ids of width {} want {} numbers, "
          "got {}",
          layer.name, gradient.ids.size(), layer.width, wanted, gradient.rows.size());
  Require(AllFinite(gradient.rows),
          "parameter server: gradient of embedding layer '{}': wanted finite numbers, got others",
          layer.name);
}

void ParameterModel::CheckGradients(const ParameterGradients& gradients) const {
  for (const auto& [name, array] : gradients.dense) {
    const DenseVariable& variable = Variable(name);
    Require(array.dtype() == DType::kFloat32 && array.shape() == variable.shape,
            "parameter server: gradient of variable '{}': wanted F32 {}, got {} {}", name,
            ToString(variable.shape), ToString(array.dtype()), ToString(array.shape()));
    Require(AllFinite(array.As<float>()),
            "parameter server: gradient of variable '{}': wanted finite numbers, got others", name);
  }
  int64_t numbers = 0;
  for (const SparseGradient& sparse : gradients.sparse) {
    CheckSparse(sparse);
    numbers += std::ssize(sparse.rows);
  }
  Require(numbers <= kMostNumbers,
          "parameter server: gradients of embedding layers have {} numbers, at most {} go into one "
          "message",
          numbers, kMostNumbers);
  Require(!gradients.loss || std::isfinite(*gradients.loss),
          "parameter server: wanted a finite loss, got {}", gradients.loss.value_or(0));
}

void ParameterModel::CheckIsOn(int server, const std::string& variable) const {
  Require(ServerOf(variable) == server,
          "parameter server: variable '{}' is on server {}, this is server {} of {}", variable,
          ServerOf(variable), server, options_.servers);
}

void ParameterModel::CheckIdsAreOn(int server, const EmbeddingLayer& layer,
                                   std::span<const int64_t> ids) const {
  for (const int64_t id : ids) {
    Require(
        ServerOfId(id) == server,
        "parameter server: embedding layer '{}': id {} is on server {}, this is server {} of {}",
        layer.name, id, ServerOfId(id), server, options_.servers);
  }
}

}  // namespace lopt
