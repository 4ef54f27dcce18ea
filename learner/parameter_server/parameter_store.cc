#include "lopt/learner/parameter_server/parameter_store.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

// Names of the arrays of a checkpoint.
constexpr const char* kVersion = "version";
constexpr const char* kVariable = "variable";
constexpr const char* kLayer = "layer";
const std::string kIds = "layer/ids/";
constexpr const char* kOptimizer = "optimizer";
constexpr const char* kNumSteps = "num_steps";

std::vector<float> FirstValues(const InitialValues& initial, Key key, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  if (initial.stddev > 0) Normal(key, values);
  for (float& value : values) value = initial.mean + initial.stddev * value;
  return values;
}

TensorRules RulesOfServer(const ParameterServerOptions& options) {
  Eigen::VectorXf theta = options.theta;
  if (theta.size() == 0) theta = OptimizerRegistry().Make(options.optimizer)->InitTheta(Key{});
  try {
    return {options.optimizer, std::move(theta)};
  } catch (const Error& error) {
    Fail("parameter server: {}", error.what());
  }
}

Array ArrayOfInt64(const Shape& shape, std::span<const int64_t> values) {
  return Array::Of<int64_t>(shape, values);
}

// The rows of [n, width] that `order` names.
template <class T>
std::vector<T> InOrder(std::span<const T> rows, int64_t width, std::span<const int64_t> order) {
  std::vector<T> ordered;
  ordered.reserve(order.size() * static_cast<size_t>(width));
  for (const int64_t i : order) {
    const auto row = rows.subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
    ordered.insert(ordered.end(), row.begin(), row.end());
  }
  return ordered;
}

const Array& ArrayOfCheckpoint(const NamedArrays& arrays, const std::string& name) {
  Require(arrays.Contains(name), "parameter server: the checkpoint has no array '{}'", name);
  return arrays.At(name);
}

Array ArrayOfText(const std::string& text) {
  return Array::Of<uint8_t>({std::ssize(text)},
                            std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

// The same optimizer, as a checkpoint has it, with every key of this version: an earlier one did
// not have all of them. What this version does not know stays as it is.
Array InTodaysOptimizer(const Array& optimizer) {
  try {
    const auto bytes = optimizer.As<uint8_t>();
    const std::string text(bytes.begin(), bytes.end());
    return ArrayOfText(ResolvedOptimizer(Config::Parse(text, "the checkpoint")).Dump(-1));
  } catch (const Error&) {
    return optimizer;
  }
}

template <class T>
std::vector<T> NumbersOfArray(const NamedArrays& arrays, const std::string& name,
                              const Shape& shape) {
  const Array& array = ArrayOfCheckpoint(arrays, name);
  Require(array.dtype() == DTypeOf<T>() && array.shape() == shape,
          "parameter server: array '{}' of the checkpoint: wanted {} {}, got {} {}", name,
          ToString(DTypeOf<T>()), ToString(shape), ToString(array.dtype()),
          ToString(array.shape()));
  const auto numbers = array.As<T>();
  return {numbers.begin(), numbers.end()};
}

float MeanLoss(std::span<const ParameterGradients* const> pushes) {
  double sum = 0;
  for (const ParameterGradients* push : pushes) sum += push->loss.value_or(0);
  return static_cast<float>(sum / static_cast<double>(pushes.size()));
}

void AddTo(std::span<double> sums, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

void Divide(std::vector<double>* sums, size_t count) {
  if (count == 1) return;
  for (double& sum : *sums) sum /= static_cast<double>(count);
}

}  // namespace

SteppedTensors::SteppedTensors(const UpdateRule* rule, int64_t num_steps)
    : rule_(rule),
      num_steps_(num_steps),
      size_(rule->params_layout().size()),
      state_size_(rule->state_layout().size()) {}

StepInfo SteppedTensors::InfoOf(int64_t i, float loss) const {
  return {.step = updates_[static_cast<size_t>(i)], .num_steps = num_steps_, .loss = loss};
}

std::span<float> SteppedTensors::ValuesOf(int64_t i) {
  return std::span(values_).subspan(static_cast<size_t>(i * size_), static_cast<size_t>(size_));
}

std::span<float> SteppedTensors::StateOf(int64_t i) {
  return std::span(states_).subspan(static_cast<size_t>(i * state_size_),
                                    static_cast<size_t>(state_size_));
}

void SteppedTensors::Add(std::span<const float> values) {
  values_.insert(values_.end(), values.begin(), values.end());
  states_.resize(states_.size() + static_cast<size_t>(state_size_));
  updates_.push_back(0);
  const int64_t i = count() - 1;
  rule_->InitState(InfoOf(i, 0), ValuesOf(i), StateOf(i));
}

std::span<const float> SteppedTensors::Get(int64_t i, PulledParams which) const {
  const auto values =
      std::span(values_).subspan(static_cast<size_t>(i * size_), static_cast<size_t>(size_));
  if (which == PulledParams::kTraining) return values;
  return rule_->EvalParams(values, std::span(states_).subspan(static_cast<size_t>(i * state_size_),
                                                              static_cast<size_t>(state_size_)));
}

void SteppedTensors::Step(int64_t i, std::span<const double> gradient, float loss,
                          Workspace& scratch) {
  rule_->UpdateInFloat64(InfoOf(i, loss), gradient, ValuesOf(i), StateOf(i), scratch);
  ++updates_[static_cast<size_t>(i)];
}

void SteppedTensors::Save(const std::string& kind, const std::string& name,
                          std::span<const int64_t> order, NamedArrays* arrays) const {
  const int64_t n = std::ssize(order);
  arrays->Set(kind + "/values/" + name,
              Array::Of<float>({n, size_}, InOrder<float>(values_, size_, order)));
  arrays->Set(kind + "/state/" + name,
              Array::Of<float>({n, state_size_}, InOrder<float>(states_, state_size_, order)));
  arrays->Set(kind + "/updates/" + name, ArrayOfInt64({n}, InOrder<int64_t>(updates_, 1, order)));
}

void SteppedTensors::Restore(const std::string& kind, const std::string& name, int64_t n,
                             int64_t most_updates, const NamedArrays& arrays) {
  values_ = NumbersOfArray<float>(arrays, kind + "/values/" + name, {n, size_});
  states_ = NumbersOfArray<float>(arrays, kind + "/state/" + name, {n, state_size_});
  updates_ = NumbersOfArray<int64_t>(arrays, kind + "/updates/" + name, {n});
  for (const int64_t updates : updates_) {
    Require(updates >= 0 && updates <= most_updates,
            "parameter server: array '{}/updates/{}' of the checkpoint: wanted numbers in [0, {}], "
            "got {}",
            kind, name, most_updates, updates);
  }
}

ParameterStore::ParameterStore(std::shared_ptr<const ParameterModel> model, int server)
    : model_(std::move(model)), server_(server), rules_(RulesOfServer(model_->options())) {
  const ParameterServerOptions& options = model_->options();
  const std::string& needs = rules_.optimizer().needs_num_steps();
  Require(needs.empty() || options.num_steps > 0,
          "parameter server: {} needs the length of the run: set num_steps", needs);
  for (const DenseVariable& variable : options.variables) {
    if (model_->ServerOf(variable.name) != server_) continue;
    variables_.push_back(variable.name);
    SteppedTensors tensor(&rules_.For(variable.shape), options.num_steps);
    tensor.Add(FirstValues(variable.initial, model_->KeyOfVariable(variable.name),
                           NumElements(variable.shape)));
    tensors_.emplace(variable.name, std::move(tensor));
  }
  for (const EmbeddingLayer& layer : options.layers) {
    tables_.emplace(layer.name,
                    Table(SteppedTensors(&rules_.For({layer.width}), options.num_steps)));
  }
}

int64_t ParameterStore::Rows(const std::string& layer) const {
  return tables_.at(layer).vectors.count();
}

Array ParameterStore::Variable(const std::string& name, PulledParams which) const {
  return Array::Of<float>(model_->Variable(name).shape, tensors_.at(name).Get(0, which));
}

int64_t ParameterStore::PlaceOf(const EmbeddingLayer& layer, Table* table, int64_t id) {
  const auto found = table->places.find(id);
  if (found != table->places.end()) return found->second;
  const int64_t place = table->vectors.count();
  table->vectors.Add(FirstValues(layer.initial, model_->KeyOfVector(layer.name, id), layer.width));
  table->ids.push_back(id);
  table->places.emplace(id, place);
  return place;
}

std::vector<float> ParameterStore::Vectors(const std::string& layer, std::span<const int64_t> ids,
                                           PulledParams which) {
  const EmbeddingLayer& options = model_->Layer(layer);
  Table& table = tables_.at(layer);
  std::vector<float> vectors;
  vectors.reserve(ids.size() * static_cast<size_t>(options.width));
  for (const int64_t id : ids) {
    const auto vector = table.vectors.Get(PlaceOf(options, &table, id), which);
    vectors.insert(vectors.end(), vector.begin(), vector.end());
  }
  return vectors;
}

void ParameterStore::CheckStep(const ParameterGradients& gradients) const {
  const int64_t num_steps = model_->options().num_steps;
  Require(num_steps == 0 || version_ < num_steps,
          "parameter server: the run has num_steps {}, which are made; no gradients are wanted",
          num_steps);
  Require(gradients.loss.has_value() || !rules_.optimizer().needs_loss(),
          "parameter server: a {} needs the loss with the gradients, got none",
          model_->options().optimizer.Type());
}

void ParameterStore::Step(std::span<const ParameterGradients* const> pushes) {
  const float loss = MeanLoss(pushes);
  StepVariables(pushes, loss);
  StepTables(pushes, loss);
  ++version_;
}

void ParameterStore::StepVariables(std::span<const ParameterGradients* const> pushes, float loss) {
  for (const std::string& name : variables_) {
    std::vector<double> sums;
    for (const ParameterGradients* push : pushes) {
      if (!push->dense.Contains(name)) continue;
      const Array& gradient = push->dense.At(name);
      sums.resize(static_cast<size_t>(gradient.size()));
      AddTo(sums, gradient.As<float>());
    }
    const bool any = std::ranges::any_of(
        pushes, [&](const ParameterGradients* push) { return push->dense.Contains(name); });
    if (!any) continue;
    Divide(&sums, pushes.size());
    tensors_.at(name).Step(0, sums, loss, scratch_);
  }
}

void ParameterStore::StepTables(std::span<const ParameterGradients* const> pushes, float loss) {
  std::map<std::string, RowSums> by_layer;
  for (const ParameterGradients* push : pushes) {
    for (const SparseGradient& sparse : push->sparse) {
      RowSums& rows = by_layer[sparse.layer];
      const auto width = static_cast<size_t>(model_->Layer(sparse.layer).width);
      for (size_t i = 0; i < sparse.ids.size(); ++i) {
        const auto [at, added] = rows.places.emplace(sparse.ids[i], std::ssize(rows.ids));
        if (added) {
          rows.ids.push_back(sparse.ids[i]);
          rows.sums.resize(rows.sums.size() + width);
        }
        AddTo(std::span(rows.sums).subspan(static_cast<size_t>(at->second) * width, width),
              std::span(sparse.rows).subspan(i * width, width));
      }
    }
  }
  for (auto& [name, rows] : by_layer) {
    const EmbeddingLayer& layer = model_->Layer(name);
    const auto width = static_cast<size_t>(layer.width);
    Table& table = tables_.at(name);
    Divide(&rows.sums, pushes.size());
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      table.vectors.Step(PlaceOf(layer, &table, rows.ids[i]),
                         std::span(rows.sums).subspan(i * width, width), loss, scratch_);
    }
  }
}

// What must be the same where a checkpoint is read.
NamedArrays ParameterStore::Identity() const {
  const Key key = model_->options().key;
  NamedArrays identity;
  identity.Set(kOptimizer, ArrayOfText(ResolvedOptimizer(model_->options().optimizer).Dump(-1)));
  if (!rules_.optimizer().needs_num_steps().empty()) {
    identity.Set(kNumSteps, ArrayOfInt64({}, std::array{model_->options().num_steps}));
  }
  identity.Set("theta", Array::Of<float>({rules_.theta().size()}, AsSpan(rules_.theta())));
  identity.Set("key", Array::Of<uint32_t>({2}, std::array{key.hi, key.lo}));
  identity.Set("server",
               ArrayOfInt64({2}, std::array{int64_t{server_}, model_->options().servers}));
  return identity;
}

NamedArrays ParameterStore::Save() const {
  NamedArrays arrays = Identity();
  arrays.Set(kVersion, ArrayOfInt64({}, std::array{version_}));
  for (const auto& [name, tensor] : tensors_) {
    tensor.Save(kVariable, name, std::array{int64_t{0}}, &arrays);
  }
  for (const auto& [name, table] : tables_) {
    const std::span<const int64_t> ids = table.ids;
    std::vector<int64_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](int64_t i) { return ids[static_cast<size_t>(i)]; });
    table.vectors.Save(kLayer, name, order, &arrays);
    arrays.Set(kIds + name, ArrayOfInt64({std::ssize(ids)}, InOrder<int64_t>(ids, 1, order)));
  }
  return arrays;
}

void ParameterStore::RestoreTable(const EmbeddingLayer& layer, const NamedArrays& arrays) {
  Table& table = tables_.at(layer.name);
  const std::string name = kIds + layer.name;
  const int64_t n = ArrayOfCheckpoint(arrays, name).size();
  table.ids = NumbersOfArray<int64_t>(arrays, name, {n});
  model_->CheckIdsInRange(layer, table.ids);
  model_->CheckIdsAreOn(server_, layer, table.ids);
  table.places.clear();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = table.ids[static_cast<size_t>(i)];
    Require(table.places.emplace(id, i).second,
            "parameter server: array '{}' of the checkpoint has id {} twice", name, id);
  }
  table.vectors.Restore(kLayer, layer.name, n, version_, arrays);
}

void ParameterStore::Restore(const NamedArrays& arrays) {
  NamedArrays identity = Identity();
  // An earlier version did not write it.
  if (identity.Contains(kNumSteps) && !arrays.Contains(kNumSteps)) identity.Take(kNumSteps);
  for (const auto& [name, own] : identity) {
    const Array& saved = ArrayOfCheckpoint(arrays, name);
    Require((name == kOptimizer ? InTodaysOptimizer(saved) : saved) == own,
            "parameter server: the checkpoint is of another {}", name);
  }
  version_ = NumbersOfArray<int64_t>(arrays, kVersion, {})[0];
  Require(version_ >= 0, "parameter server: the checkpoint is of version {}, wanted at least 0",
          version_);
  for (const std::string& name : variables_) {
    tensors_.at(name).Restore(kVariable, name, 1, version_, arrays);
  }
  const auto& layers = model_->options().layers;
  for (const EmbeddingLayer& layer : layers) RestoreTable(layer, arrays);
  const size_t wanted = identity.size() + 1 + 3 * variables_.size() + 4 * layers.size();
  Require(arrays.size() == wanted,
          "parameter server: the checkpoint has {} arrays, this model's have {}", arrays.size(),
          wanted);
}

}  // namespace lopt
