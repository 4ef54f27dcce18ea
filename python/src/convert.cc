#include "lopt/python/src/convert.h"

#include <fmt/ranges.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lopt/base/cores.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/finite.h"
#include "lopt/base/nearest_name.h"
#include "lopt/base/record.h"
#include "lopt/lopt/registry.h"
#include "lopt/python/src/arrays.h"

namespace lopt::python {

namespace nb = nanobind;
using nlohmann::ordered_json;

namespace {

// str() of a value for messages, with escapes for what is not UTF-8.
std::string Said(const nb::object& value) {
  const nb::object text = nb::steal(PyObject_Str(value.ptr()));
  const nb::object bytes =
      nb::steal(text.is_valid() ? PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace")
                                : nullptr);
  if (!bytes.is_valid()) throw nb::python_error();
  return nb::borrow<nb::bytes>(bytes).c_str();
}

// A Python int, or what stands for one (NumPy's integers); invalid for anything else.
nb::object IntegerOf(nb::handle value) {
  if (!PyIndex_Check(value.ptr())) return {};
  nb::object integer = nb::steal(PyNumber_Index(value.ptr()));
  if (!integer.is_valid()) PyErr_Clear();
  return integer;
}

// The dict of an object that says what one says (lopt.Component, an instance of a task class);
// invalid for anything else.
nb::object DictOfObject(nb::handle value) {
  constexpr const char* kMethod = "__lopt_config__";
  if (PyType_Check(value.ptr()) || !nb::hasattr(value, kMethod)) return {};
  return value.attr(kMethod)();
}

// Of dicts and lists in each other; far more than any config has, and far less than a stack holds.
constexpr int kMaxDepth = 100;

// `path` leads from the config `what` to the value: "estimators[0].std". It is `depth` deep.
ordered_json JsonOf(nb::handle value, const std::string& what, const std::string& path,
                    int depth = 0) {
  Require(depth <= kMaxDepth, "{}: it is more than {} dicts and lists deep; is one part of itself?",
          what, kMaxDepth);
  if (value.is_none()) return nullptr;
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::str>(value)) return TextOf(value, fmt::format("{}: '{}'", what, path));
  if (nb::isinstance<nb::float_>(value)) {
    const auto number = nb::cast<double>(value);
    Require(std::isfinite(number), "{}: '{}' must be finite, got {}", what, path, number);
    return number;
  }
  if (const nb::object integer = IntegerOf(value); integer.is_valid()) {
    int64_t number = 0;
    Require(nb::try_cast<int64_t>(integer, number),
            "{}: '{}' must be an integer of 64 bits, got {}", what, path, Said(integer));
    return number;
  }
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    ordered_json list = ordered_json::array();
    for (const nb::handle item : value) {
      list.push_back(JsonOf(item, what, fmt::format("{}[{}]", path, list.size()), depth + 1));
    }
    return list;
  }
  if (nb::isinstance<nb::dict>(value)) {
    ordered_json object = ordered_json::object();
    for (const auto& [key, item] : nb::borrow<nb::dict>(value)) {
      Require(nb::isinstance<nb::str>(key), "{}: a key must be str, got {}{}", what, TypeName(key),
              path.empty() ? "" : " in '" + path + "'");
      const auto name = TextOf(key, what + ": a key");
      object[name] = JsonOf(item, what, path.empty() ? name : path + "." + name, depth + 1);
    }
    return object;
  }
  if (const nb::object dict = DictOfObject(value); dict.is_valid()) {
    return JsonOf(dict, what, path, depth + 1);
  }
  Fail("{}: '{}' must be a dict, list, tuple, str, bool, int, float or None, got {}", what, path,
       TypeName(value));
}

nb::object PythonOf(const ordered_json& json) {
  switch (json.type()) {
    case ordered_json::value_t::object: {
      nb::dict dict;
      for (const auto& [key, value] : json.items()) dict[key.c_str()] = PythonOf(value);
      return dict;
    }
    case ordered_json::value_t::array: {
      nb::list list;
      for (const ordered_json& value : json) list.append(PythonOf(value));
      return list;
    }
    case ordered_json::value_t::string:
      return nb::cast(json.get<std::string>());
    case ordered_json::value_t::boolean:
      return nb::cast(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return nb::cast(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned:
      return nb::cast(json.get<uint64_t>());
    case ordered_json::value_t::number_float:
      return nb::cast(json.get<double>());
    default:
      return nb::none();
  }
}

nb::object CopyOf(const Array& array) {
  return VisitElements(array, [&]<class T>(std::span<const T> elements) {
    std::span<T> values;
    nb::object copy = NewArray<T>(array.shape(), &values);
    std::ranges::copy(elements, values.begin());
    return copy;
  });
}

// How far neighbours are apart along the last axis that is not contiguous; none if all are.
std::optional<int64_t> ElementsApart(const nb::ndarray<nb::ro>& numbers) {
  int64_t wanted = 1;
  for (size_t axis = numbers.ndim(); axis-- > 0;) {
    if (numbers.size() > 1 && numbers.shape(axis) > 1 && numbers.stride(axis) != wanted) {
      return numbers.stride(axis);
    }
    wanted *= static_cast<int64_t>(numbers.shape(axis));
  }
  return std::nullopt;
}

// A NumPy array, which must be float32, contiguous and of so many dimensions.
nb::ndarray<nb::ro> FloatArrayOf(nb::handle array, const std::string& what, size_t dimensions,
                                 const char* so_many) {
  nb::ndarray<nb::ro> numbers;
  const bool is_array = nb::try_cast(array, numbers, false);
  Require(is_array && numbers.device_type() == nb::device::cpu::value,
          "{} must be a NumPy array of float32 numbers, got {}", what, TypeName(array));
  const bool fits = numbers.ndim() == dimensions;
  const std::optional<int64_t> apart = fits ? ElementsApart(numbers) : std::nullopt;
  Require(fits && !apart && numbers.dtype() == nb::dtype<float>(),
          "{} must be a contiguous NumPy array of float32 numbers with {}, got {} of {} "
          "dimensions{}",
          what, so_many, Said(array.attr("dtype")), numbers.ndim(),
          apart ? fmt::format(", {} elements apart", *apart) : "");
  return numbers;
}

// An attribute that must be of a type: "theta.seed must be int, got str".
template <class T>
T Member(nb::handle object, const char* name, const char* type) {
  const nb::object value = object.attr(name);
  T result{};
  Require(nb::try_cast<T>(value, result), "theta.{} must be {}, got {}", name, type,
          TypeName(value));
  return result;
}

}  // namespace

std::string TypeName(nb::handle value) {
  if (PyType_Check(value.ptr())) {
    return "the class " + nb::cast<std::string>(value.attr("__name__"));
  }
  return nb::cast<std::string>(value.type().attr("__name__"));
}

nb::object TextObject(std::string_view text) {
  nb::object object = nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
  if (!object.is_valid()) throw nb::python_error();
  return object;
}

std::string WordOf(nb::handle word) {
  const nb::object bytes = nb::steal(PyUnicode_EncodeFSDefault(word.ptr()));
  if (!bytes.is_valid()) throw nb::python_error();
  const nb::bytes given = nb::borrow<nb::bytes>(bytes);
  return {given.c_str(), given.size()};
}

std::string TextOf(nb::handle text, const std::string& what) {
  Require(nb::isinstance<nb::str>(text), "{} must be str, got {}", what, TypeName(text));
  std::string read;
  Require(nb::try_cast(text, read), "{} must be text that UTF-8 can write, got {}", what,
          Said(nb::repr(text)));
  return read;
}

Config ConfigOfDict(nb::handle dict, const std::string& what) {
  const nb::object said = DictOfObject(dict);
  const nb::handle from = said.is_valid() ? nb::handle(said) : dict;
  Require(nb::isinstance<nb::dict>(from), "{} must be a dict, got {}", what, TypeName(from));
  return Config::FromJson(JsonOf(from, what, ""));
}

Config ConfigOf(nb::handle from, const Presets& presets, const std::string& what) {
  if (nb::isinstance<nb::dict>(from)) return ConfigOfDict(from, what);
  const bool is_text = nb::isinstance<nb::str>(from);
  Require(is_text || nb::hasattr(from, "__fspath__"),
          "{} must be a dict, the name of a preset or the path of a JSON file, got {}", what,
          TypeName(from));
  const std::string path = PathOf(from, what);
  for (const Preset& preset : presets.all()) {
    if (is_text && preset.name == path) return preset.config;
  }
  if (is_text && !Exists(path)) {
    std::vector<std::string> names;
    for (const Preset& preset : presets.all()) names.push_back(preset.name);
    Fail("{} '{}' is neither a preset nor a file; the presets are {}{}", what, path,
         fmt::join(names, ", "), DidYouMean(path, names));
  }
  return Config::Load(path);
}

nb::object ToPython(const Config& config) {
  return config.empty() ? nb::dict() : PythonOf(config.json());
}

std::string PathOf(nb::handle path, const std::string& what) {
  const nb::object text =
      nb::hasattr(path, "__fspath__") ? nb::object(path.attr("__fspath__")()) : nb::borrow(path);
  Require(nb::isinstance<nb::str>(text), "{} must be a path (str or os.PathLike), got {}", what,
          TypeName(path));
  std::string read = TextOf(text, what);
  Require(read.find('\0') == std::string::npos, "{} must be a path without NUL, got {}", what,
          Said(nb::repr(text)));
  return read;
}

Eigen::VectorXf FloatsOf(nb::handle array, const std::string& what) {
  const nb::ndarray<nb::ro> numbers = FloatArrayOf(array, what, 1, "one dimension");
  return Eigen::Map<const Eigen::VectorXf>(static_cast<const float*>(numbers.data()),
                                           static_cast<Eigen::Index>(numbers.size()));
}

std::vector<Eigen::VectorXf> FloatRowsOf(nb::handle array, const std::string& what) {
  const nb::ndarray<nb::ro> numbers = FloatArrayOf(array, what, 2, "two dimensions");
  const auto size = static_cast<Eigen::Index>(numbers.shape(1));
  std::vector<Eigen::VectorXf> rows;
  for (size_t row = 0; row < numbers.shape(0); ++row) {
    const float* first = static_cast<const float*>(numbers.data()) + row * numbers.shape(1);
    rows.emplace_back(Eigen::Map<const Eigen::VectorXf>(first, size));
  }
  return rows;
}

nb::object ToPython(Eigen::VectorXf values) {
  auto* owned = new Eigen::VectorXf(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<Eigen::VectorXf*>(p); });
  return ViewOf(*owned, owner);
}

nb::object ViewOf(const Eigen::VectorXf& values, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, float>(const_cast<float*>(values.data()),
                                                {static_cast<size_t>(values.size())}, owner));
}

nb::object ToPython(const NamedArrays& arrays) {
  nb::dict dict;
  for (const auto& [name, array] : arrays) dict[name.c_str()] = CopyOf(array.To(HostMemory()));
  return dict;
}

ThetaFile ThetaFileOf(nb::handle theta) {
  const nb::object config = theta.attr("config");
  const nb::object range = theta.attr("trained_range");
  return {
      .learned_optimizer = ResolvedOptimizer(
          ConfigOfDict(theta.attr("learned_optimizer"), "theta.learned_optimizer")),
      .theta = FloatsOf(theta.attr("values"), "theta.values"),
      .config = config.is_none() ? Config() : ConfigOfDict(config, "theta.config"),
      .seed = Member<int64_t>(theta, "seed", "int"),
      .meta_steps = Member<int64_t>(theta, "meta_steps", "int"),
      .trained_horizon = Member<int64_t>(theta, "trained_horizon", "int"),
      .trained_range = range.is_none()
                           ? TrainedRange()
                           : ParseTrainedRange(ConfigOfDict(range, "theta.trained_range").Dump(-1),
                                               "theta.trained_range"),
      .chosen_on = Member<std::string>(theta, "chosen_on", "str"),
      .version = Member<std::string>(theta, "version", "str")};
}

ThetaFile UsableThetaFileOf(nb::handle theta, const std::string& who) {
  ThetaFile file = ThetaFileOf(theta);
  RequireUsable(file, who);
  return file;
}

nb::object ToPython(const TrainedRange& range) {
  return range.known() ? ToPython(Config::Parse(RecordText(range), "trained_range")) : nb::none();
}

nb::dict ToPython(ThetaFile theta) {
  nb::dict members;
  members["learned_optimizer"] = ToPython(theta.learned_optimizer);
  members["values"] = ToPython(std::move(theta.theta));
  members["config"] = theta.config.empty() ? nb::none() : ToPython(theta.config);
  members["seed"] = theta.seed;
  members["meta_steps"] = theta.meta_steps;
  members["trained_horizon"] = theta.trained_horizon;
  members["trained_range"] = ToPython(theta.trained_range);
  members["chosen_on"] = theta.chosen_on;
  members["version"] = theta.version;
  return members;
}

nb::dict ToPython(const StepCounts& counts) {
  nb::dict members;
  members["inner_steps"] = counts.inner_steps;
  members["non_finite"] = counts.non_finite;
  members["episodes_ended"] = counts.episodes_ended;
  return members;
}

int ThreadsOf(nb::handle threads) {
  if (threads.is_none()) return AvailableCores();
  int number = 0;
  Require(nb::try_cast<int>(threads, number), "threads must be int or None, got {}",
          TypeName(threads));
  return number;
}

}  // namespace lopt::python
