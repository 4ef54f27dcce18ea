#include "lopt/lopt/rules/matrices_and_vectors.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

constexpr char kWho[] = "MatricesAndVectors";
constexpr char kMatrices[] = "matrices/";
constexpr char kVectors[] = "vectors/";

Layout TwoLayouts(const Layout& matrices, const Layout& vectors) {
  NamedShapes tensors;
  AppendPrefixed(kMatrices, matrices, &tensors);
  AppendPrefixed(kVectors, vectors, &tensors);
  return Layout(std::move(tensors));
}

// The rule of one of the two, for its tensors of a larger row.
class PartRule {
 public:
  PartRule(const LearnedOptimizer& optimizer, const Layout& params, bool matrices,
           std::span<const float> theta) {
    NamedShapes own;
    for (const LayoutEntry& entry : params.entries()) {
      if ((entry.shape.size() >= 2) != matrices) continue;
      own.emplace_back(entry.name, entry.shape);
      entries_.push_back(entry);
    }
    rule_ = optimizer.Bind(Layout(std::move(own)), theta);
    RequireStepsMakeParams(*rule_, fmt::format("{}: {}", kWho, matrices ? "matrices" : "vectors"));
  }

  bool has_tensors() const { return !entries_.empty(); }
  const Layout& state_layout() const { return rule_->state_layout(); }
  double LearningRate(const StepInfo& info) const { return rule_->LearningRate(info); }

  void InitState(const StepInfo& info, std::span<const float> params,
                 std::span<float> state) const {
    std::vector<float> own(static_cast<size_t>(rule_->params_layout().size()));
    Gather(params, std::span<float>(own));
    rule_->InitState(info, own, state);
  }
  // Number: float, or double where the rule takes such gradients.
  template <class Number>
  void Update(const StepInfo& info, std::span<const Number> gradient, std::span<float> params,
              std::span<float> state, Workspace& scratch) const {
    const int64_t size = rule_->params_layout().size();
    if (size == std::ssize(params)) {  // all of the row's numbers
      UpdateRuleOf(info, gradient, params, state, scratch);
      return;
    }
    const Workspace::Frame frame(scratch);
    const std::span<Number> own_gradient = scratch.Take<Number>(size);
    const std::span<float> own_params = scratch.Take<float>(size);
    Gather(gradient, own_gradient);
    Gather(std::span<const float>(params), own_params);
    UpdateRuleOf(info, std::span<const Number>(own_gradient), own_params, state, scratch);
    const float* from = own_params.data();
    for (const LayoutEntry& e : entries_) {
      std::copy_n(from, e.size, params.data() + e.offset);
      from += e.size;
    }
  }

 private:
  void UpdateRuleOf(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                    std::span<float> state, Workspace& scratch) const {
    rule_->Update(info, gradient, params, state, scratch);
  }
  void UpdateRuleOf(const StepInfo& info, std::span<const double> gradient, std::span<float> params,
                    std::span<float> state, Workspace& scratch) const {
    rule_->UpdateInFloat64(info, gradient, params, state, scratch);
  }
  // The tensors one after the other.
  template <class Number>
  void Gather(std::span<const Number> row, std::span<Number> own) const {
    Number* to = own.data();
    for (const LayoutEntry& e : entries_) to = std::copy_n(row.data() + e.offset, e.size, to);
  }

  std::unique_ptr<UpdateRule> rule_;
  std::vector<LayoutEntry> entries_;  // of the larger row
};

class TwoRules : public UpdateRule {
 public:
  TwoRules(const Layout& params, PartRule matrices, PartRule vectors)
      : UpdateRule(params, TwoLayouts(matrices.state_layout(), vectors.state_layout())),
        matrices_(std::move(matrices)),
        vectors_(std::move(vectors)) {}

  double LearningRate(const StepInfo& info) const override {
    return (matrices_.has_tensors() ? matrices_ : vectors_).LearningRate(info);
  }

 private:
  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    const auto first = static_cast<size_t>(matrices_.state_layout().size());
    matrices_.InitState(info, params, state.first(first));
    vectors_.InitState(info, params, state.subspan(first));
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    UpdateBoth(info, gradient, params, state, scratch);
  }
  void DoUpdateInFloat64(const StepInfo& info, std::span<const double> gradient,
                         std::span<float> params, std::span<float> state,
                         Workspace& scratch) const override {
    UpdateBoth(info, gradient, params, state, scratch);
  }
  template <class Number>
  void UpdateBoth(const StepInfo& info, std::span<const Number> gradient, std::span<float> params,
                  std::span<float> state, Workspace& scratch) const {
    const auto first = static_cast<size_t>(matrices_.state_layout().size());
    matrices_.Update(info, gradient, params, state.first(first), scratch);
    vectors_.Update(info, gradient, params, state.subspan(first), scratch);
  }

  PartRule matrices_;
  PartRule vectors_;
};

std::string NeedOfEither(const LearnedOptimizer& matrices, const LearnedOptimizer& vectors) {
  return matrices.needs_num_steps().empty() ? vectors.needs_num_steps()
                                            : matrices.needs_num_steps();
}

}  // namespace

void MatricesAndVectorsOptions::Visit(FieldVisitor& v) {
  v.Typed("matrices", &matrices, OptimizerRegistry().table(),
          "The optimizer of tensors of two axes or more.");
  v.Typed("vectors", &vectors, OptimizerRegistry().table(),
          "The optimizer of all other tensors, biases and scales.");
}

MatricesAndVectors::MatricesAndVectors(const MatricesAndVectorsOptions& options)
    : MatricesAndVectors(OptimizerRegistry().Make(options.matrices),
                         OptimizerRegistry().Make(options.vectors)) {}

MatricesAndVectors::MatricesAndVectors(std::shared_ptr<const LearnedOptimizer> matrices,
                                       std::shared_ptr<const LearnedOptimizer> vectors)
    : LearnedOptimizer(TwoLayouts(matrices->theta_layout(), vectors->theta_layout()),
                       NeedOfEither(*matrices, *vectors)),
      matrices_(std::move(matrices)),
      vectors_(std::move(vectors)) {
  Require(matrices_->run_state_size() == 0 && vectors_->run_state_size() == 0,
          "{}: wanted optimizers whose state belongs to their tensors; that of {} has numbers of "
          "the run",
          kWho, matrices_->run_state_size() > 0 ? "matrices" : "vectors");
}

Precision MatricesAndVectors::precision() const {
  return std::max(matrices_->precision(), vectors_->precision());
}

void MatricesAndVectors::DoInitTheta(Key key, std::span<float> theta) const {
  const Eigen::VectorXf matrices = matrices_->InitTheta(FoldIn(key, 0));
  const Eigen::VectorXf vectors = vectors_->InitTheta(FoldIn(key, 1));
  std::copy(vectors.begin(), vectors.end(),
            std::copy(matrices.begin(), matrices.end(), theta.begin()));
}

std::unique_ptr<UpdateRule> MatricesAndVectors::DoBind(const Layout& params,
                                                       std::span<const float> theta) const {
  const auto first = static_cast<size_t>(matrices_->theta_layout().size());
  return std::make_unique<TwoRules>(params, PartRule(*matrices_, params, true, theta.first(first)),
                                    PartRule(*vectors_, params, false, theta.subspan(first)));
}

}  // namespace lopt
