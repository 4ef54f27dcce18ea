#include "lopt/tools/import/pylo.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

constexpr std::string_view kPyloNetwork = "network.";

struct PyloDecays {
  std::vector<double> momentum_decays;
  std::vector<double> rms_decays;
  std::vector<double> adafactor_decays;
  void Visit(FieldVisitor& v) {
    v.Field("momentum_decays", &momentum_decays, {}, "Offsets of the decays of momenta.");
    v.Field("rms_decays", &rms_decays, {}, "Offsets of the decays of mean squares.");
    v.Field("adafactor_decays", &adafactor_decays, {}, "Offsets of the factored moments' decays.");
  }
};

FoundArray OffsetArray(const std::string& path, const std::vector<double>& values) {
  const std::vector<float> floats(values.begin(), values.end());
  const Shape shape = {std::ssize(floats)};
  return {.path = path,
          .dtype = "float32",
          .shape = shape,
          .values = Array::Of<float>(shape, std::span<const float>(floats))};
}

// [out, in] becomes [in, out].
void Transpose(FoundArray& array) {
  if (array.shape.size() != 2) return;
  const int64_t out = array.shape[0];
  const int64_t in = array.shape[1];
  array.shape = {in, out};
  if (array.dtype != "float32") return;
  Array transposed(DType::kFloat32, array.shape);
  const auto from = std::as_const(array.values).As<float>();
  const auto to = transposed.As<float>();
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t j = 0; j < in; ++j) to[j * out + i] = from[i * in + j];
  }
  array.values = std::move(transposed);
}

}  // namespace

bool IsPylo(const std::vector<FoundArray>& arrays) {
  return std::ranges::any_of(
      arrays, [](const FoundArray& array) { return array.path == "network.input.weight"; });
}

std::vector<FoundArray> FromPylo(std::vector<FoundArray> arrays, const std::string& decays,
                                 const std::string& source) {
  int64_t inner = 0;
  const auto has = [&](const std::string& path) {
    return std::ranges::find(arrays, path, &FoundArray::path) != arrays.end();
  };
  while (has(fmt::format("network.linear_{}.weight", inner))) ++inner;
  std::vector<std::string> layers = {"input"};
  for (int64_t l = 0; l < inner; ++l) layers.push_back(fmt::format("linear_{}", l));
  layers.emplace_back("output");
  for (FoundArray& array : arrays) {
    if (!array.path.starts_with(kPyloNetwork)) continue;
    bool known = false;
    for (size_t l = 0; l < layers.size() && !known; ++l) {
      for (const auto& [name, renamed] : {std::pair("weight", "w"), std::pair("bias", "b")}) {
        if (array.path != fmt::format("{}{}.{}", kPyloNetwork, layers[l], name)) continue;
        array.name_in_file = std::exchange(array.path, fmt::format("nn/{}{}", renamed, l));
        if (*renamed == 'w') Transpose(array);
        known = true;
        break;
      }
    }
    Require(known, "{}: {} {} is not one of the tensors of PyLO's network, whose layers are: {}",
            source, array.path, ToString(array.shape), fmt::join(layers, ", "));
  }
  if (has("momentum_decays") || has("rms_decays") || has("adafactor_decays")) {
    Require(decays.empty(), "{}: the file holds offsets of the decays; --decays would be others",
            source);
    return arrays;
  }
  Require(!decays.empty(),
          "{}: PyLO's files do not hold the offsets of the decays, which are arguments of its "
          "optimizers: give them with --decays '{{\"momentum_decays\": [...], \"rms_decays\": "
          "[...], \"adafactor_decays\": [...]}}'",
          source);
  const auto offsets = ReadOptions<PyloDecays>(Config::Parse(decays, "--decays"));
  arrays.push_back(OffsetArray("momentum_decays", offsets.momentum_decays));
  arrays.push_back(OffsetArray("rms_decays", offsets.rms_decays));
  arrays.push_back(OffsetArray("adafactor_decays", offsets.adafactor_decays));
  return arrays;
}

}  // namespace lopt
