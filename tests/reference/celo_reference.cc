#include "tests/reference/celo_reference.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "lopt/lopt/celo/celo_scheduler.h"
#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/network/plain_network.h"
#include "tests/reference/factored_reference.h"
#include "tests/reference/plain_sums.h"

namespace lopt {
namespace {

constexpr float kCeloReferenceDecays[] = {.9f, .99f, .999f};

float CeloClip(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }
float CeloRsqrt(float x) { return 1.0f / std::sqrt(x); }

std::span<float> CeloPart(std::span<float> all, int k) {
  const size_t size = all.size() / 3;
  return all.subspan(static_cast<size_t>(k) * size, size);
}

void UpdateCeloMoments(const Shape& shape, std::span<const float> g, const CeloMoments& x) {
  std::vector<float> squares;
  for (const float value : g) squares.push_back(value * value);
  DecayAverage(.999f, squares, x.r);
  std::vector<float> row(x.row.size() / 3);
  std::vector<float> col(x.col.size() / 3);
  if (shape.size() >= 2) {
    FactoredMeanSquares(FactoredShape(shape), g, row, col);
  } else {
    std::ranges::transform(squares, row.begin(), [](float value) { return value + 1e-30f; });
  }
  for (int k = 0; k < 3; ++k) {
    DecayAverage(kCeloReferenceDecays[k], g, CeloPart(x.m, k));
    DecayAverage(kCeloReferenceDecays[k], row, CeloPart(x.row, k));
    DecayAverage(kCeloReferenceDecays[k], col, CeloPart(x.col, k));
  }
}

class CeloReferenceRule : public UpdateRule {
 public:
  CeloReferenceRule(const CeloOptions& options, const Layout& theta_layout, const Layout& params,
                    const Layout& state, std::span<const float> theta)
      : UpdateRule(params, state),
        scheduled_(options.scheduled),
        lstm_size_(options.lstm_size),
        theta_layout_(theta_layout),
        theta_(theta.begin(), theta.end()),
        network_(30, 4, 2, 3, theta) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& /*scratch*/) const override {
    float s = 1;
    if (scheduled_) {
      s = .1f * std::exp(PlainSchedulerStep(lstm_size_, theta_layout_, theta_, info, state));
      state = state.subspan(CeloScheduler::StateSize(lstm_size_));
    }
    std::vector<float> x(static_cast<size_t>(network_.width()));
    std::vector<float> y = x;
    for (const LayoutEntry& e : params_layout().entries()) {
      const CeloMoments moments = TakeCeloMoments(e.shape, &state);
      if (e.size == 0) continue;
      const std::span<float> p = params.subspan(e.offset, e.size);
      const std::vector<float> features =
          PlainCeloFeatures(e.shape, gradient.subspan(e.offset, e.size), p, moments);
      const double sum = SumOfSquares(e.size, [&](int64_t i) { return p[i]; });
      const auto scale = static_cast<float>(std::sqrt(sum / static_cast<double>(e.size) + 1e-9));
      for (int64_t i = 0; i < e.size; ++i) {
        std::copy_n(features.begin() + i * 30, 30, x.begin());
        const std::span<const float> out = network_.Run(x, y);
        p[i] -= s * .001f * out[0] * std::exp(.001f * out[1]) * scale;
      }
    }
  }

  bool scheduled_;
  int64_t lstm_size_;
  Layout theta_layout_;
  std::vector<float> theta_;
  PlainNetwork network_;
};

// CeloAdam, or Sinv6.
class ScheduledMomentsReferenceRule : public UpdateRule {
 public:
  ScheduledMomentsReferenceRule(bool adam, const LearnedOptimizer& optimizer, int64_t lstm_size,
                                const Layout& params, std::span<const float> theta)
      : UpdateRule(params, optimizer.StateLayout(params)),
        adam_(adam),
        lstm_size_(lstm_size),
        theta_layout_(optimizer.theta_layout()),
        theta_(theta.begin(), theta.end()) {}

 private:
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& /*scratch*/) const override {
    const float output = PlainSchedulerStep(lstm_size_, theta_layout_, theta_, info, state);
    const float rate =
        .001f * (adam_ ? .1f * std::exp(output) : std::min(std::max(output, 1e-5f), 1000.f));
    const auto count = static_cast<double>(info.step + 1);
    std::span<float> moments = state.subspan(CeloScheduler::StateSize(lstm_size_));
    for (const LayoutEntry& e : params_layout().entries()) {
      const std::span<float> p = params.subspan(e.offset, e.size);
      double squares = 0;
      for (const float x : p) squares += double{x} * double{x};
      const double scale = adam_ ? 1 : std::sqrt(squares / static_cast<double>(p.size()) + 1e-9);
      for (int64_t i = 0; i < e.size; ++i) {
        const float g = CeloClip(gradient[e.offset + i], 1000);
        float& m = moments[i];
        float& r = moments[e.size + i];
        m = .9f * m + (1 - .9f) * g;
        r = .999f * r + (1 - .999f) * (g * g);
        const double mh = adam_ ? m / (1 - std::pow(double{.9f}, count)) : m;
        const double rh = adam_ ? r / (1 - std::pow(double{.999f}, count)) : r;
        p[i] -= static_cast<float>(rate * mh / (1e-8 + std::sqrt(rh + 1e-10)) * scale);
      }
      moments = moments.subspan(2 * e.size);
    }
  }

  bool adam_;
  int64_t lstm_size_;
  Layout theta_layout_;
  std::vector<float> theta_;
};

float PlainSigmoid(float x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

float PlainSchedulerStep(int64_t lstm_size, const Layout& layout, std::span<const float> theta,
                         const StepInfo& info, std::span<float> state) {
  const auto inputs = CeloScheduler(lstm_size, layout, theta).Inputs(info, state);
  const auto linear = [&](const std::string& name, std::span<const float> x) {
    const LayoutEntry& w = layout.Find("rnn_params/" + name + "/w");
    const LayoutEntry& b = layout.Find("rnn_params/" + name + "/b");
    std::vector<float> y;
    for (int64_t j = 0; j < b.size; ++j) {
      float sum = theta[b.offset + j];
      for (size_t i = 0; i < x.size(); ++i) sum += x[i] * theta[w.offset + i * b.size + j];
      y.push_back(sum);
    }
    return y;
  };
  const std::vector<float> mixed = linear("linear_1", inputs);
  std::vector<float> x = linear("linear_2", inputs);
  for (size_t j = 0; j < x.size(); ++j) x[j] += mixed[j] < 0 ? 0 : mixed[j];
  const std::span<float> hidden = state.first(lstm_size);
  const std::span<float> cell = state.subspan(lstm_size, lstm_size);
  x.insert(x.end(), hidden.begin(), hidden.end());
  const std::vector<float> gates = linear("rnn/linear", x);
  for (int64_t j = 0; j < lstm_size; ++j) {
    const float forget = PlainSigmoid(gates[2 * lstm_size + j] + 1);
    cell[j] = forget * cell[j] + PlainSigmoid(gates[j]) * std::tanh(gates[lstm_size + j]);
    hidden[j] = PlainSigmoid(gates[3 * lstm_size + j]) * std::tanh(cell[j]);
  }
  return linear("step_size", hidden).front();
}

CeloMoments TakeCeloMoments(const Shape& shape, std::span<float>* state) {
  const auto take = [&](int64_t size) {
    const std::span<float> part = state->first(size);
    *state = state->subspan(size);
    return part;
  };
  const int64_t size = NumElements(shape);
  CeloMoments moments = {.m = take(3 * size), .r = take(size), .row = {}, .col = {}};
  if (shape.size() < 2) {
    moments.row = take(3 * size);
  } else {
    const FactoredShape factored(shape);
    moments.row = take(3 * factored.row_size());
    moments.col = take(3 * factored.col_size());
  }
  return moments;
}

std::vector<float> PlainCeloFeatures(const Shape& shape, std::span<const float> gradient,
                                     std::span<const float> params, const CeloMoments& moments) {
  std::vector<float> g;
  for (const float value : gradient) g.push_back(CeloClip(value, 1000));
  UpdateCeloMoments(shape, g, moments);
  const bool factored = shape.size() >= 2;
  std::vector<float> row_factors(moments.row.size());
  std::vector<float> col_factors(moments.col.size());
  std::optional<FactoredRuns> place;
  if (factored) {
    const FactoredShape axes(shape);
    for (int k = 0; k < 3; ++k) {
      FactoredRsqrt(axes, CeloPart(moments.row, k), CeloPart(moments.col, k),
                    CeloPart(row_factors, k), CeloPart(col_factors, k));
    }
    place.emplace(axes, 0);
  }
  std::vector<float> all;
  for (size_t i = 0; i < params.size(); ++i) {
    const size_t row = factored ? place->row() : i;
    const size_t col = factored ? place->col() : i;
    float m[3];
    float v_row[3];
    float v_col[3];
    float of_g[3];
    float of_m[3];
    for (int k = 0; k < 3; ++k) {
      m[k] = CeloPart(moments.m, k)[i];
      v_row[k] = CeloPart(moments.row, k)[row];
      v_col[k] = factored ? CeloPart(moments.col, k)[col] : v_row[k];
      of_g[k] = factored ? CeloPart(row_factors, k)[row] * CeloPart(col_factors, k)[col]
                         : FlooredRsqrt(v_row[k] + 1e-9f);
      of_m[k] = factored ? of_g[k] : CeloRsqrt(v_row[k]);
    }
    const float r = moments.r[i];
    const float q = CeloRsqrt(r + 1e-6f);
    const auto add = [&](float value) { all.push_back(value); };
    const auto add_3 = [&](const auto& value) {
      for (int k = 0; k < 3; ++k) all.push_back(value(k));
    };
    add(g[i]);
    add(CeloClip(g[i], .1f));
    add(params[i]);
    add_3([&](int k) { return m[k]; });
    add(r);
    add_3([&](int k) { return m[k] * q; });
    add(q);
    add_3([&](int k) { return g[i] * of_g[k]; });
    add(g[i] * q);
    add_3([&](int k) { return v_row[k]; });
    add_3([&](int k) { return v_col[k]; });
    add_3([&](int k) { return CeloRsqrt(v_row[k] + 1e-8f); });
    add_3([&](int k) { return CeloRsqrt(v_col[k] + 1e-8f); });
    add_3([&](int k) { return m[k] * of_m[k]; });
    if (factored) place->Advance(1);
  }
  const auto size = static_cast<int64_t>(params.size());
  for (int64_t k = 0; k < 30; ++k) {
    const double sum = SumOfSquares(size, [&](int64_t i) { return all[i * 30 + k]; });
    const float scale = InverseRootMeanSquare(1e-5f, sum, size);
    for (int64_t i = 0; i < size; ++i) all[i * 30 + k] *= scale;
  }
  return all;
}

std::unique_ptr<UpdateRule> ReferenceCelo::DoBind(const Layout& params,
                                                  std::span<const float> theta) const {
  return std::make_unique<CeloReferenceRule>(options(), theta_layout(), params,
                                             Celo(options()).StateLayout(params), theta);
}

std::unique_ptr<UpdateRule> ReferenceCeloAdam::DoBind(const Layout& params,
                                                      std::span<const float> theta) const {
  return std::make_unique<ScheduledMomentsReferenceRule>(true, CeloAdam(options_),
                                                         options_.lstm_size, params, theta);
}

std::unique_ptr<UpdateRule> ReferenceSinv6::DoBind(const Layout& params,
                                                   std::span<const float> theta) const {
  return std::make_unique<ScheduledMomentsReferenceRule>(false, Sinv6(options_), options_.lstm_size,
                                                         params, theta);
}

}  // namespace lopt
