#include "lopt/lopt/rules/matrices_and_vectors.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

constexpr char kWho[] = "MatricesAndVectors";
constexpr char kMatrices[] = "matrices/";
constexpr char kVectors[] = "vectors/";

void AppendPrefixed(const std::string& prefix, const Layout& layout,
                    std::vector<std::pair<std::string, Shape>>* tensors) {
  for (const LayoutEntry& e : layout.entries()) tensors->emplace_back(prefix + e.name, e.shape);
}

Layout TwoLayouts(const Layout& matrices, const Layout& vectors) {
  std::vector<std::pair<std::string, Shape>> tensors;
  AppendPrefixed(kMatrices, matrices, &tensors);
  AppendPrefixed(kVectors, vectors, &tensors);
  return Layout(std::move(tensors));
}

bool HasTwoAxes(const LayoutEntry& entry) { return entry.shape.size() >= 2; }

// The params that one of the two steps.
Layout PartOfParams(const Layout& params, bool matrices) {
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : params.entries()) {
    if (HasTwoAxes(entry) == matrices) tensors.emplace_back(entry.name, entry.shape);
  }
  return Layout(std::move(tensors));
}

// A rule for some tensors of a larger row.
class PartRule {
 public:
  PartRule(const Layout& params, bool matrices, std::unique_ptr<UpdateRule> rule)
      : rule_(std::move(rule)) {
    std::ranges::copy_if(params.entries(), std::back_inserter(entries_),
                         [&](const LayoutEntry& entry) { return HasTwoAxes(entry) == matrices; });
  }

  const UpdateRule& rule() const { return *rule_; }
  int64_t state_size() const { return rule_->state_layout().size(); }

  void InitState(const StepInfo& info, std::span<const float> params,
                 std::span<float> state) const {
    std::vector<float> own(static_cast<size_t>(rule_->params_layout().size()));
    Gather(params, own);
    rule_->InitState(info, own, state);
  }
  void Update(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
              std::span<float> state, Workspace& scratch) const {
    const Workspace::Frame frame(scratch);
    const int64_t size = rule_->params_layout().size();
    const std::span<float> own_gradient = scratch.Take<float>(size);
    const std::span<float> own_params = scratch.Take<float>(size);
    Gather(gradient, own_gradient);
    Gather(params, own_params);
    rule_->Update(info, own_gradient, own_params, state, scratch);
    const float* from = own_params.data();
    for (const LayoutEntry& e : entries_) {
      std::copy_n(from, e.size, &params[static_cast<size_t>(e.offset)]);
      from += e.size;
    }
  }

 private:
  // The tensors one after the other.
  void Gather(std::span<const float> row, std::span<float> own) const {
    float* to = own.data();
    for (const LayoutEntry& e : entries_) to = std::copy_n(row.data() + e.offset, e.size, to);
  }

  std::unique_ptr<UpdateRule> rule_;
  std::vector<LayoutEntry> entries_;  // of the larger row
};

class TwoRules : public UpdateRule {
 public:
  TwoRules(const Layout& params, PartRule matrices, PartRule vectors)
      : UpdateRule(params,
                   TwoLayouts(matrices.rule().state_layout(), vectors.rule().state_layout())),
        matrices_(std::move(matrices)),
        vectors_(std::move(vectors)) {}

  double LearningRate(const StepInfo& info) const override {
    return matrices_.rule().LearningRate(info);
  }

 private:
  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    const auto first = static_cast<size_t>(matrices_.state_size());
    matrices_.InitState(info, params, state.first(first));
    vectors_.InitState(info, params, state.subspan(first));
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const auto first = static_cast<size_t>(matrices_.state_size());
    matrices_.Update(info, gradient, params, state.first(first), scratch);
    vectors_.Update(info, gradient, params, state.subspan(first), scratch);
  }

  PartRule matrices_;
  PartRule vectors_;
};

PartRule BindPart(const LearnedOptimizer& optimizer, const Layout& params, bool matrices,
                  std::span<const float> theta) {
  auto rule = optimizer.Bind(PartOfParams(params, matrices), theta);
  RequireStepsMakeParams(*rule, kWho);
  return {params, matrices, std::move(rule)};
}

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
          "{}: wanted optimizers that keep nothing but what belongs to a tensor; {} keeps numbers "
          "of the run",
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
  return std::make_unique<TwoRules>(params, BindPart(*matrices_, params, true, theta.first(first)),
                                    BindPart(*vectors_, params, false, theta.subspan(first)));
}

}  // namespace lopt
