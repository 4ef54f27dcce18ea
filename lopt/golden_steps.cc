#include "lopt/lopt/golden_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "lopt/base/arrays.h"
#include "lopt/base/error.h"
#include "lopt/base/isa.h"
#include "lopt/base/key.h"
#include "lopt/base/workspace.h"
#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

constexpr double kMargin = 8;
constexpr int kDraws = 32;
// The least limit: of the greatest movement, and of the greatest number.
constexpr double kLeastOfMovement = 2e-6;
constexpr double kLeastOfNumber = 0x1p-22;
// Where float32's rounding decides between two neighbours in bfloat16, which the draws may not have
// met.
constexpr double kLeastOfMovementInBfloat16 = 0x1p-9;

// Movements of fewer limits are lost in rounding.
constexpr double kLostBelow = 1000;

constexpr float kLargestStep = 0x1p24F;

// Of files without limits.
constexpr int64_t kOldSteps = 5;
constexpr double kOldOfNumber = 1e-6;
constexpr double kOldOfMovement = 3e-5;

// A golden tensor. Those of fewer than two axes have names that end in "/b": so Celo2 knows them.
struct Tensor {
  const char* name;
  Shape shape;
  float params;         // their scale
  float gradients;      // likewise
  float last = 1;       // what the last gradient has more
  bool graded = false;  // whether elements 1, 2, 4, 5, ... have a tenth and a hundredth of it
};

// Ordinary ones; a kernel of a convolution with axes around its two largest; one whose last
// gradient is clipped; one without gradients, neither the first nor the last; and some beside whose
// params and gradients the small constants of rules are seen, the matrix with an axis between its
// two largest.
const std::vector<Tensor>& GoldenTensors() {
  static const std::vector<Tensor> tensors = {
      {.name = "kernel/w", .shape = {2, 3, 4, 2}, .params = .1F, .gradients = .3F},
      {.name = "large/w", .shape = {2, 4}, .params = 1, .gradients = 1, .last = 1000},
      {.name = "plain/b", .shape = {5}, .params = .1F, .gradients = .1F},
      {.name = "plain/w", .shape = {7, 4}, .params = .1F, .gradients = .1F},
      {.name = "resting/w", .shape = {4, 2}, .params = .1F, .gradients = 0},
      {.name = "small/b", .shape = {6}, .params = 5e-5F, .gradients = 1e-3F, .graded = true},
      {.name = "small/w", .shape = {5, 2, 4}, .params = 5e-5F, .gradients = 1e-3F, .graded = true}};
  return tensors;
}

// Consecutive steps show what a rule keeps of the last; later ones, its schedules and times. In
// this length steps are short enough not to take rounding far.
constexpr int64_t kSteps[] = {0, 1, 2, 3, 4, 20, 150, 1500, 5000, 9000};
constexpr int64_t kNumSteps = 10000;

// Of optimizers that need losses: some rise, and some are too large to be believed. Gaps in the
// steps take the means of Celo down: were all losses above 0, every mean would be a new minimum
// after a gap, whatever its length, and nothing would show whether the length is right.
constexpr float kLosses[] = {5, .8F, 3, -6, .8F, -1, 60, .5F, -8, 1.2F};
static_assert(std::size(kLosses) == std::size(kSteps));

// Each tensor with one more dimension, the updates, in front.
Layout WithUpdates(const Layout& layout, int64_t updates) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.emplace_back(entry.name, Copies(updates, entry.shape));
  }
  return Layout(std::move(tensors));
}

// A sign for the element of a tensor such that the columns of its matrices, or the rows where
// these are fewer, are orthogonal: Newton-Schulz takes errors far in matrices that are nearly
// singular.
float Sign(const Shape& shape, int64_t i) {
  if (shape.size() < 2) return i % 2 == 0 ? 1 : -1;
  const int64_t columns = shape.back();
  const auto row = static_cast<uint64_t>(i / columns);
  const auto column = static_cast<uint64_t>(i % columns);
  const auto others = static_cast<uint64_t>(columns > shape[shape.size() - 2] ? row : column) + 1;
  const uint64_t along = columns > shape[shape.size() - 2] ? column : row;
  return std::popcount(along % 4 & others) % 2 == 0 ? 1.0F : -1.0F;
}

// The tensors, steps, params and gradients.
GoldenSteps Begin() {
  GoldenSteps golden;
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const Tensor& tensor : GoldenTensors()) shapes.emplace_back(tensor.name, tensor.shape);
  golden.layout = Layout(std::move(shapes));
  golden.steps.assign(std::begin(kSteps), std::end(kSteps));
  golden.num_steps = kNumSteps;
  const int64_t size = golden.layout.size();
  golden.params.resize(size);
  Normal(FoldIn(KeyFromSeed(0), 0), golden.params);
  golden.gradients.resize(size * std::ssize(golden.steps));
  Normal(FoldIn(KeyFromSeed(0), 1), golden.gradients);
  for (size_t i = 0; i < GoldenTensors().size(); ++i) {
    const Tensor& tensor = GoldenTensors()[i];
    const LayoutEntry& entry = golden.layout.entries()[i];
    for (int64_t k = 0; k < entry.size; ++k) golden.params[entry.offset + k] *= tensor.params;
    float* gradients = &golden.gradients[entry.offset * std::ssize(golden.steps)];
    for (int64_t k = 0; k < entry.size * std::ssize(golden.steps); ++k) {
      constexpr float kGrades[] = {1, .1F, .01F};
      const int64_t element = k % entry.size;
      const bool last = k / entry.size + 1 == std::ssize(golden.steps);
      gradients[k] = tensor.gradients * (last ? tensor.last : 1) *
                     (tensor.graded ? kGrades[element % 3] : 1) *
                     (Sign(entry.shape, element) + .3F * gradients[k]);
    }
  }
  return golden;
}

// `x` moved by up to one unit in the last place, as `bits` say.
float Moved(float x, uint32_t bits) {
  if (x == 0 || !std::isfinite(x)) return x;
  // Neighbours in the order of sizes are neighbours as integers: std::nextafter, in a tenth of its
  // time.
  const auto representation = std::bit_cast<uint32_t>(x);
  switch (bits % 3) {
    case 0:
      return std::bit_cast<float>(representation - 1);
    case 1:
      return std::bit_cast<float>(representation + 1);
    default:
      return x;
  }
}

void Move(Key key, std::span<float> row) {
  std::vector<uint32_t> bits(row.size());
  Bits(key, bits);
  for (size_t i = 0; i < row.size(); ++i) row[i] = Moved(row[i], bits[i]);
}

// Those of an update, a row of the layout.
std::vector<float> GradientOf(const GoldenSteps& golden, std::span<const float> gradients,
                              int64_t update) {
  std::vector<float> gradient(static_cast<size_t>(golden.layout.size()));
  for (const LayoutEntry& entry : golden.layout.entries()) {
    std::copy_n(gradients.begin() + entry.offset * std::ssize(golden.steps) + update * entry.size,
                entry.size, gradient.begin() + entry.offset);
  }
  return gradient;
}

// Called before every update.
using BeforeUpdate =
    std::function<void(int64_t update, std::span<float> params, std::span<float> state)>;

// The params after the golden steps.
std::vector<float> Run(const GoldenSteps& golden, const LearnedOptimizer& optimizer,
                       std::span<const float> theta, std::span<const float> gradients,
                       const BeforeUpdate& before = nullptr) {
  const auto rule = optimizer.Bind(golden.layout, theta);
  std::vector<float> params = golden.params;
  std::vector<float> state(static_cast<size_t>(rule->state_layout().size()));
  Workspace scratch;
  StepInfo info{.step = 0, .num_steps = golden.num_steps, .loss = 0};
  rule->InitState(info, params, state);
  for (int64_t update = 0; update < std::ssize(golden.steps); ++update) {
    if (before) before(update, params, state);
    info.step = golden.steps[update];
    info.loss = golden.losses.empty() ? 0 : golden.losses[update];
    rule->Update(info, GradientOf(golden, gradients, update), params, state, scratch);
  }
  return params;
}

// The params after the golden steps of a run whose numbers are moved.
std::vector<float> RunMoved(const GoldenSteps& golden, const LearnedOptimizer& optimizer,
                            std::span<const float> theta, Key key) {
  std::vector<float> moved_theta(theta.begin(), theta.end());
  Move(FoldIn(key, 0), moved_theta);
  std::vector<float> gradients = golden.gradients;
  Move(FoldIn(key, 1), gradients);
  return Run(golden, optimizer, moved_theta, gradients,
             [&](int64_t update, std::span<float> params, std::span<float> state) {
               Move(FoldIn(FoldIn(key, 2), update), params);
               Move(FoldIn(FoldIn(key, 3), update), state);
             });
}

// The results of every reader that the program has, an instruction set each, with its name.
void ForEveryReader(
    const GoldenSteps& golden, const LearnedOptimizer& optimizer, std::span<const float> theta,
    const std::function<void(const std::string& reader, std::span<const float> result)>& body) {
  for (const std::string& isa : SupportedIsas()) {
    const IsaScope scope(isa);
    body(isa, Run(golden, optimizer, theta, golden.gradients));
  }
}

double Deviation(float wanted, float got) {
  if (wanted == got || (std::isnan(wanted) && std::isnan(got))) return 0;
  if (std::isnan(wanted) || std::isnan(got)) return std::numeric_limits<double>::infinity();
  return std::abs(double{wanted} - double{got});
}

double Greatest(std::span<const float> values) {
  double greatest = 0;
  for (const float value : values) greatest = std::max(greatest, std::abs(double{value}));
  return greatest;
}

double GreatestDeviation(std::span<const float> a, std::span<const float> b) {
  double greatest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    greatest = std::max(greatest, Deviation(a[i], b[i]));
  }
  return greatest;
}

// The layout, without a prefix, of all arrays named `prefix`..., in the order of their names.
Layout LayoutOf(const NamedArrays& arrays, std::string_view prefix) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const auto& [name, array] : arrays.Extract(prefix)) {
    tensors.emplace_back(name, array.shape());
  }
  return Layout(std::move(tensors));
}

std::span<const float> Of(const LayoutEntry& entry, std::span<const float> row) {
  return row.subspan(entry.offset, entry.size);
}

// What the files have that were written before there were limits.
void AddOldLimits(GoldenSteps* golden) {
  for (const LayoutEntry& entry : golden->layout.entries()) {
    const auto result = Of(entry, golden->result);
    const double moved = GreatestDeviation(result, Of(entry, golden->params));
    const double limit = kOldOfNumber * (1 + Greatest(result)) + kOldOfMovement * moved;
    // A result that is not finite is compared as it is.
    golden->limits.push_back(std::isfinite(limit) ? static_cast<float>(limit) : 0.0F);
  }
}

// Result and limits, from all else.
void Measure(const LearnedOptimizer& made, std::span<const float> theta, GoldenSteps* golden) {
  golden->result = Run(*golden, made, theta, golden->gradients);
  std::vector<double> greatest(golden->layout.entries().size(), 0.0);
  const auto measure = [&](std::span<const float> result) {
    for (size_t tensor = 0; tensor < greatest.size(); ++tensor) {
      const LayoutEntry& entry = golden->layout.entries()[tensor];
      greatest[tensor] = std::max(greatest[tensor],
                                  GreatestDeviation(Of(entry, golden->result), Of(entry, result)));
    }
  };
  ForEveryReader(*golden, made, theta,
                 [&](const std::string&, std::span<const float> result) { measure(result); });
  for (int draw = 0; draw < kDraws; ++draw) {
    measure(RunMoved(*golden, made, theta, FoldIn(KeyFromSeed(1), draw)));
  }
  golden->limits.clear();
  const double of_movement =
      made.precision() == Precision::kBfloat16 ? kLeastOfMovementInBfloat16 : kLeastOfMovement;
  for (size_t tensor = 0; tensor < greatest.size(); ++tensor) {
    const LayoutEntry& entry = golden->layout.entries()[tensor];
    const auto result = Of(entry, golden->result);
    const double moved = GreatestDeviation(result, Of(entry, golden->params));
    const double least = of_movement * moved + kLeastOfNumber * Greatest(result);
    const double limit = std::max(kMargin * greatest[tensor], std::isfinite(least) ? least : 0.0);
    golden->limits.push_back(static_cast<float>(limit));
  }
}

// Steps that are much smaller than the params are lost in their rounding, as those of Celo, in
// proportion to the params' size. Such tensors begin at 0, but for the largest, which shows that
// the size counts. Returns whether there are any.
bool BeginAtZeroWhereStepsAreLost(GoldenSteps* golden) {
  bool lost = false;
  for (size_t tensor = 0; tensor < golden->limits.size(); ++tensor) {
    const LayoutEntry& entry = golden->layout.entries()[tensor];
    const Tensor& made = GoldenTensors()[tensor];
    const double moved = GreatestDeviation(Of(entry, golden->result), Of(entry, golden->params));
    if (made.params >= 1 || made.gradients == 0 || moved >= kLostBelow * golden->limits[tensor])
      continue;
    std::fill_n(golden->params.begin() + entry.offset, entry.size, 0.0F);
    lost = true;
  }
  return lost;
}

}  // namespace

std::string GoldenDeviation::Describe() const {
  return fmt::format(
      "the optimizer does not do what it did when the file was written: golden/result/{} at {}: {} "
      "wanted, got {} on {}, which is {:.3g} off; accepted are {:.3g}",
      tensor, element, wanted, got, reader, deviation, limit);
}

GoldenSteps MeasureGoldenSteps(const Config& optimizer, std::span<const float> theta) {
  GoldenSteps golden = Begin();
  const auto made = OptimizerRegistry().Make(optimizer);
  if (made->needs_loss()) golden.losses.assign(std::begin(kLosses), std::end(kLosses));
  Measure(*made, theta, &golden);
  // A limit in bfloat16 says nothing of what float32 loses.
  if (made->precision() == Precision::kFloat32 && BeginAtZeroWhereStepsAreLost(&golden)) {
    Measure(*made, theta, &golden);
  }
  return golden;
}

std::string CoarseLimits(const GoldenSteps& golden) {
  std::vector<std::string> coarse;
  for (size_t tensor = 0; tensor < golden.limits.size(); ++tensor) {
    const LayoutEntry& entry = golden.layout.entries()[tensor];
    if (golden.limits[tensor] > kSharpLimit * (1 + Greatest(Of(entry, golden.result)))) {
      coarse.push_back(fmt::format("{} {:.2g}", entry.name, golden.limits[tensor]));
    }
  }
  return fmt::format("{}", fmt::join(coarse, ", "));
}

std::string UncheckedTensors(const GoldenSteps& golden) {
  std::vector<std::string> unchecked;
  for (size_t tensor = 0; tensor < golden.limits.size(); ++tensor) {
    if (std::isinf(golden.limits[tensor]))
      unchecked.push_back(golden.layout.entries()[tensor].name);
  }
  return fmt::format("{}", fmt::join(unchecked, ", "));
}

void PutGoldenSteps(const GoldenSteps& golden, ArrayFile* file) {
  const Layout gradients = WithUpdates(golden.layout, std::ssize(golden.steps));
  file->arrays.Merge("", ArraysFromRow(golden.layout, golden.params, "golden/params/"));
  file->arrays.Merge("", ArraysFromRow(gradients, golden.gradients, "golden/gradients/"));
  file->arrays.Merge("", ArraysFromRow(golden.layout, golden.result, "golden/result/"));
  for (size_t tensor = 0; tensor < golden.limits.size(); ++tensor) {
    file->arrays.Set("golden/limit/" + golden.layout.entries()[tensor].name,
                     Array::Of<float>({1}, std::span(&golden.limits[tensor], 1)));
  }
  // Whole numbers below 2^24, which float32 has.
  const std::vector<float> steps(golden.steps.begin(), golden.steps.end());
  file->arrays.Set("golden/steps", Array::Of<float>({std::ssize(steps)}, std::span(steps)));
  const auto num_steps = static_cast<float>(golden.num_steps);
  file->arrays.Set("golden/num_steps", Array::Of<float>({1}, std::span(&num_steps, 1)));
  if (!golden.losses.empty()) {
    file->arrays.Set("golden/losses",
                     Array::Of<float>({std::ssize(golden.losses)}, std::span(golden.losses)));
  }
  if (const std::string coarse = CoarseLimits(golden); !coarse.empty()) {
    file->metadata["golden_coarse"] = coarse;
  }
}

std::optional<GoldenSteps> TakeGoldenSteps(const ArrayFile& file, const std::string& path) {
  GoldenSteps golden;
  golden.layout = LayoutOf(file.arrays, "golden/params/");
  const auto require = [&](bool condition, const std::string& what) {
    Require(condition, "{}: the golden steps are damaged: {}", path, what);
  };
  if (golden.layout.size() == 0) {
    require(file.arrays.Extract("golden/").size() == 0, "golden/params is missing");
    return std::nullopt;
  }
  const auto row = [&](const Layout& of, std::string_view prefix) {
    std::vector<float> values(static_cast<size_t>(of.size()));
    try {
      RowFromArrays(of, file.arrays, prefix, values);
    } catch (const Error& error) {
      require(false, error.what());
    }
    return values;
  };
  const bool has_limits = file.arrays.Contains("golden/steps");
  if (has_limits) {
    const Array& steps = file.arrays.At("golden/steps");
    require(steps.dtype() == DType::kFloat32 && steps.shape().size() == 1 && steps.size() > 0,
            "golden/steps must be F32 of shape [updates]");
    const std::vector<float> num_steps = row(Layout({{"num_steps", {1}}}), "golden/");
    for (const float step : steps.As<float>()) {
      require(
          step >= 0 && step < num_steps[0] && num_steps[0] <= kLargestStep &&
              step == std::floor(step) && num_steps[0] == std::floor(num_steps[0]),
          fmt::format("golden/steps and golden/num_steps must be whole numbers, the steps below "
                      "num_steps, got {} and {}",
                      step, num_steps[0]));
      golden.steps.push_back(static_cast<int64_t>(step));
    }
    golden.num_steps = static_cast<int64_t>(num_steps[0]);
    if (file.arrays.Contains("golden/losses")) {
      golden.losses = row(Layout({{"losses", {std::ssize(golden.steps)}}}), "golden/");
    }
  } else {
    for (int64_t step = 0; step < kOldSteps; ++step) golden.steps.push_back(step);
    golden.num_steps = kOldSteps;
  }
  golden.params = row(golden.layout, "golden/params/");
  golden.result = row(golden.layout, "golden/result/");
  golden.gradients = row(WithUpdates(golden.layout, std::ssize(golden.steps)), "golden/gradients/");
  if (!has_limits) {
    AddOldLimits(&golden);
    return golden;
  }
  std::vector<std::pair<std::string, Shape>> limits;
  for (const LayoutEntry& entry : golden.layout.entries()) limits.push_back({entry.name, {1}});
  golden.limits = row(Layout(std::move(limits)), "golden/limit/");
  for (const float limit : golden.limits) {
    require(limit >= 0, fmt::format("a limit must be a number of at least 0, got {}", limit));
  }
  return golden;
}

GoldenDeviation CompareGoldenResult(const GoldenSteps& golden, std::string reader,
                                    std::span<const float> result) {
  GoldenDeviation worst;
  double worst_share = -1;
  for (size_t tensor = 0; tensor < golden.layout.entries().size(); ++tensor) {
    const LayoutEntry& entry = golden.layout.entries()[tensor];
    const double limit = golden.limits[tensor];
    for (int64_t i = 0; i < entry.size; ++i) {
      const float wanted = golden.result[entry.offset + i];
      const float got = result[entry.offset + i];
      const double deviation = Deviation(wanted, got);
      const bool within = deviation <= limit;
      const double share = within ? (deviation == 0 || std::isinf(limit) ? 0 : deviation / limit)
                                  : std::numeric_limits<double>::infinity();
      if (share > worst_share || (!within && deviation > worst.deviation)) {
        worst_share = share;
        worst = {.reader = {},
                 .tensor = entry.name,
                 .element = i,
                 .wanted = wanted,
                 .got = got,
                 .deviation = deviation,
                 .limit = limit,
                 .within = within};
      }
    }
  }
  worst.reader = std::move(reader);
  return worst;
}

std::vector<float> GoldenGradient(const GoldenSteps& golden, int64_t update) {
  return GradientOf(golden, golden.gradients, update);
}

GoldenDeviation RepeatGoldenSteps(const GoldenSteps& golden, const LearnedOptimizer& optimizer,
                                  std::span<const float> theta) {
  return CompareGoldenResult(golden, CurrentIsa(), Run(golden, optimizer, theta, golden.gradients));
}

std::vector<GoldenDeviation> RepeatGoldenStepsEverywhere(const GoldenSteps& golden,
                                                         const Config& optimizer,
                                                         std::span<const float> theta) {
  std::vector<GoldenDeviation> deviations;
  ForEveryReader(golden, *OptimizerRegistry().Make(optimizer), theta,
                 [&](const std::string& reader, std::span<const float> result) {
                   deviations.push_back(CompareGoldenResult(golden, reader, result));
                 });
  return deviations;
}

}  // namespace lopt
