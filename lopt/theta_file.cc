#include "lopt/theta_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/arrays.h"
#include "base/error.h"
#include "base/key.h"
#include "base/safetensors.h"
#include "base/workspace.h"
#include "lopt/registry.h"

namespace lopt {
namespace {

constexpr const char* kFormat = "lopt theta 1";
constexpr int64_t kGoldenSteps = 5;
constexpr float kGoldenScale = 0.1F;
constexpr double kGoldenTolerance = 1e-6;

// The layout, without a prefix, of all arrays named `prefix`..., in the order of their names.
Layout LayoutOf(const NamedArrays& arrays, std::string_view prefix) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const auto& [name, array] : arrays.Extract(prefix)) {
    tensors.emplace_back(name, array.shape());
  }
  return Layout(std::move(tensors));
}

std::vector<float> Normals(uint64_t stream, int64_t size) {
  std::vector<float> values(static_cast<size_t>(size));
  Normal(FoldIn(KeyFromSeed(0), stream), values);
  for (float& value : values) {
    value *= kGoldenScale;
  }
  return values;
}

// Each tensor with one more dimension, the steps, in front.
Layout WithSteps(const Layout& layout) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    Shape shape = entry.shape;
    shape.insert(shape.begin(), kGoldenSteps);
    tensors.emplace_back(entry.name, std::move(shape));
  }
  return Layout(std::move(tensors));
}

// The parameters after the golden steps. `gradients` is a row of WithSteps(layout).
std::vector<float> RunGolden(const LearnedOptimizer& optimizer, std::span<const float> theta,
                             const Layout& layout, std::vector<float> params,
                             std::span<const float> gradients) {
  const auto rule = optimizer.Bind(layout, theta);
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  StepInfo info{.step = 0, .num_steps = kGoldenSteps, .loss = 0, .key = KeyFromSeed(0)};
  rule->InitState(info, params, state);
  std::vector<float> gradient(params.size());
  Workspace scratch;
  for (; info.step < kGoldenSteps; ++info.step) {
    for (const LayoutEntry& entry : layout.entries()) {
      const int64_t from = entry.offset * kGoldenSteps + info.step * entry.size;
      std::copy_n(gradients.begin() + from, entry.size, gradient.begin() + entry.offset);
    }
    rule->Update(info, gradient, params, state, scratch);
  }
  return params;
}

void CheckGolden(const LearnedOptimizer& optimizer, std::span<const float> theta,
                 const NamedArrays& arrays, const std::string& path) {
  const Layout layout = LayoutOf(arrays, "golden/params/");
  if (layout.size() == 0) {
    return;
  }
  const auto row = [&](const Layout& of, std::string_view prefix) {
    std::vector<float> values(static_cast<size_t>(of.size()));
    try {
      RowFromArrays(of, arrays, prefix, values);
    } catch (const Error& error) {
      Fail("{}: the golden steps are damaged: {}", path, error.what());
    }
    return values;
  };
  const std::vector<float> wanted = row(layout, "golden/result/");
  const std::vector<float> got = RunGolden(optimizer, theta, layout, row(layout, "golden/params/"),
                                           row(WithSteps(layout), "golden/gradients/"));
  for (const LayoutEntry& entry : layout.entries()) {
    for (int64_t i = 0; i < entry.size; ++i) {
      const float w = wanted[entry.offset + i];
      const float g = got[entry.offset + i];
      const double tolerance = kGoldenTolerance * (1 + std::abs(w));
      const bool same = w == g || (std::isnan(w) && std::isnan(g)) ||
                        std::abs(double{w} - double{g}) <= tolerance;
      Require(same,
              "{}: the optimizer does not do what it did when the file was written: "
              "golden/result/{} at {}: {} wanted, got {}",
              path, entry.name, i, w, g);
    }
  }
}

// "a [2], b [3, 4]", or "none".
std::string Show(const std::map<std::string, Shape>& tensors) {
  std::vector<std::string> shown;
  for (const auto& [name, shape] : tensors) {
    shown.push_back(name + " " + ToString(shape));
  }
  return shown.empty() ? "none" : fmt::format("{}", fmt::join(shown, ", "));
}

void CheckTensors(const Layout& layout, const NamedArrays& tensors, const Config& optimizer,
                  const std::string& path) {
  std::map<std::string, Shape> wanted;
  for (const LayoutEntry& entry : layout.entries()) {
    wanted[entry.name] = entry.shape;
  }
  std::map<std::string, Shape> got;
  for (const auto& [name, array] : tensors) {
    got[name] = array.shape();
  }
  Require(wanted == got, "{}: the tensors theta/... are not those of {}; wanted: {}; got: {}", path,
          optimizer.Dump(-1), Show(wanted), Show(got));
}

// What two optimizers differ in: options, and tensors of theta.
std::vector<std::string> Differences(const Config& in_file, const Config& wanted) {
  std::vector<std::string> differences = ResolvedOptimizer(in_file).Differences(
      ResolvedOptimizer(wanted), {}, "in the file", "wanted");
  std::map<std::string, std::pair<std::string, std::string>> shapes;
  const auto found = OptimizerRegistry().Make(in_file);
  const auto needed = OptimizerRegistry().Make(wanted);
  for (const LayoutEntry& entry : found->theta_layout().entries()) {
    shapes[entry.name] = {ToString(entry.shape), "absent"};
  }
  for (const LayoutEntry& entry : needed->theta_layout().entries()) {
    shapes.try_emplace(entry.name, "absent", "").first->second.second = ToString(entry.shape);
  }
  for (const auto& [name, shape] : shapes) {
    if (shape.first != shape.second) {
      differences.push_back(
          fmt::format("theta/{}: {} in the file, {} wanted", name, shape.first, shape.second));
    }
  }
  return differences;
}

int64_t IntegerOf(const std::map<std::string, std::string>& metadata, const std::string& name,
                  const std::string& path) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) {
    return 0;
  }
  int64_t value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  Require(error == std::errc() && end == text.data() + text.size(),
          "{}: metadata '{}' must be a whole number, got '{}'", path, name, text);
  return value;
}

}  // namespace

void WriteThetaFile(const std::string& path, const ThetaFile& theta_file) {
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  const Layout& theta_layout = optimizer->theta_layout();
  Require(theta_file.theta.size() == theta_layout.size(),
          "{}: theta has {} numbers, the optimizer needs {}", path, theta_file.theta.size(),
          theta_layout.size());
  const std::span<const float> theta(theta_file.theta.data(),
                                     static_cast<size_t>(theta_file.theta.size()));

  const Layout layout({{"b", {3}}, {"w", {4, 3}}});
  const std::vector<float> params = Normals(0, layout.size());
  const std::vector<float> gradients = Normals(1, WithSteps(layout).size());
  const std::vector<float> result = RunGolden(*optimizer, theta, layout, params, gradients);

  ArrayFile file;
  file.arrays = ArraysFromRow(theta_layout, theta, "theta/");
  file.arrays.Merge("", ArraysFromRow(layout, params, "golden/params/"));
  file.arrays.Merge("", ArraysFromRow(WithSteps(layout), gradients, "golden/gradients/"));
  file.arrays.Merge("", ArraysFromRow(layout, result, "golden/result/"));
  file.metadata = {{"format", kFormat},
                   {"learned_optimizer", theta_file.learned_optimizer.Dump(-1)},
                   {"seed", fmt::format("{}", theta_file.seed)},
                   {"meta_steps", fmt::format("{}", theta_file.meta_steps)},
                   {"version", theta_file.version}};
  if (theta_file.trained_horizon > 0) {
    file.metadata["trained_horizon"] = fmt::format("{}", theta_file.trained_horizon);
  }
  if (!theta_file.chosen_on.empty()) file.metadata["chosen_on"] = theta_file.chosen_on;
  if (!theta_file.config.empty()) {
    file.metadata["config"] = theta_file.config.Dump(-1);
  }
  WriteArrayFile(path, file);
}

ThetaFile ReadThetaFile(const std::string& path, const std::optional<Config>& learned_optimizer) {
  const ArrayFile file = ReadArrayFile(path);
  const auto metadata = [&](const std::string& name) {
    const auto found = file.metadata.find(name);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  const std::string format = metadata("format");
  Require(format.empty() || format == kFormat,
          "{}: the format is '{}'; this program reads '{}'. A newer file needs a newer program",
          path, format, kFormat);
  ThetaFile result;
  const std::string named = metadata("learned_optimizer");
  Require(!named.empty() || learned_optimizer.has_value(),
          "{}: the file does not name its learned optimizer; its type and options must be given",
          path);
  if (named.empty()) {
    result.learned_optimizer = *learned_optimizer;
  } else {
    result.learned_optimizer = Config::Parse(named, path);
    if (learned_optimizer) {
      const std::vector<std::string> differences =
          Differences(result.learned_optimizer, *learned_optimizer);
      Require(differences.empty(), "{}: the file is of another learned optimizer: {}", path,
              fmt::join(differences, "; "));
    }
  }

  const auto optimizer = OptimizerRegistry().Make(result.learned_optimizer);
  const Layout& layout = optimizer->theta_layout();
  const NamedArrays tensors = file.arrays.Extract("theta/");
  CheckTensors(layout, tensors, result.learned_optimizer, path);
  result.theta.resize(layout.size());
  const std::span<float> theta(result.theta.data(), static_cast<size_t>(result.theta.size()));
  try {
    RowFromArrays(layout, tensors, "", theta);
  } catch (const Error& error) {
    Fail("{}: theta: {}", path, error.what());
  }
  CheckGolden(*optimizer, theta, file.arrays, path);

  if (const std::string config = metadata("config"); !config.empty()) {
    result.config = Config::Parse(config, path);
  }
  result.seed = IntegerOf(file.metadata, "seed", path);
  result.meta_steps = IntegerOf(file.metadata, "meta_steps", path);
  result.trained_horizon = IntegerOf(file.metadata, "trained_horizon", path);
  result.chosen_on = metadata("chosen_on");
  result.version = metadata("version");
  return result;
}

}  // namespace lopt
