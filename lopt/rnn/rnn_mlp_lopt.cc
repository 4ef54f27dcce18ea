#include "lopt/lopt/rnn/rnn_mlp_lopt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/network/plain_network.h"

namespace lopt {
namespace {

using Options = RNNMLPLOptOptions;
using Rnn = RNNMLPLOpt;

constexpr int kRnnDecays = Rnn::kDecayCount;
constexpr float kRnnNormalizerEpsilon = 1e-5f;
constexpr float kLogEpsilon = 1e-8f;  // added to what a logarithm is taken of
// Decays, and 1 minus them, each rounded by itself.
constexpr float kClipDecay = 0.99f;
constexpr float kClipRest = 0.01f;
constexpr float kLossDecay = 0.9f;
constexpr float kLossRest = 0.1f;

// Inputs of the two networks.
int64_t LstmInputSize(const Options& o) {
  return o.from_lstm_size + o.from_mlp_size + Rnn::kTensorStatistics;
}
int64_t MlpInputSize(const Options& o) {
  return Rnn::kNormalized + MLPLOpt::kTimes + 3 + o.lstm_to_ff;
}

// A layer or network of theta: the names of its tensors but "/w" and "/b", and its sizes.
struct Part {
  std::string name;
  int64_t in;
  int64_t out;
};

Part LstmPart(const Options& o) {
  return {"rnn_params/rnn/linear", LstmInputSize(o) + o.lstm_hidden_size, 4 * o.lstm_hidden_size};
}
Part ToMlpPart(const Options& o) {
  return {"rnn_to_ff_params/rnn_to_ff", o.lstm_hidden_size, o.lstm_to_ff};
}
Part ToLstmPart(const Options& o) {
  return {"rnn_to_in_params/rnn_to_in", o.lstm_hidden_size, o.from_lstm_size};
}
std::vector<Part> MlpParts(const Options& o) {
  std::vector<Part> parts;
  int64_t in = MlpInputSize(o);
  for (int64_t l = 0; l <= o.hidden_layers; ++l) {
    const int64_t out = l == o.hidden_layers ? 2 + o.from_mlp_size : o.hidden_size;
    parts.push_back({"ffmod_params/mlp/linear_" + std::to_string(l), in, out});
    in = out;
  }
  return parts;
}

Layout RnnThetaLayout(const Options& o) {
  std::vector<Part> parts = {LstmPart(o), ToMlpPart(o), ToLstmPart(o)};
  for (Part& part : MlpParts(o)) parts.push_back(std::move(part));
  std::vector<std::pair<std::string, Shape>> tensors = {
      {"initial_from_lstm", {o.from_lstm_size}},
      {"initial_from_mlp", {o.from_mlp_size}},
      {"lstm_init_state/hidden", {1, o.lstm_hidden_size}},
      {"lstm_init_state/cell", {1, o.lstm_hidden_size}}};
  for (const Part& part : parts) {
    tensors.emplace_back(part.name + "/w", Shape{part.in, part.out});
    tensors.emplace_back(part.name + "/b", Shape{part.out});
  }
  return Layout(std::move(tensors));
}

Layout RnnStateLayout(const Options& o, const Layout& params) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : params.entries()) {
    if (entry.size == 0) continue;
    Shape shape = entry.shape;
    shape.push_back(kRnnDecays);
    tensors.emplace_back("momenta/" + entry.name, shape);
    tensors.emplace_back("rms/" + entry.name, shape);
    tensors.emplace_back("from_mlp/" + entry.name, Shape{o.from_mlp_size});
    tensors.emplace_back("hidden/" + entry.name, Shape{o.lstm_hidden_size});
    tensors.emplace_back("cell/" + entry.name, Shape{o.lstm_hidden_size});
  }
  tensors.emplace_back("from_lstm", Shape{o.from_lstm_size});
  tensors.emplace_back("gradient_scale", Shape{});
  tensors.emplace_back("loss_mean", Shape{});
  tensors.emplace_back("loss_variance", Shape{});
  return Layout(std::move(tensors));
}

template <class T>
std::span<T> Of(const LayoutEntry& entry, std::span<T> row) {
  return row.subspan(entry.offset, entry.size);
}

std::span<const float> From(const Layout& layout, const std::string& name,
                            std::span<const float> row) {
  return row.subspan(layout.Find(name).offset);
}

PlainNetwork LinearPart(const Layout& layout, const Part& part, std::span<const float> theta) {
  return {part.in, part.out, 0, part.out, From(layout, part.name + "/w", theta)};
}

float Mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value};
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

// Mean of (x - center)^2.
float MeanSquareFrom(std::span<const float> values, float center) {
  double sum = 0;
  for (const float value : values) sum += double{(value - center) * (value - center)};
  return static_cast<float>(sum / static_cast<double>(values.size()));
}

float EuclideanNorm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * double{value};
  return static_cast<float>(std::min(std::sqrt(sum), double{std::numeric_limits<float>::max()}));
}

float ClipTo(float x, float limit) { return std::min(std::max(x, -limit), limit); }
float LogMagnitude(float x) { return ClipTo(std::log(kLogEpsilon + std::abs(x)), 5); }
float Sign(float x) { return static_cast<float>((x > 0) - (x < 0)); }
float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// 1 - decay^count.
float BiasCorrection(float decay, int64_t count) {
  return 1 - std::pow(decay, static_cast<float>(count));
}

// A tensor of params and its parts of the state.
struct TensorState {
  LayoutEntry params;
  LayoutEntry momenta;
  LayoutEntry rms;
  LayoutEntry from_mlp;
  LayoutEntry hidden;
  LayoutEntry cell;
};

class RnnMlpRule : public UpdateRule {
 public:
  RnnMlpRule(const Options& options, const Layout& layout, const Layout& params,
             std::span<const float> theta)
      : UpdateRule(params, RnnStateLayout(options, params)),
        options_(options),
        exp_mult_(static_cast<float>(options.exp_mult)),
        step_mult_(static_cast<float>(options.step_mult)),
        initial_from_lstm_(Copy(layout, "initial_from_lstm", theta)),
        initial_from_mlp_(Copy(layout, "initial_from_mlp", theta)),
        initial_hidden_(Copy(layout, "lstm_init_state/hidden", theta)),
        initial_cell_(Copy(layout, "lstm_init_state/cell", theta)),
        lstm_(LinearPart(layout, LstmPart(options), theta)),
        to_mlp_(LinearPart(layout, ToMlpPart(options), theta)),
        to_lstm_(LinearPart(layout, ToLstmPart(options), theta)),
        mlp_(MlpInputSize(options), options.hidden_size, options.hidden_layers,
             2 + options.from_mlp_size, From(layout, "ffmod_params/mlp/linear_0/w", theta)),
        from_lstm_(state_layout().Find("from_lstm")),
        gradient_scale_(state_layout().Find("gradient_scale").offset),
        loss_mean_(state_layout().Find("loss_mean").offset),
        loss_variance_(state_layout().Find("loss_variance").offset) {
    for (const LayoutEntry& entry : params.entries()) {
      if (entry.size == 0) continue;
      const auto find = [&](const char* what) { return state_layout().Find(what + entry.name); };
      tensors_.push_back({.params = entry,
                          .momenta = find("momenta/"),
                          .rms = find("rms/"),
                          .from_mlp = find("from_mlp/"),
                          .hidden = find("hidden/"),
                          .cell = find("cell/")});
    }
  }

 private:
  static std::vector<float> Copy(const Layout& layout, const char* name,
                                 std::span<const float> theta) {
    const std::span<const float> values = Of(layout.Find(name), theta);
    return {values.begin(), values.end()};
  }

  void DoInitState(const StepInfo&, std::span<const float>, std::span<float> state) const override {
    std::fill(state.begin(), state.end(), 0.0f);
    for (const TensorState& tensor : tensors_) {
      std::ranges::copy(initial_from_mlp_, Of(tensor.from_mlp, state).begin());
      std::ranges::copy(initial_hidden_, Of(tensor.hidden, state).begin());
      std::ranges::copy(initial_cell_, Of(tensor.cell, state).begin());
    }
    std::ranges::copy(initial_from_lstm_, Of(from_lstm_, state).begin());
    state[gradient_scale_] = kClipRest;
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    if (tensors_.empty()) return;
    const Workspace::Frame frame(scratch);
    const std::span<float> g = scratch.Take<float>(std::ssize(gradient));
    ClipGradient(info.step, gradient, g, &state[gradient_scale_]);
    const auto [loss, no_loss] = LossFeatures(info, &state[loss_mean_], &state[loss_variance_]);
    for (const TensorState& tensor : tensors_) Accumulate(tensor, g, state);

    // All tensors see the same numbers of the step before.
    const int64_t widest =
        std::max({lstm_.width(), to_mlp_.width(), to_lstm_.width(), mlp_.width()});
    const std::span<float> x = scratch.Take<float>(widest);
    const std::span<float> y = scratch.Take<float>(widest);
    const std::span<float> to_mlp = scratch.Take<float>(options_.lstm_to_ff);
    const std::span<double> to_lstm = scratch.Take<double>(options_.from_lstm_size);
    std::fill(to_lstm.begin(), to_lstm.end(), 0.0);
    for (const TensorState& tensor : tensors_) {
      LstmInputs(tensor, g, params, state, {loss, no_loss}, x);
      RunLstm(x, y, Of(tensor.hidden, state), Of(tensor.cell, state));
      const std::span<const float> hidden = Of(tensor.hidden, state);
      std::ranges::copy(hidden, x.begin());
      const std::span<const float> said = to_lstm_.Run(x, y);
      for (size_t i = 0; i < to_lstm.size(); ++i) to_lstm[i] += double{said[i]};
      std::ranges::copy(hidden, x.begin());
      std::ranges::copy(to_mlp_.Run(x, y), to_mlp.begin());
      Step(tensor, info.step, g, to_mlp, params, state, x, y, scratch);
    }
    const std::span<float> from_lstm = Of(from_lstm_, state);
    for (size_t i = 0; i < to_lstm.size(); ++i) {
      from_lstm[i] = static_cast<float>(to_lstm[i] / static_cast<double>(tensors_.size()));
    }
  }

  void ClipGradient(int64_t step, std::span<const float> gradient, std::span<float> g,
                    float* scale) const {
    const float limit = *scale / BiasCorrection(kClipDecay, step + 1) * 10;
    double squares = 0;
    for (const TensorState& tensor : tensors_) {
      const std::span<float> to = Of(tensor.params, g);
      std::ranges::transform(Of(tensor.params, gradient), to.begin(),
                             [limit](float x) { return ClipTo(x, limit); });
      squares += double{MeanSquareFrom(to, 0)};
    }
    const auto mean = static_cast<float>(squares / static_cast<double>(tensors_.size()));
    *scale = *scale * kClipDecay + std::sqrt(1e-8f + mean) * kClipRest;
  }

  // Of the loss, and of a validation loss of 0.
  static std::pair<float, float> LossFeatures(const StepInfo& info, float* mean, float* variance) {
    *mean = kLossDecay * *mean + kLossRest * info.loss;
    const float away = *mean - info.loss;
    *variance = kLossDecay * *variance + kLossRest * BoundedSquare(away);
    const float correction = 1 / (BiasCorrection(kLossDecay, info.step + 1) + 1e-8f);
    const float scale = 1 / std::sqrt(*variance * correction + 1e-8f);
    const auto feature = [&](float loss) { return ClipTo((loss - *mean * correction) * scale, 5); };
    return {feature(info.loss), feature(0)};
  }

  static void Accumulate(const TensorState& tensor, std::span<const float> gradient,
                         std::span<float> state) {
    const std::span<const float> g = Of(tensor.params, gradient);
    const std::span<float> m = Of(tensor.momenta, state);
    const std::span<float> r = Of(tensor.rms, state);
    for (size_t i = 0; i < m.size(); ++i) {
      const float decay = Rnn::kDecays[i % kRnnDecays];
      const float x = g[i / kRnnDecays];
      m[i] = decay * m[i] + (1 - decay) * x;
      r[i] = decay * r[i] + (1 - decay) * BoundedSquare(x);
    }
  }

  // What the LSTM gets: what it and the network said, statistics, and its hidden state.
  void LstmInputs(const TensorState& tensor, std::span<const float> gradient,
                  std::span<const float> params, std::span<const float> state,
                  std::pair<float, float> losses, std::span<float> x) const {
    const std::span<const float> m = Of(tensor.momenta, state);
    const std::span<const float> r = Of(tensor.rms, state);
    const std::span<const float> v = Of(tensor.params, params);
    const float mean_m = Mean(m);
    const float mean_r = Mean(r);
    const float mean_v = Mean(v);
    float* next = x.data();
    const auto put_all = [&](std::span<const float> values) {
      next = std::ranges::copy(values, next).out;
    };
    const auto put = [&](float value) { *next++ = value; };
    put_all(Of(from_lstm_, state));
    put_all(Of(tensor.from_mlp, state));
    put(LogMagnitude(EuclideanNorm(Of(tensor.params, gradient))));
    put(tensor.params.shape.empty() ? 1.0f : -1.0f);
    put(LogMagnitude(mean_m));
    put(Sign(mean_m));
    put(LogMagnitude(mean_r));
    put(Sign(mean_r));
    put(LogMagnitude(mean_v));
    put(Sign(mean_v));
    put(LogMagnitude(EuclideanNorm(v)));
    for (size_t axis = 0; axis < 4; ++axis) {
      const Shape& shape = tensor.params.shape;
      put(std::log(static_cast<float>(axis < shape.size() ? shape[axis] : 1)) - 1);
    }
    put(losses.first);
    put(losses.second);
    put(LogMagnitude(MeanSquareFrom(m, mean_m)));
    put(LogMagnitude(MeanSquareFrom(r, mean_r)));
    put(LogMagnitude(MeanSquareFrom(v, mean_v)));
    put_all(Of(tensor.hidden, state));
  }

  void RunLstm(std::span<float> x, std::span<float> y, std::span<float> hidden,
               std::span<float> cell) const {
    const std::span<const float> gates = lstm_.Run(x, y);
    const size_t n = hidden.size();
    for (size_t i = 0; i < n; ++i) {
      const float input = Sigmoid(gates[i]);
      const float forget = Sigmoid(gates[2 * n + i] + 1);
      cell[i] = forget * cell[i] + input * std::tanh(gates[n + i]);
      hidden[i] = Sigmoid(gates[3 * n + i]) * std::tanh(cell[i]);
    }
  }

  // The features of the network before they are normalised.
  static void ElementFeatures(float g, float v, std::span<const float> m, std::span<const float> r,
                              float* x) {
    x[0] = g;
    x[1] = v;
    x[2] = std::log(std::abs(v) + kLogEpsilon);
    for (int k = 0; k < kRnnDecays; ++k) {
      const float root = 1 / std::sqrt(r[k] + 1e-6f);
      x[3 + k] = m[k];
      x[3 + kRnnDecays + k] = r[k];
      x[3 + 2 * kRnnDecays + k] = m[k] * root;
      x[3 + 3 * kRnnDecays + k] = root;
    }
  }

  // Moves one tensor, and leaves what its elements say to the LSTM in the state.
  void Step(const TensorState& tensor, int64_t step, std::span<const float> gradient,
            std::span<const float> to_mlp, std::span<float> params, std::span<float> state,
            std::span<float> x, std::span<float> y, Workspace& scratch) const {
    const Workspace::Frame frame(scratch);
    const std::span<const float> g = Of(tensor.params, gradient);
    const std::span<float> v = Of(tensor.params, params);
    const std::span<const float> m = Of(tensor.momenta, state);
    const std::span<const float> r = Of(tensor.rms, state);
    const auto features = [&](size_t i, float* to) {
      ElementFeatures(g[i], v[i], m.subspan(i * kRnnDecays, kRnnDecays),
                      r.subspan(i * kRnnDecays, kRnnDecays), to);
    };
    double squares[Rnn::kNormalized] = {};
    double wide[Rnn::kNormalized] = {};  // squared in float64
    for (size_t i = 0; i < v.size(); ++i) {
      features(i, x.data());
      for (int k = 0; k < Rnn::kNormalized; ++k) {
        squares[k] += double{x[k] * x[k]};
        wide[k] += double{x[k]} * double{x[k]};
      }
    }
    float scale[Rnn::kNormalized];
    for (int k = 0; k < Rnn::kNormalized; ++k) {
      const auto mean = static_cast<float>(squares[k] / static_cast<double>(v.size()));
      scale[k] = std::isinf(mean)
                     ? InverseRootMeanSquare(kRnnNormalizerEpsilon, wide[k], std::ssize(v))
                     : 1 / std::sqrt(kRnnNormalizerEpsilon + mean);
    }

    // The same for all elements.
    const std::span<float> common = scratch.Take<float>(MLPLOpt::kTimes + 3 + std::ssize(to_mlp));
    for (int k = 0; k < MLPLOpt::kTimes; ++k) {
      common[k] = std::sin(static_cast<float>(step) /
                           (MLPLOpt::kTimeScales[k] * std::numbers::pi_v<float>));
    }
    common[MLPLOpt::kTimes] = std::log(static_cast<float>(tensors_.size())) - 1;
    common[MLPLOpt::kTimes + 1] = std::log(EuclideanNorm(v) + kLogEpsilon);
    common[MLPLOpt::kTimes + 2] = std::log(static_cast<float>(v.size()));
    std::ranges::copy(to_mlp, common.begin() + MLPLOpt::kTimes + 3);

    const std::span<double> to_lstm = scratch.Take<double>(options_.from_mlp_size);
    std::fill(to_lstm.begin(), to_lstm.end(), 0.0);
    for (size_t i = 0; i < v.size(); ++i) {
      features(i, x.data());
      for (int k = 0; k < Rnn::kNormalized; ++k) x[k] *= scale[k];
      std::ranges::copy(common, x.begin() + Rnn::kNormalized);
      const std::span<const float> out = mlp_.Run(x, y);
      v[i] -= out[0] * std::exp(out[1] * exp_mult_) * step_mult_;
      for (size_t k = 0; k < to_lstm.size(); ++k) to_lstm[k] += double{out[2 + k]};
    }
    const std::span<float> from_mlp = Of(tensor.from_mlp, state);
    for (size_t k = 0; k < to_lstm.size(); ++k) {
      from_mlp[k] = static_cast<float>(to_lstm[k] / static_cast<double>(v.size()));
    }
  }

  Options options_;
  float exp_mult_;
  float step_mult_;
  std::vector<float> initial_from_lstm_;
  std::vector<float> initial_from_mlp_;
  std::vector<float> initial_hidden_;
  std::vector<float> initial_cell_;
  PlainNetwork lstm_;
  PlainNetwork to_mlp_;
  PlainNetwork to_lstm_;
  PlainNetwork mlp_;
  LayoutEntry from_lstm_;
  int64_t gradient_scale_;  // offsets in the state
  int64_t loss_mean_;
  int64_t loss_variance_;
  std::vector<TensorState> tensors_;  // those with elements
};

}  // namespace

void RNNMLPLOptOptions::Visit(FieldVisitor& v) {
  v.Field("hidden_size", &hidden_size, Between(1, 65536),
          "Width of the hidden layers of the network of elements.");
  v.Field("hidden_layers", &hidden_layers, Between(1, 64), "Number of these layers.");
  v.Field("lstm_hidden_size", &lstm_hidden_size, Between(1, 65536),
          "Hidden units of the LSTM of tensors.");
  v.Field("lstm_to_ff", &lstm_to_ff, Between(1, 65536),
          "Numbers that the LSTM tells the elements of its tensor.");
  v.Field("from_mlp_size", &from_mlp_size, Between(1, 65536),
          "Numbers that the elements tell the LSTM of their tensor.");
  v.Field("from_lstm_size", &from_lstm_size, Between(1, 65536),
          "Numbers that the LSTMs of all tensors tell each other.");
  v.Field("exp_mult", &exp_mult, {}, "Factor of the second output under the exponential.");
  v.Field("step_mult", &step_mult, {}, "Factor of the step.");
}

RNNMLPLOpt::RNNMLPLOpt(const RNNMLPLOptOptions& options)
    : LearnedOptimizer(RnnThetaLayout(CheckOptions("RNNMLPLOpt", options))), options_(options) {}

void RNNMLPLOpt::DoInitTheta(Key key, std::span<float> theta) const {
  std::fill(theta.begin(), theta.end(), 0.0f);
  uint64_t draw = 0;
  const auto init = [&](const std::string& name, int64_t in) {
    const std::span<float> weights = Of(theta_layout().Find(name), theta);
    InitLayer(FoldIn(key, draw++), in, weights);
    return weights;
  };
  for (const auto& [name, size] : {std::pair("initial_from_lstm", options_.from_lstm_size),
                                   std::pair("initial_from_mlp", options_.from_mlp_size)}) {
    // The standard deviation of a standard normal that is truncated at two.
    for (float& value : init(name, size)) value /= 0.87962566103423978f;
  }
  for (const Part& part : {LstmPart(options_), ToMlpPart(options_), ToLstmPart(options_)}) {
    init(part.name + "/w", part.in);
  }
  for (const Part& part : MlpParts(options_)) init(part.name + "/w", part.in);
}

std::unique_ptr<UpdateRule> RNNMLPLOpt::DoBind(const Layout& params,
                                               std::span<const float> theta) const {
  return std::make_unique<RnnMlpRule>(options_, theta_layout(), params, theta);
}

}  // namespace lopt
