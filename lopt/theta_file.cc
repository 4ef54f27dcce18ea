#include "lopt/lopt/theta_file.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/arrays.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/finite.h"
#include "lopt/base/record.h"
#include "lopt/base/safetensors.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

constexpr const char* kFormat = "lopt theta 2";
constexpr const char* kOldFormat = "lopt theta 1";  // golden steps without limits
constexpr const char* kWantsFinite = ": weights must be finite numbers";
constexpr const char* kFormats = "lopt theta ";  // what they begin with, newer ones too

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

// Of metadata that goes with the horizon.
TrainedRange CheckedRange(const std::string& text, int64_t horizon, const std::string& path) {
  const TrainedRange range = ParseTrainedRange(text, path + ": metadata trained_range");
  Require(
      range.longest_training == horizon,
      "{}: metadata trained_range: longest_training must be trained_horizon, which is {}, got {}",
      path, horizon, range.longest_training);
  return range;
}

// A file and what its check needs.
struct FoundFile {
  ThetaFile file;
  std::shared_ptr<const LearnedOptimizer> optimizer;
  std::optional<GoldenSteps> golden;
};

FoundFile ReadUnchecked(const std::string& path, const std::optional<Config>& learned_optimizer) {
  std::vector<OtherArray> others;
  const ArrayFile file = ReadArrayFile(path, &others);
  for (const OtherArray& other : others) {
    Require(!other.name.starts_with("theta/") && !other.name.starts_with("golden/"),
            "{}: tensor '{}' has dtype {}, wanted F32", path, other.name, other.dtype);
  }
  const auto metadata = [&](const std::string& name) {
    const auto found = file.metadata.find(name);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  // Other programs write theirs, such as "pt".
  const std::string format = metadata("format");
  Require(!format.starts_with(kFormats) || format == kFormat || format == kOldFormat,
          "{}: the format is '{}'; this program reads '{}' and '{}'. A newer file needs a newer "
          "program",
          path, format, kOldFormat, kFormat);
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
  try {
    RowFromArrays(layout, tensors, "", AsSpan(result.theta));
  } catch (const Error& error) {
    Fail("{}: theta: {}", path, error.what());
  }
  RequireFiniteWeights(layout, AsSpan(result.theta), path + kWantsFinite);
  if (const std::string config = metadata("config"); !config.empty()) {
    result.config = Config::Parse(config, path);
  }
  result.seed = IntegerOf(file.metadata, "seed", path);
  result.meta_steps = IntegerOf(file.metadata, "meta_steps", path);
  result.trained_horizon = IntegerOf(file.metadata, "trained_horizon", path);
  for (const int64_t steps : {result.meta_steps, result.trained_horizon}) {
    Require(steps >= 0, "{}: metadata meta_steps and trained_horizon must be at least 0, got {}",
            path, steps);
  }
  if (file.metadata.contains("trained_range")) {
    result.trained_range = CheckedRange(metadata("trained_range"), result.trained_horizon, path);
  }
  result.chosen_on = metadata("chosen_on");
  result.version = metadata("version");
  return {.file = std::move(result), .optimizer = optimizer, .golden = TakeGoldenSteps(file, path)};
}

}  // namespace

void RequireUsable(const ThetaFile& file, const std::string& who) {
  const auto optimizer = OptimizerRegistry().Make(file.learned_optimizer);
  const Layout& layout = optimizer->theta_layout();
  Require(file.theta.size() == layout.size(), "{}: theta has {} numbers, the optimizer needs {}",
          who, file.theta.size(), layout.size());
  RequireFiniteWeights(layout, AsSpan(file.theta), who + kWantsFinite);
}

void WriteThetaFile(const std::string& path, const ThetaFile& theta_file) {
  RequireUsable(theta_file, path);
  const auto optimizer = OptimizerRegistry().Make(theta_file.learned_optimizer);
  const Layout& theta_layout = optimizer->theta_layout();
  const std::span<const float> theta = AsSpan(theta_file.theta);
  ArrayFile file;
  file.arrays = ArraysFromRow(theta_layout, theta, "theta/");
  file.metadata = {{"format", kFormat},
                   {"learned_optimizer", theta_file.learned_optimizer.Dump(-1)},
                   {"seed", fmt::format("{}", theta_file.seed)},
                   {"meta_steps", fmt::format("{}", theta_file.meta_steps)},
                   {"version", theta_file.version}};
  if (theta_file.trained_horizon > 0) {
    file.metadata["trained_horizon"] = fmt::format("{}", theta_file.trained_horizon);
  }
  if (theta_file.trained_range.known()) {
    const std::string text = RecordText(theta_file.trained_range);
    CheckedRange(text, theta_file.trained_horizon, path);
    file.metadata["trained_range"] = text;
  }
  if (!theta_file.chosen_on.empty()) file.metadata["chosen_on"] = theta_file.chosen_on;
  if (!theta_file.config.empty()) {
    file.metadata["config"] = theta_file.config.Dump(-1);
  }
  try {
    PutGoldenSteps(MeasureGoldenSteps(theta_file.learned_optimizer, theta), &file);
  } catch (const Error& error) {
    spdlog::warn("{}: written without golden steps, since the optimizer cannot make them: {}", path,
                 error.what());
  }
  WriteArrayFile(path, file);
}

ThetaFile ReadThetaFile(const std::string& path, const std::optional<Config>& learned_optimizer,
                        FailedCheck failed_check) {
  const FoundFile read = ReadUnchecked(path, learned_optimizer);
  if (read.golden) {
    if (const std::string unchecked = UncheckedTensors(*read.golden); !unchecked.empty()) {
      spdlog::warn(
          "{}: the golden steps do not check {}: rounding alone may take the result anywhere", path,
          unchecked);
    }
    const GoldenDeviation deviation =
        RepeatGoldenSteps(*read.golden, *read.optimizer, AsSpan(read.file.theta));
    if (!deviation.within) {
      const std::string what = fmt::format("{}: {}", path, deviation.Describe());
      Require(failed_check == FailedCheck::kWarn, "{}", what);
      spdlog::warn("{}; it is used all the same, as was asked for", what);
    }
  }
  return read.file;
}

std::vector<GoldenDeviation> CheckThetaFile(const std::string& path,
                                            const std::optional<Config>& learned_optimizer) {
  const FoundFile read = ReadUnchecked(path, learned_optimizer);
  if (!read.golden) return {};
  return RepeatGoldenStepsEverywhere(*read.golden, read.file.learned_optimizer,
                                     AsSpan(read.file.theta));
}

}  // namespace lopt
