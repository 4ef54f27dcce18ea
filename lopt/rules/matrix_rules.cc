#include "lopt/lopt/rules/matrix_rules.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lopt/lopt/celo2/celo2_step_device.h"
#include "lopt/lopt/network/mean_squares_device.h"
#include "lopt/lopt/rules/adam_step_device.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;
using ConstMatrixMap = Eigen::Map<const Matrix>;

// A tensor of the params as a matrix of its last axis and all others.
struct Sides {
  int64_t rows = 1;
  int64_t columns = 1;
};

Sides SidesOf(const LayoutEntry& entry) {
  Sides sides;
  for (size_t axis = 0; axis + 1 < entry.shape.size(); ++axis) sides.rows *= entry.shape[axis];
  if (!entry.shape.empty()) sides.columns = entry.shape.back();
  return sides;
}

bool IsMatrix(const LayoutEntry& entry) { return entry.shape.size() >= 2 && entry.size > 0; }

// A matrix that begins at a place of a row.
MatrixMap MapOf(std::span<float> row, int64_t offset, const Sides& sides) {
  return MatrixMap(row.data() + offset, sides.rows, sides.columns);
}
ConstMatrixMap MapOf(std::span<const float> row, int64_t offset, const Sides& sides) {
  return ConstMatrixMap(row.data() + offset, sides.rows, sides.columns);
}

MatrixMap Taken(const Sides& sides, Workspace& scratch) {
  return MapOf(scratch.Take<float>(sides.rows * sides.columns), 0, sides);
}

// out += scale * a b, a b^T and a^T b. Every product goes through one of these: each product of
// Eigen's takes seconds to compile.
void AddProduct(float scale, const ConstMatrixMap& a, const ConstMatrixMap& b, MatrixMap out) {
  out.noalias() += scale * a * b;
}
void AddProductWithTransposed(float scale, const ConstMatrixMap& a, const ConstMatrixMap& b,
                              MatrixMap out) {
  out.noalias() += scale * a * b.transpose();
}
void AddProductOfTransposed(float scale, const ConstMatrixMap& a, const ConstMatrixMap& b,
                            MatrixMap out) {
  out.noalias() += scale * a.transpose() * b;
}

// out <- the product that `add` adds.
void SetTo(void (*add)(float, const ConstMatrixMap&, const ConstMatrixMap&, MatrixMap),
           const ConstMatrixMap& a, const ConstMatrixMap& b, MatrixMap out) {
  out.setZero();
  add(1.0f, a, b, out);
}

ConstMatrixMap Const(const MatrixMap& x) { return ConstMatrixMap(x.data(), x.rows(), x.cols()); }

// Makes `x` [rows, columns], not more rows than columns, nearly orthogonal, as MuonOptions says.
void Orthogonalize(MatrixMap x, Workspace& scratch) {
  const int64_t rows = x.rows();
  MatrixMap gram = Taken({rows, rows}, scratch);
  MatrixMap polynomial = Taken({rows, rows}, scratch);
  MatrixMap next = Taken({rows, x.cols()}, scratch);
  const auto [a, b, c] = Celo2Numbers::kPolynomial;
  if (std::isinf(x.norm())) x /= x.cwiseAbs().maxCoeff();
  x /= std::max(x.norm(), 1e-7f);
  for (int i = 0; i < Celo2Numbers::kIterations; ++i) {
    SetTo(AddProductWithTransposed, Const(x), Const(x), gram);
    SetTo(AddProduct, Const(gram), Const(gram), polynomial);
    polynomial = b * gram + c * polynomial;
    SetTo(AddProduct, Const(polynomial), Const(x), next);
    x = a * x + next;
  }
}

// A tensor under Muon and its state: momentum of a matrix, m and v of another.
struct MuonTensor {
  LayoutEntry params;
  int64_t state;
  bool matrix;
};

class MuonRule : public UpdateRule {
 public:
  MuonRule(const MuonOptions& options, const Layout& params, float learning_rate)
      : UpdateRule(params, StateOf(params)),
        learning_rate_(learning_rate, options.schedule),
        options_(options) {
    int64_t state = 0;
    for (const LayoutEntry& entry : params.entries()) {
      tensors_.push_back({entry, state, IsMatrix(entry)});
      state += (IsMatrix(entry) ? 1 : 2) * entry.size;
    }
  }

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  static Layout StateOf(const Layout& params) {
    std::vector<std::pair<std::string, Shape>> tensors;
    for (const LayoutEntry& entry : params.entries()) {
      if (IsMatrix(entry)) {
        tensors.emplace_back("momentum/" + entry.name, entry.shape);
      } else {
        tensors.emplace_back("m/" + entry.name, entry.shape);
        tensors.emplace_back("v/" + entry.name, entry.shape);
      }
    }
    return Layout(std::move(tensors));
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const float lr = learning_rate_.At(info);
    const auto kept = static_cast<float>(1 - double{lr} * options_.weight_decay);
    const auto adamw_lr = static_cast<float>(double{lr} * options_.adamw_rate);
    AdamStep adam = {.beta1 = 0.9f,
                     .beta2 = 0.95f,
                     .epsilon = 1e-8f,
                     .epsilon_root = 0,
                     .learning_rate = adamw_lr,
                     .kept = static_cast<float>(1 - double{adamw_lr} * options_.weight_decay)};
    adam.CorrectBias(info.step);
    for (const auto& [entry, place, matrix] : tensors_) {
      if (matrix) {
        const Sides sides = SidesOf(entry);
        StepMatrix(lr, kept, MapOf(gradient, entry.offset, sides),
                   MapOf(params, entry.offset, sides), MapOf(state, place, sides), scratch);
      } else {
        adam.Apply(gradient.subspan(entry.offset, entry.size),
                   params.subspan(entry.offset, entry.size), state.subspan(place, entry.size),
                   state.subspan(place + entry.size, entry.size));
      }
    }
  }

  void StepMatrix(float lr, float kept, const ConstMatrixMap& g, MatrixMap p, MatrixMap b,
                  Workspace& scratch) const {
    const Workspace::Frame frame(scratch);
    const auto decay = static_cast<float>(options_.momentum);
    b = decay * b + (1.0f - decay) * g;
    const auto u = decay * b + (1.0f - decay) * g;
    const float step = lr * Scale(static_cast<double>(p.rows()), static_cast<double>(p.cols()));
    if (p.rows() <= p.cols()) {
      MatrixMap x = Taken({p.rows(), p.cols()}, scratch);
      x = u;
      Orthogonalize(x, scratch);
      p = kept * p - step * x;
    } else {
      MatrixMap x = Taken({p.cols(), p.rows()}, scratch);
      x = u.transpose();
      Orthogonalize(x, scratch);
      p = kept * p - step * x.transpose();
    }
  }

  float Scale(double rows, double columns) const {
    return static_cast<float>(options_.scale == MuonScale::kOriginal
                                  ? std::sqrt(std::max(1.0, columns / rows))
                                  : 0.2 * std::sqrt(std::max(rows, columns)));
  }

  ScheduledRate learning_rate_;
  MuonOptions options_;
  std::vector<MuonTensor> tensors_;
};

// A side of a matrix with an eigenbasis; none if it has no elements.
struct Basis {
  int64_t side = 0;
  // Places in the state, each [side, side].
  int64_t statistics = 0;
  int64_t q = 0;
};

// A tensor under SOAP: where it is, and where in the state are its parts.
struct SOAPTensor {
  int64_t offset = 0;
  Sides sides = {};
  int64_t m = 0;
  int64_t v = 0;
  Basis left = {};   // of the rows
  Basis right = {};  // of the columns
};

class SOAPRule : public UpdateRule {
 public:
  SOAPRule(const SOAPOptions& options, const Layout& params, float learning_rate)
      : SOAPRule(options, params, learning_rate, State(options, params)) {}

  double LearningRate(const StepInfo& info) const override { return learning_rate_.At(info); }

 private:
  // The tensors of the params and the layout of their state.
  struct State {
    State(const SOAPOptions& options, const Layout& params) {
      for (const LayoutEntry& entry : params.entries()) {
        const Sides sides = SidesOf(entry);
        SOAPTensor& tensor =
            tensors.emplace_back(SOAPTensor{.offset = entry.offset, .sides = sides});
        tensor.m = Add("m/" + entry.name, entry.shape);
        tensor.v = Add("v/" + entry.name, entry.shape);
        if (!IsMatrix(entry)) continue;
        if (sides.rows <= options.max_side) tensor.left = AddBasis("L", entry.name, sides.rows);
        if (sides.columns <= options.max_side) {
          tensor.right = AddBasis("R", entry.name, sides.columns);
        }
      }
    }

    int64_t Add(const std::string& name, const Shape& shape) {
      layout.emplace_back(name, shape);
      return std::exchange(size, size + NumElements(shape));
    }
    Basis AddBasis(const std::string& name, const std::string& tensor, int64_t side) {
      return {.side = side,
              .statistics = Add(name + "/" + tensor, {side, side}),
              .q = Add("Q" + name + "/" + tensor, {side, side})};
    }

    std::vector<SOAPTensor> tensors;
    std::vector<std::pair<std::string, Shape>> layout;
    int64_t size = 0;
  };

  SOAPRule(const SOAPOptions& options, const Layout& params, float learning_rate, State state)
      : UpdateRule(params, Layout(std::move(state.layout))),
        learning_rate_(learning_rate, options.schedule),
        options_(options),
        tensors_(std::move(state.tensors)) {}

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    for (const SOAPTensor& tensor : tensors_) {
      const Workspace::Frame frame(scratch);
      const std::span<float> bounded =
          scratch.Take<float>(tensor.sides.rows * tensor.sides.columns);
      std::ranges::transform(gradient.subspan(tensor.offset, bounded.size()), bounded.begin(),
                             [](float x) { return WithinLimit(x, kLargestGradient); });
      const ConstMatrixMap g = MapOf(std::span<const float>(bounded), 0, tensor.sides);
      if (info.step > 0) {
        Step(info, tensor, g, MapOf(params, tensor.offset, tensor.sides), state, scratch);
      }
      const auto decay = static_cast<float>(options_.beta2);
      if (tensor.left.side > 0) {
        MatrixMap l = StatisticsOf(tensor.left, state);
        l *= decay;
        AddProductWithTransposed(1.0f - decay, g, g, l);
      }
      if (tensor.right.side > 0) {
        MatrixMap r = StatisticsOf(tensor.right, state);
        r *= decay;
        AddProductOfTransposed(1.0f - decay, g, g, r);
      }
      if (info.step % options_.frequency == 0) NewBases(info.step == 0, tensor, state);
    }
  }

  void Step(const StepInfo& info, const SOAPTensor& tensor, const ConstMatrixMap& g, MatrixMap p,
            std::span<float> state, Workspace& scratch) const {
    const double lr = learning_rate_.At(info);
    const auto count = static_cast<double>(info.step);
    const auto step = static_cast<float>(lr * std::sqrt(1 - std::pow(options_.beta2, count)) /
                                         (1 - std::pow(options_.beta1, count)));
    const auto beta1 = static_cast<float>(options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    MatrixMap m = MapOf(state, tensor.m, tensor.sides);
    MatrixMap v = MapOf(state, tensor.v, tensor.sides);
    MatrixMap rotated = Taken(tensor.sides, scratch);
    MatrixMap spare = Taken(tensor.sides, scratch);
    rotated = g;
    Rotate(tensor, state, false, rotated, spare);
    v.array() = beta2 * v.array() + (1.0f - beta2) * rotated.array().square();
    m = beta1 * m + (1.0f - beta1) * g;
    rotated = m;
    Rotate(tensor, state, false, rotated, spare);
    rotated.array() /= v.array().sqrt() + static_cast<float>(options_.epsilon);
    Rotate(tensor, state, true, rotated, spare);
    p = static_cast<float>(1 - lr * options_.weight_decay) * (p - step * rotated);
  }

  // x <- QL^T x QR, or back: QL x QR^T.
  static void Rotate(const SOAPTensor& tensor, std::span<float> state, bool back, MatrixMap x,
                     const MatrixMap& spare) {
    if (tensor.left.side > 0) {
      const ConstMatrixMap q = Const(BasisOf(tensor.left, state));
      SetTo(back ? AddProduct : AddProductOfTransposed, q, Const(x), spare);
      x = spare;
    }
    if (tensor.right.side > 0) {
      const ConstMatrixMap q = Const(BasisOf(tensor.right, state));
      SetTo(back ? AddProductWithTransposed : AddProduct, Const(x), q, spare);
      x = spare;
    }
  }

  // New bases after an update; the second moments go with them.
  static void NewBases(bool first, const SOAPTensor& tensor, std::span<float> state) {
    MatrixMap v = MapOf(state, tensor.v, tensor.sides);
    if (tensor.left.side > 0) {
      const Eigen::VectorXi order = NewBasis(first, tensor.left, state);
      v = Matrix(v(order, Eigen::all));
    }
    if (tensor.right.side > 0) {
      const Eigen::VectorXi order = NewBasis(first, tensor.right, state);
      v = Matrix(v(Eigen::all, order));
    }
  }

  // Returns the order that the columns of the old basis took.
  static Eigen::VectorXi NewBasis(bool first, const Basis& basis, std::span<float> state) {
    const MatrixMap statistics = StatisticsOf(basis, state);
    MatrixMap q = BasisOf(basis, state);
    Eigen::VectorXi order =
        Eigen::VectorXi::LinSpaced(basis.side, 0, static_cast<int>(basis.side) - 1);
    if (first) {
      const Eigen::SelfAdjointEigenSolver<Matrix> solver(statistics);
      q = solver.eigenvectors().rowwise().reverse();
      return order;
    }
    Matrix product(basis.side, basis.side);
    SetTo(AddProduct, Const(statistics), Const(q),
          MatrixMap(product.data(), basis.side, basis.side));
    // The decomposition squares it.
    const float largest = product.cwiseAbs().maxCoeff();
    if (largest > kLargestGradient) product /= largest;
    const Eigen::VectorXf values = q.cwiseProduct(product).colwise().sum();
    std::ranges::stable_sort(order, [&](int i, int j) { return values[i] > values[j]; });
    const Eigen::HouseholderQR<Matrix> decomposition(product(Eigen::all, order));
    q = decomposition.householderQ();
    return order;
  }

  static MatrixMap StatisticsOf(const Basis& basis, std::span<float> state) {
    return MapOf(state, basis.statistics, {basis.side, basis.side});
  }
  static MatrixMap BasisOf(const Basis& basis, std::span<float> state) {
    return MapOf(state, basis.q, {basis.side, basis.side});
  }

  // What gradients count as at most: the statistics are of their products.
  static constexpr float kLargestGradient = 1e15f;

  ScheduledRate learning_rate_;
  SOAPOptions options_;
  std::vector<SOAPTensor> tensors_;
};

}  // namespace

std::unique_ptr<UpdateRule> BindRule(const MuonOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<MuonRule>(options, params, learning_rate);
}

std::unique_ptr<UpdateRule> BindRule(const SOAPOptions& options, const Layout& params,
                                     float learning_rate) {
  return std::make_unique<SOAPRule>(options, params, learning_rate);
}

}  // namespace lopt
