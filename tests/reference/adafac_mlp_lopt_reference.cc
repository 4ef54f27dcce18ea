#include "tests/reference/adafac_mlp_lopt_reference.h"

#include <cmath>
#include <vector>

#include "lopt/lopt/adafac/adafac_parts.h"
#include "lopt/lopt/mlp/mlp_lopt.h"
#include "lopt/lopt/network/factored.h"
#include "lopt/lopt/network/plain_network.h"
#include "tests/reference/factored_reference.h"
#include "tests/reference/plain_sums.h"

namespace lopt {
namespace {

float Rsqrt(float x) { return 1.0f / std::sqrt(x); }

class AdafacReference : public UpdateRule {
 public:
  AdafacReference(const AdafacMLPLOptOptions& options, const Layout& params, const Layout& state,
                  std::span<const float> theta)
      : UpdateRule(params, state),
        at_(options),
        decays_(options, theta),
        tensors_(AdafacTensors(params, state)),
        network_(at_.count + MLPLOpt::kTimes, options.hidden_size, options.hidden_layers, 2, theta),
        exp_mult_(static_cast<float>(options.exp_mult)),
        step_mult_(static_cast<float>(options.step_mult)) {}

 private:
  // A tensor and its state. The second moments are those at an element's row and column: of a
  // tensor of fewer than two axes both are the element itself.
  struct Moments {
    std::span<const float> g;
    std::span<float> p;
    std::span<float> m;    // [M, size]
    std::span<float> rms;  // [R, size]
    std::span<float> row;  // [F, rows]
    std::span<float> col;  // [F, columns]
    std::span<float> row_factors;
    std::span<float> col_factors;
    int64_t rows;
    int64_t cols;
  };

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    for (const AdafacTensor& tensor : tensors_) {
      if (tensor.size == 0) continue;
      const Workspace::Frame frame(scratch);
      Moments x = {.g = gradient.subspan(tensor.offset, tensor.size),
                   .p = params.subspan(tensor.offset, tensor.size),
                   .m = state.subspan(tensor.momenta, at_.m * tensor.size),
                   .rms = state.subspan(tensor.rms, at_.r * tensor.size),
                   .row = {},
                   .col = {},
                   .row_factors = {},
                   .col_factors = {},
                   .rows = tensor.size,
                   .cols = tensor.size};
      for (int64_t k = 0; k < at_.m; ++k) {
        DecayAverage(decays_.momentum[k], x.g, x.m.subspan(k * tensor.size, tensor.size));
      }
      const std::span<float> squares = scratch.Take<float>(tensor.size);
      for (int64_t i = 0; i < tensor.size; ++i) squares[i] = BoundedSquare(x.g[i]);
      for (int64_t k = 0; k < at_.r; ++k) {
        DecayAverage(decays_.rms[k], squares, x.rms.subspan(k * tensor.size, tensor.size));
      }
      if (tensor.factored) {
        UpdateFactored(tensor, state, x, scratch);
      } else {
        x.row = x.col = state.subspan(tensor.v, at_.f * tensor.size);
        for (float& square : squares) square += 1e-30f;
        for (int64_t k = 0; k < at_.f; ++k) {
          DecayAverage(decays_.adafactor[k], squares, x.row.subspan(k * tensor.size, tensor.size));
        }
      }
      Step(info.step, tensor, x, scratch);
    }
  }

  void UpdateFactored(const AdafacTensor& tensor, std::span<float> state, Moments& x,
                      Workspace& scratch) const {
    x.rows = tensor.factored->row_size();
    x.cols = tensor.factored->col_size();
    x.row = state.subspan(tensor.v, at_.f * x.rows);
    x.col = state.subspan(tensor.v_col, at_.f * x.cols);
    x.row_factors = scratch.Take<float>(at_.f * x.rows);
    x.col_factors = scratch.Take<float>(at_.f * x.cols);
    const std::span<float> row_means = scratch.Take<float>(x.rows);
    const std::span<float> col_means = scratch.Take<float>(x.cols);
    FactoredMeanSquares(*tensor.factored, x.g, row_means, col_means);
    for (int64_t k = 0; k < at_.f; ++k) {
      const std::span<float> row = x.row.subspan(k * x.rows, x.rows);
      const std::span<float> col = x.col.subspan(k * x.cols, x.cols);
      DecayAverage(decays_.adafactor[k], row_means, row);
      DecayAverage(decays_.adafactor[k], col_means, col);
      FactoredRsqrt(*tensor.factored, row, col, x.row_factors.subspan(k * x.rows, x.rows),
                    x.col_factors.subspan(k * x.cols, x.cols));
    }
  }

  // The features of element i, at `row` and `col`, before they are normalised.
  void Features(const AdafacTensor& tensor, const Moments& x, int64_t i, int64_t row, int64_t col,
                float* features) const {
    features[0] = x.g[i];
    features[1] = x.p[i];
    for (int64_t k = 0; k < at_.r; ++k) {
      features[at_.at_r + k] = x.rms[k * tensor.size + i];
      features[at_.at_q + k] = Rsqrt(features[at_.at_r + k] + AdafacMLPLOpt::kRmsEpsilon);
    }
    for (int64_t k = 0; k < at_.m; ++k) {
      const float m = x.m[k * tensor.size + i];
      features[at_.at_m + k] = m;
      features[at_.at_mq + k] = m * features[at_.at_q + (at_.r == 1 ? 0 : k)];
      const float v_row = x.row[k * x.rows + row];
      const float v_col = x.col[k * x.cols + col];
      features[at_.at_row + k] = v_row;
      features[at_.at_col + k] = v_col;
      features[at_.at_row_rsqrt + k] = Rsqrt(v_row + AdafacMLPLOpt::kMomentEpsilon);
      features[at_.at_col_rsqrt + k] = Rsqrt(v_col + AdafacMLPLOpt::kMomentEpsilon);
      if (tensor.factored) {
        const float factor = x.row_factors[k * x.rows + row] * x.col_factors[k * x.cols + col];
        features[at_.at_fac_g + k] = x.g[i] * factor;
        features[at_.at_fac_m + k] = m * factor;
      } else {
        features[at_.at_fac_g + k] = x.g[i] * FlooredRsqrt(v_row + AdafacMLPLOpt::kVectorEpsilon);
        features[at_.at_fac_m + k] = m * Rsqrt(v_row + AdafacMLPLOpt::kMomentumEpsilon);
      }
    }
  }

  void Step(int64_t step, const AdafacTensor& tensor, const Moments& x, Workspace& scratch) const {
    const std::span<float> features = scratch.Take<float>(tensor.size * at_.count);
    if (tensor.factored) {
      FactoredRuns runs(*tensor.factored, 0);
      for (int64_t i = 0; i < tensor.size; ++i, runs.Advance(1)) {
        Features(tensor, x, i, runs.row(), runs.col(), &features[i * at_.count]);
      }
    } else {
      for (int64_t i = 0; i < tensor.size; ++i) {
        Features(tensor, x, i, i, i, &features[i * at_.count]);
      }
    }
    for (int64_t k = 0; k < at_.count; ++k) {
      const double sum =
          SumOfSquares(tensor.size, [&](int64_t i) { return features[i * at_.count + k]; });
      const float scale =
          InverseRootMeanSquare(AdafacMLPLOpt::kNormalizerEpsilon, sum, tensor.size);
      for (int64_t i = 0; i < tensor.size; ++i) features[i * at_.count + k] *= scale;
    }
    const std::span<float> in = scratch.Take<float>(network_.width());
    const std::span<float> other = scratch.Take<float>(network_.width());
    for (int64_t i = 0; i < tensor.size; ++i) {
      for (int64_t k = 0; k < at_.count; ++k) in[k] = features[i * at_.count + k];
      for (int k = 0; k < MLPLOpt::kTimes; ++k) {
        in[at_.count + k] = std::tanh(static_cast<float>(step) / MLPLOpt::kTimeScales[k] - 1.0f);
      }
      const std::span<const float> outputs = network_.Run(in, other);
      x.p[i] -= outputs[0] * std::exp(outputs[1] * exp_mult_) * step_mult_;
    }
  }

  AdafacFeatures at_;
  AdafacDecays decays_;
  std::vector<AdafacTensor> tensors_;
  PlainNetwork network_;
  float exp_mult_;
  float step_mult_;
};

}  // namespace

std::unique_ptr<UpdateRule> ReferenceAdafacMLPLOpt::DoBind(const Layout& params,
                                                           std::span<const float> theta) const {
  return std::make_unique<AdafacReference>(options(), params,
                                           AdafacState(AdafacFeatures(options()), params), theta);
}

}  // namespace lopt
