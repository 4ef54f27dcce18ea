#include "lopt/tools/import/haiku_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/npz.h"
#include "lopt/base/safetensors.h"
#include "lopt/tools/import/flax_msgpack.h"

namespace lopt {
namespace {

constexpr size_t kMostListed = 40;

std::string NumpyName(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUint32:
      return "uint32";
    case DType::kUint8:
      return "uint8";
  }
  Fail("Array of an unknown dtype");
}

// Joined by '/', without empty keys and "~".
std::string Normalized(std::string_view path) {
  std::string normalized;
  while (!path.empty()) {
    const size_t end = std::min(path.find_first_of("/:"), path.size());
    const std::string_view key = path.substr(0, end);
    if (!key.empty() && key != "~") {
      if (!normalized.empty()) normalized += '/';
      normalized += key;
    }
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return normalized;
}

// NumPy's name of a dtype in an npy header or a safetensors file; the name in the file where it is
// none of these.
std::string NumpyName(const std::string& dtype) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"<f2", "float16"}, {"F16", "float16"},   {"BF16", "bfloat16"}, {"|b1", "bool"},
      {"BOOL", "bool"},   {"<i2", "int16"},     {"I16", "int16"},     {"<u2", "uint16"},
      {"U16", "uint16"},  {"|i1", "int8"},      {"I8", "int8"},       {"<u8", "uint64"},
      {"U64", "uint64"},  {"<c8", "complex64"}, {"|O", "object"}};
  for (const auto& [name, numpy] : kNames) {
    if (dtype == name) return numpy;
  }
  return dtype;
}

std::vector<FoundArray> FromArrays(const NamedArrays& arrays,
                                   const std::vector<OtherArray>& others) {
  std::vector<FoundArray> found;
  for (const auto& [name, array] : arrays) {
    found.push_back({.path = name,
                     .dtype = NumpyName(array.dtype()),
                     .shape = array.shape(),
                     .values = array.dtype() == DType::kFloat32 ? array : Array()});
  }
  for (const OtherArray& other : others) {
    found.push_back({.path = other.name,
                     .dtype = NumpyName(other.dtype),
                     .shape = other.shape,
                     .values = Array()});
  }
  return found;
}

std::vector<FoundArray> ReadAsItIs(const std::string& path) {
  const std::vector<std::byte> bytes = ReadFile(path);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<OtherArray> others;
  if (text.starts_with("PK")) {
    const NamedArrays arrays = ParseNpz(bytes, path, &others);
    return FromArrays(arrays, others);
  }
  if (path.ends_with(".npz")) Fail("{}: not a zip archive, as an npz file is one", path);
  if (path.ends_with(".safetensors")) {
    const ArrayFile file = ParseArrayFile(bytes, path, &others);
    return FromArrays(file.arrays, others);
  }
  return ParseFlaxMsgpack(bytes, path);
}

std::string Show(const std::vector<FoundArray>& arrays) {
  if (arrays.empty()) return "no arrays";
  std::vector<std::string> shown;
  for (const FoundArray& array : arrays) {
    if (shown.size() == kMostListed) {
      shown.push_back(fmt::format("and {} more", arrays.size() - kMostListed));
      break;
    }
    shown.push_back(fmt::format("{} {} {}", array.path, array.dtype, ToString(array.shape)));
    if (!array.name_in_file.empty()) shown.back() += fmt::format(" ({})", array.name_in_file);
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::string Show(const Layout& layout) {
  std::vector<std::string> shown;
  for (const LayoutEntry& entry : layout.entries()) {
    shown.push_back(fmt::format("{} {}", entry.name, ToString(entry.shape)));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

// The arrays below one path that have names of the layout.
using Group = std::map<std::string, const FoundArray*>;

std::string ShowKeys(const std::map<std::string, Group>& groups) {
  std::vector<std::string> keys;
  for (const auto& [key, group] : groups) keys.push_back(key);
  return fmt::format("{}", fmt::join(keys, ", "));
}

// By the path they lie below, "." for the top.
std::map<std::string, Group> Groups(const std::vector<FoundArray>& arrays, const Layout& layout) {
  std::map<std::string, Group> groups;
  for (const FoundArray& array : arrays) {
    for (const LayoutEntry& entry : layout.entries()) {
      if (array.path == entry.name) {
        groups["."][entry.name] = &array;
      } else if (array.path.ends_with("/" + entry.name)) {
        const std::string key = array.path.substr(0, array.path.size() - entry.name.size() - 1);
        groups[key][entry.name] = &array;
      }
    }
  }
  return groups;
}

bool HasShape(const Shape& shape, const Shape& wanted) {
  return shape == wanted || (shape.empty() && wanted == Shape{1});
}

bool Fits(const Group& group, const Layout& layout) {
  return std::ranges::all_of(layout.entries(), [&](const LayoutEntry& entry) {
    const auto found = group.find(entry.name);
    return found != group.end() && HasShape(found->second->shape, entry.shape);
  });
}

// The key among those of the groups that is meant.
std::string ChooseKey(const std::map<std::string, Group>& groups, const Layout& layout,
                      const std::string& key, const std::vector<FoundArray>& arrays,
                      const std::string& source) {
  if (!key.empty()) {
    std::string chosen = key == "." ? key : Normalized(key);
    const auto found = groups.find(chosen);
    Require(found != groups.end(), "{}: below '{}' is no tensor of: {}; found: {}", source, key,
            Show(layout), Show(arrays));
    Require(Fits(found->second, layout),
            "{}: below '{}' the tensors do not fit; wanted: {}; found: {}", source, key,
            Show(layout), Show(arrays));
    return chosen;
  }
  std::map<std::string, Group> fitting;
  for (const auto& [path, group] : groups) {
    if (Fits(group, layout)) fitting[path] = group;
  }
  Require(!fitting.empty(), "{}: the tensors wanted are not there; wanted: {}; found: {}", source,
          Show(layout), Show(arrays));
  Require(fitting.size() == 1,
          "{}: the tensors wanted are there {} times; --key chooses one of: {}", source,
          fitting.size(), ShowKeys(fitting));
  return fitting.begin()->first;
}

// Arrays beside the tensors in the modules that these come from would be weights left out.
void CheckNothingElse(const std::vector<FoundArray>& arrays, const Layout& layout,
                      const std::string& key, const std::string& source) {
  const std::string below = key == "." ? "" : key + "/";
  std::set<std::string> known;
  std::set<std::string> modules;
  for (const LayoutEntry& entry : layout.entries()) {
    known.insert(below + entry.name);
    const size_t end = entry.name.find('/');
    const std::string module = below + entry.name.substr(0, end == std::string::npos ? 0 : end + 1);
    if (!module.empty()) modules.insert(module);
  }
  for (const FoundArray& array : arrays) {
    const bool beside = std::ranges::any_of(
        modules, [&](const std::string& module) { return array.path.starts_with(module); });
    Require(!beside || known.contains(array.path), "{}: {} {} is not one of the tensors wanted: {}",
            source, array.path, ToString(array.shape), Show(layout));
  }
}

}  // namespace

std::vector<FoundArray> ReadHaikuParams(const std::string& path) {
  std::vector<FoundArray> arrays = ReadAsItIs(path);
  for (FoundArray& array : arrays) array.path = Normalized(array.path);
  std::ranges::sort(arrays, {}, &FoundArray::path);
  const auto twice = std::ranges::adjacent_find(arrays, {}, &FoundArray::path);
  Require(twice == arrays.end(), "{}: two arrays are {}", path,
          twice == arrays.end() ? "" : twice->path);
  return arrays;
}

NamedArrays FindTensors(const std::vector<FoundArray>& arrays, const Layout& layout,
                        const std::string& key, const std::string& source) {
  const std::map<std::string, Group> groups = Groups(arrays, layout);
  const std::string chosen = ChooseKey(groups, layout, key, arrays, source);
  CheckNothingElse(arrays, layout, chosen, source);
  NamedArrays tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    const FoundArray& array = *groups.at(chosen).at(entry.name);
    Require(array.dtype == "float32",
            "{}: {} is {}; weights are float32, convert them with astype(numpy.float32)", source,
            array.path, array.dtype);
    tensors.Set(entry.name, Array::Of<float>(entry.shape, array.values.As<float>()));
  }
  return tensors;
}

}  // namespace lopt
