#include "tests/reference/celo2_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/reference/factored_reference.h"
#include "tests/reference/plain_sums.h"

namespace lopt {
namespace {

constexpr int kDecayCount = Celo2Base::kMomenta;

// NaN stays.
float Clipped(float x, float limit) { return x < -limit ? -limit : x > limit ? limit : x; }

float InverseRoot(float x) { return 1.0f / std::sqrt(x); }

// 1 / sqrt(1e-9 + mean square) of `count` numbers, of which neighbours are `stride` apart.
float NormalizingScale(const float* x, int64_t count, int64_t stride) {
  const double sum = SumOfSquares(count, [&](int64_t i) { return x[i * stride]; });
  return InverseRootMeanSquare(Celo2Base::kNormalizerEpsilon, sum, count);
}

// The features before they are normalised, [elements, features], from the updated state.
std::vector<float> RawFeatures(const Celo2Tensor& tensor, std::span<const float> g,
                               std::span<const float> p, const Celo2State& state) {
  std::vector<float> row_factors[kDecayCount];
  std::vector<float> col_factors[kDecayCount];
  std::optional<FactoredRuns> place;
  if (tensor.factored) {
    place.emplace(*tensor.factored, 0);
    for (int k = 0; k < kDecayCount; ++k) {
      row_factors[k].resize(state.row[k].size());
      col_factors[k].resize(state.col[k].size());
      FactoredRsqrt(*tensor.factored, state.row[k], state.col[k], row_factors[k], col_factors[k]);
    }
  }
  std::vector<float> features;
  const auto add = [&](float feature) { features.push_back(feature); };
  for (size_t i = 0; i < p.size(); ++i) {
    const size_t row = place ? place->row() : i;
    const size_t col = place ? place->col() : 0;
    float factor[kDecayCount];
    for (int k = 0; k < kDecayCount; ++k) {
      factor[k] = place ? row_factors[k][row] * col_factors[k][col]
                        : FlooredRsqrt(state.row[k][row] + kFactoredMomentFloor);
    }
    const float q = InverseRoot(state.r[i] + Celo2Base::kRsqrtEpsilon);
    add(g[i]);
    add(Clipped(g[i], Celo2Base::kSmallGradientClip));
    add(p[i]);
    for (const auto& m : state.m) add(m[i]);
    add(state.r[i]);
    for (const auto& m : state.m) add(m[i] * q);
    add(q);
    for (const float f : factor) add(g[i] * f);
    add(g[i] * q);
    if (!place) continue;
    for (const auto& v : state.row) add(v[row]);
    for (const auto& v : state.col) add(v[col]);
    for (const auto& v : state.row) add(InverseRoot(v[row] + Celo2Base::kRsqrtEpsilon));
    for (const auto& v : state.col) add(InverseRoot(v[col] + Celo2Base::kRsqrtEpsilon));
    for (int k = 0; k < kDecayCount; ++k) add(state.m[k][i] * factor[k]);
    place->Advance(1);
  }
  return features;
}

struct PlainMatrix {
  PlainMatrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), x(static_cast<size_t>(rows * columns)) {}
  float& operator()(int64_t i, int64_t j) { return x[i * columns + j]; }
  float operator()(int64_t i, int64_t j) const { return x[i * columns + j]; }

  int64_t rows;
  int64_t columns;
  std::vector<float> x;
};

PlainMatrix Transposed(const PlainMatrix& a) {
  PlainMatrix t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  }
  return t;
}

PlainMatrix MatrixProduct(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t k = 0; k < a.columns; ++k) {
      for (int64_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

PlainMatrix NewtonSchulz(PlainMatrix x) {
  if (x.rows > x.columns) return Transposed(NewtonSchulz(Transposed(x)));
  double sum = 0;
  for (const float value : x.x) sum += double{value} * value;
  const float norm = static_cast<float>(std::sqrt(sum)) + Celo2::kNormEpsilon;
  for (float& value : x.x) value /= norm;
  const auto [a, b, c] = Celo2::kPolynomial;
  for (int i = 0; i < Celo2::kIterations; ++i) {
    const PlainMatrix square = MatrixProduct(x, Transposed(x));
    PlainMatrix polynomial = MatrixProduct(square, square);
    for (size_t k = 0; k < polynomial.x.size(); ++k) {
      polynomial.x[k] = b * square.x[k] + c * polynomial.x[k];
    }
    const PlainMatrix change = MatrixProduct(polynomial, x);
    for (size_t k = 0; k < x.x.size(); ++k) x.x[k] = a * x.x[k] + change.x[k];
  }
  return x;
}

class Celo2Reference : public Celo2Rule {
 public:
  Celo2Reference(const Celo2Options& options, bool orthogonal, const Layout& params,
                 std::span<const float> theta)
      : Celo2Rule(options, params), network_(Celo2Network(theta)), orthogonal_(orthogonal) {}

 private:
  void StepLearned(const Celo2Tensor& tensor, float learning_rate, float weight_decay,
                   std::span<const float> gradient, std::span<float> params, std::span<float> state,
                   Workspace&) const override {
    const Celo2Step step = PlainCelo2Step(tensor, network_, orthogonal_, gradient, params, state);
    for (size_t i = 0; i < params.size(); ++i) {
      params[i] -= learning_rate * (step.step[i] + weight_decay * params[i]);
    }
  }

  PlainNetwork network_;
  bool orthogonal_;
};

}  // namespace

PlainNetwork Celo2Network(std::span<const float> theta) {
  return {Celo2Base::kFeatures, Celo2Base::kHidden, 2, Celo2Base::kOutputs, theta};
}

Celo2Step PlainCelo2Step(const Celo2Tensor& tensor, const PlainNetwork& network, bool orthogonal,
                         std::span<const float> gradient, std::span<const float> params,
                         std::span<float> state) {
  std::vector<float> g;
  for (const float x : gradient) g.push_back(Clipped(x, Celo2Base::kGradientClip));
  const Celo2State parts(tensor, state);
  std::vector<float> squares;
  for (const float x : g) squares.push_back(x * x);
  DecayAverage(Celo2Base::kRmsDecay, squares, parts.r);
  std::vector<float> row(parts.row[0].size());
  std::vector<float> col(parts.col[0].size());
  if (tensor.factored) {
    FactoredMeanSquares(*tensor.factored, g, row, col);
  } else {
    std::ranges::transform(squares, row.begin(), [](float x) { return x + kFactoredSquareFloor; });
  }
  for (int k = 0; k < kDecayCount; ++k) {
    DecayAverage(Celo2Base::kDecays[k], g, parts.m[k]);
    DecayAverage(Celo2Base::kDecays[k], row, parts.row[k]);
    DecayAverage(Celo2Base::kDecays[k], col, parts.col[k]);
  }

  Celo2Step result;
  result.features = RawFeatures(tensor, g, params, parts);
  const int64_t width = tensor.features();
  std::vector<float> inputs(static_cast<size_t>(network.width()));
  std::vector<float> hidden(inputs.size());
  const int64_t elements = tensor.rows * tensor.columns;  // of a matrix
  for (int64_t n = 0; n < tensor.matrices; ++n) {
    float* features = result.features.data() + n * elements * width;
    for (int64_t k = 0; k < width; ++k) {
      const float scale = NormalizingScale(features + k, elements, width);
      for (int64_t i = 0; i < elements; ++i) features[i * width + k] *= scale;
    }
    PlainMatrix x(tensor.rows, tensor.columns);
    for (int64_t i = 0; i < elements; ++i) {
      std::ranges::fill(inputs, 0.0f);
      std::copy_n(features + i * width, width, inputs.begin());
      x.x[i] = network.Run(inputs, hidden)[0];
    }
    result.direction.insert(result.direction.end(), x.x.begin(), x.x.end());
    if (orthogonal && tensor.factored) x = NewtonSchulz(std::move(x));
    result.orthogonal.insert(result.orthogonal.end(), x.x.begin(), x.x.end());
    const float scale = NormalizingScale(x.x.data(), elements, 1);
    for (const float value : x.x) result.step.push_back(value * scale);
  }
  return result;
}

std::unique_ptr<UpdateRule> ReferenceCelo2Base::DoBind(const Layout& params,
                                                       std::span<const float> theta) const {
  return std::make_unique<Celo2Reference>(options(), orthogonal(), params, theta);
}

std::unique_ptr<UpdateRule> ReferenceCelo2::DoBind(const Layout& params,
                                                   std::span<const float> theta) const {
  return std::make_unique<Celo2Reference>(options(), orthogonal(), params, theta);
}

}  // namespace lopt
