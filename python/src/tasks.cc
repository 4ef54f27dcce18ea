#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "lopt/base/denormals.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/python/src/arrays.h"
#include "lopt/python/src/bind.h"
#include "lopt/python/src/keys.h"
#include "lopt/python/src/long_call.h"
#include "lopt/tasks/registry.h"

namespace lopt::python {

namespace nb = nanobind;

namespace {

// An option of a task type, with its default or, once a config has been read, its value.
struct Option {
  std::string name;
  std::string meaning;
  Range range;
  std::variant<bool, int64_t, double, std::string, std::optional<int64_t>, std::optional<double>,
               std::vector<int64_t>, std::vector<double>, std::vector<std::string>>
      value;
};

using Value = decltype(Option::value);

template <class T>
std::optional<Value> ValueOf(nb::handle from) {
  T value;
  if (!nb::try_cast<T>(from, value)) return std::nullopt;
  return Value(std::move(value));
}

// How a default of each kind of option is read, by the words of lopt._tasks.
std::optional<Value> ValueOf(nb::handle from, const std::string& kind) {
  if (kind == "bool") return ValueOf<bool>(from);
  if (kind == "int") return ValueOf<int64_t>(from);
  if (kind == "float") return ValueOf<double>(from);
  if (kind == "str") return ValueOf<std::string>(from);
  if (kind == "int or None") return ValueOf<std::optional<int64_t>>(from);
  if (kind == "float or None") return ValueOf<std::optional<double>>(from);
  if (kind == "list[int]") return ValueOf<std::vector<int64_t>>(from);
  if (kind == "list[float]") return ValueOf<std::vector<double>>(from);
  if (kind == "list[str]") return ValueOf<std::vector<std::string>>(from);
  Fail("there is no kind of option '{}'", kind);
}

Option OptionOf(const std::string& who, nb::handle from) {
  const auto [name, kind, value, range, meaning] =
      nb::cast<std::tuple<std::string, std::string, nb::object, nb::dict, std::string>>(from);
  const std::optional<Value> read = ValueOf(value, kind);
  Require(read.has_value(), "{}: option '{}' has the default {}, wanted {}", who, name,
          nb::repr(value).c_str(), kind);
  return {.name = name,
          .meaning = meaning,
          .range = {.min = nb::cast<double>(range["min"]),
                    .max = nb::cast<double>(range["max"]),
                    .open_min = nb::cast<bool>(range["open_min"]),
                    .open_max = nb::cast<bool>(range["open_max"])},
          .value = *read};
}

void Show(FieldVisitor& v, std::vector<Option>& options) {
  for (Option& option : options) {
    std::visit(
        [&]<class T>(T& value) {
          if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string> ||
                        std::is_same_v<T, std::vector<std::string>>) {
            v.Field(option.name.c_str(), &value, option.meaning.c_str());
          } else {
            v.Field(option.name.c_str(), &value, option.range, option.meaning.c_str());
          }
        },
        option.value);
  }
}

nb::dict ToDict(const std::vector<Option>& options) {
  nb::dict dict;
  for (const Option& option : options) {
    dict[option.name.c_str()] =
        std::visit([](const auto& value) { return nb::cast(value); }, option.value);
  }
  return dict;
}

using Tensors = std::vector<std::pair<std::string, Shape>>;

TaskParts PartsOf(nb::handle family) {
  const nb::dict parts = family.attr("parts");
  const auto layout = [&](const char* name) { return Layout(nb::cast<Tensors>(parts[name])); };
  TaskParts made{.config = layout("config"), .params = layout("params")};
  Tensors aux;
  for (const nb::handle name : parts["aux"]) aux.emplace_back(nb::cast<std::string>(name), Shape());
  made.aux = Layout(std::move(aux));
  const auto splits = nb::cast<std::vector<std::pair<int64_t, int64_t>>>(parts["splits"]);
  std::ranges::copy(splits, made.data.splits);
  made.data.batch_size = nb::cast<int64_t>(parts["batch_size"]);
  made.data.sampling =
      lopt::ValueOf<Sampling>("sampling", nb::cast<std::string>(parts["sampling"]), kSamplings);
  made.normalizer_maximum = nb::cast<std::optional<double>>(parts["normalizer_maximum"]);
  return made;
}

// A lopt._tasks.family.Family. Every call takes the GIL and gets memory of Python's own, which
// stays valid for as long as somebody there keeps it.
class PythonTask : public TaskFamily {
 public:
  explicit PythonTask(nb::object family)
      : TaskFamily(PartsOf(family)),
        has_normalizer_(nb::cast<bool>(family.attr("parts")["has_normalizer"])),
        family_(std::move(family)) {}
  ~PythonTask() override {
    const nb::gil_scoped_acquire gil;
    family_.reset();
  }
  PythonTask(const PythonTask&) = delete;
  PythonTask& operator=(const PythonTask&) = delete;

  int64_t PreferredRows() const override { return kAllRows; }

  double Normalize(std::span<const float> config, double loss) const override {
    if (!has_normalizer_) return TaskFamily::Normalize(config, loss);
    const nb::gil_scoped_acquire gil;
    const InsideTask inside;
    return nb::cast<double>(family_.attr("normalize")(loss));
  }

 private:
  void DoSample(Key key, std::span<float> config) const override;
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  bool has_normalizer_;
  nb::object family_;
};

// The tensors of the rows of a layout: arrays [lead, shape].
nb::list ToArrays(const Layout& layout, std::span<const float> rows, const Shape& lead) {
  nb::list arrays;
  const int64_t count = NumElements(lead);
  for (const LayoutEntry& entry : layout.entries()) {
    Shape shape = lead;
    shape.insert(shape.end(), entry.shape.begin(), entry.shape.end());
    std::span<float> values;
    arrays.append(NewArray<float>(shape, &values));
    for (int64_t row = 0; row < count; ++row) {
      std::ranges::copy(rows.subspan(row * layout.size() + entry.offset, entry.size),
                        values.begin() + row * entry.size);
    }
  }
  return arrays;
}

using ContiguousFloats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// The reverse; lopt._tasks.methods has checked names, shapes and types.
void FromArrays(const Layout& layout, nb::handle arrays, int64_t count, std::span<float> rows) {
  auto entry = layout.entries().begin();
  for (const nb::handle array : arrays) {
    const auto values = nb::cast<ContiguousFloats>(array, /*convert=*/false);
    Require(static_cast<int64_t>(values.size()) == count * entry->size,
            "PythonTask: '{}' has {} numbers, wanted {}", entry->name, values.size(),
            count * entry->size);
    for (int64_t row = 0; row < count; ++row) {
      std::copy_n(values.data() + row * entry->size, entry->size,
                  rows.begin() + row * layout.size() + entry->offset);
    }
    ++entry;
  }
}

void PythonTask::DoSample(Key key, std::span<float> config) const {
  if (config.empty()) return;
  const nb::gil_scoped_acquire gil;
  const InsideTask inside;
  FromArrays(config_layout(), family_.attr("sample")(key), 1, config);
}

void PythonTask::DoInit(std::span<const float> config, Key key, std::span<float> params,
                        std::span<float> /*model_state*/) const {
  const nb::gil_scoped_acquire gil;
  const InsideTask inside;
  FromArrays(params_layout(), family_.attr("init")(key, ToArrays(config_layout(), config, {})), 1,
             params);
}

void PythonTask::DoEvaluate(const TaskEvaluation& e, Workspace& /*scratch*/) const {
  const FlushDenormals keep(false);  // Python and its libraries are not made for it
  const nb::gil_scoped_acquire gil;
  const InsideTask inside;
  const Shape lead = {e.rows};
  nb::object examples = nb::none();
  if (!e.examples.empty()) {
    std::span<int64_t> values;
    examples = NewArray<int64_t>({e.rows, std::ssize(e.examples) / e.rows}, &values);
    std::ranges::copy(e.examples, values.begin());
  }
  const nb::object found = family_.attr("evaluate")(
      ToArrays(params_layout(), e.params, lead), ToArrays(config_layout(), e.config, lead),
      Keys{{e.keys.begin(), e.keys.end()}}, examples, std::string(ToString(e.split)),
      !e.gradients.empty());
  static const Layout losses({{"losses", Shape()}});
  FromArrays(losses, nb::make_tuple(found[0]), e.rows, e.losses);
  if (!e.gradients.empty()) FromArrays(params_layout(), found[1], e.rows, e.gradients);
  if (!e.aux.empty()) FromArrays(aux_layout(), found[2], e.rows, e.aux);
}

// A task type that a Python class stands behind. What it has of the class is data, so that a
// registry that outlives the interpreter holds nothing of it.
class TaskType {
 public:
  TaskType(const std::string& type, std::string summary, nb::handle options)
      : options_(std::make_shared<std::vector<Option>>(Checked(type, options))), type_(type) {
    const auto show = [options = options_](FieldVisitor& v) {
      std::vector<Option> defaults = *options;
      Show(v, defaults);
    };
    TaskRegistry().Add(
        {.type = type, .summary = std::move(summary), .fields = show},
        [type, options = options_](const Config& config, const TaskResources& resources) {
          std::vector<Option> values = *options;
          ReadFields(config, [&](FieldVisitor& v) { Show(v, values); });
          const nb::gil_scoped_acquire gil;
          const InsideTask inside;
          nb::object family =
              nb::module_::import_("lopt._tasks").attr("make_family")(type, ToDict(values));
          const auto checksum = nb::cast<std::optional<uint32_t>>(family.attr("parts")["checksum"]);
          if (checksum) resources.NoteData("the data of " + type, *checksum);
          return std::make_shared<PythonTask>(std::move(family));
        });
  }

  void Replace(nb::handle options) { *options_ = Checked(type_, options); }

 private:
  static std::vector<Option> Checked(const std::string& type, nb::handle from) {
    const std::string who = "task " + type;
    std::vector<Option> options;
    for (const nb::handle option : from) options.push_back(OptionOf(who, option));
    CheckFields(who, [&](FieldVisitor& v) { Show(v, options); });
    return options;
  }

  std::shared_ptr<std::vector<Option>> options_;
  std::string type_;
};

}  // namespace

void BindTasks(nb::module_& m) {
  nb::class_<TaskType>(m, "TaskType", "The entry of a task type that a Python class stands behind.")
      .def(nb::init<const std::string&, std::string, nb::list>(), nb::arg("type"),
           nb::arg("summary"), nb::arg("options"))
      .def("replace", &TaskType::Replace, nb::arg("options"),
           "Takes the options of another class.");
}

}  // namespace lopt::python
