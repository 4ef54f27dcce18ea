#include "lopt/tasks/wrappers/reparam_weights.h"

#include <algorithm>
#include <cmath>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

constexpr const char* kReparamWho = "ReparamWeights";

// Purposes of its own key.
enum ReparamDraw : uint64_t { kLevelDraw = 0, kRangeDraw = 1, kScaleDraw = 2 };

const ReparamWeightsOptions& CheckedReparam(const ReparamWeightsOptions& options) {
  CheckOptions(kReparamWho, options);
  Require(!options.levels.empty(), "{}: levels is empty, wanted at least one", kReparamWho);
  const std::vector<double>& ranges = options.ranges;
  Require(!ranges.empty() && ranges.size() % 2 == 0,
          "{}: ranges has {} numbers, wanted the least and the largest scale of each range",
          kReparamWho, ranges.size());
  for (size_t i = 0; i < ranges.size(); i += 2) {
    Require(ranges[i] <= ranges[i + 1],
            "{}: ranges[{}] is {} and ranges[{}] {}, wanted the least scale of a range first",
            kReparamWho, i, ranges[i], i + 1, ranges[i + 1]);
  }
  return options;
}

int64_t CountOfScales(ReparamLevel level, const Layout& params) {
  switch (level) {
    case ReparamLevel::kTensor:
      return std::ssize(params.entries());
    case ReparamLevel::kParameter:
      return params.size();
    default:
      return 1;
  }
}

ReparamLevel Finest(const ReparamWeightsOptions& options) {
  return *std::ranges::max_element(CheckedReparam(options).levels);
}

// change(&value, its scale) for every value of a row of params.
template <class Change>
void ForEachScaled(ReparamLevel level, const Layout& params, std::span<const float> scales,
                   std::span<float> values, const Change& change) {
  if (level == ReparamLevel::kParameter) {
    for (size_t i = 0; i < values.size(); ++i) change(&values[i], scales[i]);
  } else if (level == ReparamLevel::kTensor) {
    for (size_t t = 0; t < scales.size(); ++t) {
      const LayoutEntry& entry = params.entries()[t];
      for (float& value : values.subspan(entry.offset, entry.size)) change(&value, scales[t]);
    }
  } else {
    for (float& value : values) change(&value, scales[0]);
  }
}

}  // namespace

void ReparamWeightsOptions::Visit(FieldVisitor& v) {
  v.Choice("levels", &levels, kReparamLevels,
           "What has a scale of its own: nothing (the scale is 1), all params together, each "
           "tensor, each number. Of several, each task draws one.");
  v.Field("ranges", &ranges, Above(0),
          "The least and the largest scale; between them its logarithm is uniform. Of several such "
          "pairs, one after the other, each task draws one.");
}

ReparamWeights::ReparamWeights(const std::shared_ptr<const TaskFamily>& task,
                               const ReparamWeightsOptions& options)
    : TaskWrapper(
          task,
          PartsOf(*task,
                  Layout({{"scale", {CountOfScales(Finest(options), task->params_layout())}}}))),
      options_(options),
      finest_(Finest(options)) {}

void ReparamWeights::DoSample(Key key, std::span<float> config) const {
  TaskWrapper::DoSample(key, config);
  const std::span<float> scales = OwnConfig(config);
  const Key own = OwnKey(key);
  const ReparamLevel level = options_.levels[Randint(FoldIn(own, kLevelDraw), 0,
                                                     static_cast<int32_t>(options_.levels.size()))];
  const int32_t range =
      2 * Randint(FoldIn(own, kRangeDraw), 0, static_cast<int32_t>(options_.ranges.size() / 2));
  const double least = options_.ranges[range];
  const double logarithm = std::log(options_.ranges[range + 1] / least);
  const auto draw = [&](int64_t first, std::span<float> drawn) {
    Uniform(FoldIn(own, kScaleDraw), drawn, static_cast<uint64_t>(first));
    for (float& scale : drawn) scale = static_cast<float>(least * std::exp(scale * logarithm));
  };
  float scale = 1;
  if (level == ReparamLevel::kParameter) {
    draw(0, scales);
  } else if (level == ReparamLevel::kTensor) {
    for (size_t t = 0; t < params_layout().entries().size(); ++t) {
      draw(static_cast<int64_t>(t), {&scale, 1});
      const LayoutEntry& entry = params_layout().entries()[t];
      std::ranges::fill(finest_ == ReparamLevel::kTensor ? scales.subspan(t, 1)
                                                         : scales.subspan(entry.offset, entry.size),
                        scale);
    }
  } else {
    if (level == ReparamLevel::kGlobal) draw(0, {&scale, 1});
    std::ranges::fill(scales, scale);
  }
}

void ReparamWeights::DoInit(std::span<const float> config, Key key, std::span<float> params,
                            std::span<float> model_state) const {
  TaskWrapper::DoInit(config, key, params, model_state);
  ForEachScaled(finest_, params_layout(), OwnConfig(config, 0), params,
                [](float* value, float scale) { *value /= scale; });
}

void ReparamWeights::Scale(std::span<const float> config, int64_t rows,
                           std::span<float> params) const {
  const int64_t size = params_layout().size();
  for (int64_t row = 0; row < rows; ++row) {
    ForEachScaled(finest_, params_layout(), OwnConfig(config, row),
                  params.subspan(row * size, size),
                  [](float* value, float scale) { *value *= scale; });
  }
}

TaskEvaluation ReparamWeights::AtScaled(const TaskEvaluation& e, Workspace& scratch) const {
  const std::span<float> scaled = scratch.Take<float>(std::ssize(e.params));
  std::ranges::copy(e.params, scaled.begin());
  Scale(e.config, e.rows, scaled);
  TaskEvaluation at_scaled = e;
  at_scaled.params = scaled;
  return at_scaled;
}

void ReparamWeights::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  EvaluateTask(AtScaled(e, scratch), scratch);
  if (!e.gradients.empty()) Scale(e.config, e.rows, e.gradients);
}

std::vector<Pictures> ReparamWeights::DoShow(const TaskEvaluation& e, Workspace& scratch) const {
  return TaskWrapper::DoShow(AtScaled(e, scratch), scratch);
}

}  // namespace lopt
