#include "lopt/lopt/celo/celo_scheduler.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/network/plain_network.h"

namespace lopt {
namespace {

constexpr int kLossScales = CeloLosses::kScales;
constexpr int64_t kInner = 64;    // width of linear_1 and linear_2
static_assert(kInner % 16 == 0);  // so their groups have no padding, as the kernel relies on
constexpr int64_t kGates = 4;

constexpr float kProgressCenters[CeloScheduler::kProgress] = {.03f, .1f, .2f, .4f, .6f,
                                                              .8f,  .9f, 1,   1.1f};
constexpr double kFirstMinimum = 1e12;

std::array<double, kLossScales> Joined(std::span<const float> pairs) {
  std::array<double, kLossScales> values = {};
  for (int k = 0; k < kLossScales; ++k) values[k] = double{pairs[2 * k]} + double{pairs[2 * k + 1]};
  return values;
}

void Split(const std::array<double, kLossScales>& values, std::span<float> pairs) {
  for (int k = 0; k < kLossScales; ++k) {
    const auto nearest = static_cast<float>(values[k]);
    const double rest = values[k] - double{nearest};
    pairs[2 * k] = nearest;
    pairs[2 * k + 1] = std::isfinite(nearest) ? static_cast<float>(rest) : 0;
  }
}

std::vector<float> TensorOf(const Layout& layout, const std::string& name,
                            std::span<const float> row) {
  const LayoutEntry& entry = layout.Find(name);
  const std::span<const float> values = row.subspan(entry.offset, entry.size);
  return {values.begin(), values.end()};
}

SchedulerLayers SchedulerLayersOf(int64_t lstm_size, const Layout& layout,
                                  std::span<const float> theta) {
  // Outputs of a layer, from `first` on, of `out`.
  const auto group = [&](const std::string& name, int64_t out, int64_t first) {
    const float* weights = theta.data() + layout.Find("rnn_params/" + name + "/w").offset;
    const float* bias = theta.data() + layout.Find("rnn_params/" + name + "/b").offset;
    return PackedLinear::Group{weights + first, out, bias + first};
  };
  const PackedLinear::Group inputs[] = {group("linear_1", kInner, 0), group("linear_2", kInner, 0)};
  std::array<PackedLinear::Group, kGates> gates;
  for (int64_t k = 0; k < kGates; ++k) {
    gates[k] = group("rnn/linear", kGates * lstm_size, k * lstm_size);
  }
  const PackedLinear::Group output = group("step_size", 1, 0);
  return {.inputs = PackedLinear(CeloScheduler::kInputs, kInner, inputs),
          .gates = PackedLinear(kInner + lstm_size, lstm_size, gates),
          .output = std::vector<float>(output.weights, output.weights + lstm_size),
          .output_bias = *output.bias};
}

}  // namespace

std::array<double, kLossScales> CeloLosses::Decays(int64_t num_steps) {
  std::array<double, kScales> decays = {};
  const double logarithm = std::log10(static_cast<double>(num_steps));
  for (int k = 0; k < kScales; ++k) {
    const double scale = std::pow(10.0, 1 + (logarithm - 1) * k / kFeatures);
    decays[k] = static_cast<float>(std::exp(-1 / scale));
  }
  return decays;
}

namespace {

// The decays of a run's length, and their logarithms.
struct LossDecays {
  std::optional<int64_t> num_steps = {};
  std::array<double, kLossScales> decays = {};
  std::array<double, kLossScales> logarithms = {};
};

// A run asks for the same ones at every step: the thread keeps the last.
const LossDecays& DecaysOf(int64_t num_steps) {
  thread_local LossDecays last;
  if (last.num_steps != num_steps) {
    last.decays = CeloLosses::Decays(num_steps);
    std::ranges::transform(last.decays, last.logarithms.begin(),
                           [](double decay) { return std::log1p(decay - 1); });
    last.num_steps = num_steps;
  }
  return last;
}

}  // namespace

std::array<float, CeloLosses::kFeatures> CeloLosses::Take(double loss, int64_t step,
                                                          int64_t num_steps) {
  const auto& [length, decays, logarithms] = DecaysOf(num_steps);
  const auto count = static_cast<double>(step + 1);
  std::array<double, kScales> part = {};  // 1 - d^n
  double largest = 0;
  for (int k = 0; k < kScales; ++k) {
    part[k] = -std::expm1(count * logarithms[k]);
    const double mean = means[k] / part[k];
    largest = k == 0 ? mean : std::max(largest, mean);
  }
  const double limited = step == 0 ? loss : std::min(loss, 2 * std::abs(largest));
  std::array<double, kScales> corrected = {};
  for (int k = 0; k < kScales; ++k) {
    means[k] = decays[k] * means[k] + (1 - decays[k]) * limited;
    corrected[k] = means[k] / part[k];
    minima[k] = std::min(minima[k], corrected[k]);
  }
  std::array<float, kFeatures> features = {};
  if (step < 2) return features;
  for (int k = 0; k < kFeatures; ++k) {
    const double range = std::max(1e-8, corrected[k + 1] - minima[k]);
    features[k] = static_cast<float>(WithinLimit((corrected[k] - minima[k]) / range - 1, 1.0));
  }
  return features;
}

CeloScheduler::Tensors CeloScheduler::ThetaTensors(int64_t lstm_size, bool controls) {
  Tensors tensors = {{"lstm_init_state/hidden", {1, lstm_size}},
                     {"lstm_init_state/cell", {1, lstm_size}}};
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    tensors.emplace_back("rnn_params/" + name + "/w", Shape{in, out});
    tensors.emplace_back("rnn_params/" + name + "/b", Shape{out});
  };
  for (const char* name : {"linear", "linear_1", "linear_2"}) add(name, kInputs, kInner);
  add("rnn/linear", kInner + lstm_size, kGates * lstm_size);
  if (controls) add("rnn_to_controls", lstm_size, 1);
  add("step_size", lstm_size, 1);
  return tensors;
}

CeloScheduler::Tensors CeloScheduler::StateTensors(int64_t lstm_size) {
  return {{"hidden", {lstm_size}},
          {"cell", {lstm_size}},
          {"loss_means", {kLossScales, 2}},
          {"loss_minima", {kLossScales, 2}}};
}

int64_t CeloScheduler::StateSize(int64_t lstm_size) {
  return 2 * lstm_size + int64_t{2} * 2 * kLossScales;
}

void CeloScheduler::InitTheta(Key key, const Layout& layout, std::span<float> theta) {
  uint64_t draw = 0;
  for (const LayoutEntry& entry : layout.entries()) {
    if (!entry.name.starts_with("rnn_params/") || !entry.name.ends_with("/w")) continue;
    InitLayer(FoldIn(key, draw++), entry.shape[0], theta.subspan(entry.offset, entry.size));
  }
}

CeloScheduler::CeloScheduler(int64_t lstm_size, const Layout& layout, std::span<const float> theta)
    : size_(static_cast<size_t>(lstm_size)),
      hidden_(TensorOf(layout, "lstm_init_state/hidden", theta)),
      cell_(TensorOf(layout, "lstm_init_state/cell", theta)),
      layers_(SchedulerLayersOf(lstm_size, layout, theta)) {}

void CeloScheduler::Begin(std::span<float> state) const {
  std::ranges::copy(hidden_, state.begin());
  std::ranges::copy(cell_, state.begin() + std::ssize(hidden_));
  CeloLosses losses;
  losses.minima.fill(kFirstMinimum);
  Split(losses.means, state.subspan(2 * size_));
  Split(losses.minima, state.subspan(2 * size_ + 2 * kLossScales));
}

std::array<float, CeloScheduler::kInputs> CeloScheduler::Inputs(const StepInfo& info,
                                                                std::span<float> state) const {
  if (info.step == 0) Begin(state);
  std::array<float, kInputs> inputs = {};
  const float progress = static_cast<float>(info.step) / static_cast<float>(info.num_steps);
  for (int i = 0; i < kProgress; ++i) {
    inputs[i] = std::tanh(10 * (progress - kProgressCenters[i]));
  }
  const std::span<float> means = state.subspan(2 * size_, size_t{2} * kLossScales);
  const std::span<float> minima = state.subspan(2 * size_ + 2 * kLossScales);
  CeloLosses losses = {.means = Joined(means), .minima = Joined(minima)};
  std::ranges::copy(losses.Take(double{info.loss}, info.step, info.num_steps),
                    inputs.begin() + kProgress);
  Split(losses.means, means);
  Split(losses.minima, minima);
  return inputs;
}

float CeloScheduler::Step(const StepInfo& info, std::span<float> state, Workspace& scratch) const {
  const std::array<float, kInputs> inputs = Inputs(info, state);
  return FastSchedulerStep(layers_, inputs, state.first(size_), state.subspan(size_, size_),
                           scratch);
}

}  // namespace lopt
