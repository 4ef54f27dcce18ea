#include "lopt/lopt/rules/orthogonal_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/orthogonal_steps_kernel.h"

namespace lopt {
namespace {

// A tensor of two axes or more as a matrix of its last axis and all others.
struct SteppedMatrix {
  int64_t offset;
  int64_t rows;
  int64_t columns;
};

class OrthogonalRule : public UpdateRule {
 public:
  explicit OrthogonalRule(std::unique_ptr<UpdateRule> rule)
      : UpdateRule(rule->params_layout(), rule->state_layout()), rule_(std::move(rule)) {
    for (const LayoutEntry& entry : params_layout().entries()) {
      if (entry.shape.size() < 2 || entry.size == 0) continue;
      const int64_t columns = entry.shape.back();
      matrices_.push_back({entry.offset, entry.size / columns, columns});
    }
  }

  double LearningRate(const StepInfo& info) const override { return rule_->LearningRate(info); }

 private:
  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    rule_->InitState(info, params, state);
  }
  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const std::span<float> before = scratch.Take<float>(std::ssize(params));
    std::copy(params.begin(), params.end(), before.begin());
    rule_->Update(info, gradient, params, state, scratch);
    for (const SteppedMatrix& matrix : matrices_) {
      MakeStepOrthogonal(matrix.rows, matrix.columns, &before[matrix.offset],
                         &params[matrix.offset], scratch);
    }
  }

  std::unique_ptr<UpdateRule> rule_;
  std::vector<SteppedMatrix> matrices_;
};

}  // namespace

void OrthogonalStepsOptions::Visit(FieldVisitor& v) {
  v.Typed("optimizer", &optimizer, OptimizerRegistry().table(),
          "The optimizer whose steps are made orthogonal.");
}

OrthogonalSteps::OrthogonalSteps(const OrthogonalStepsOptions& options)
    : OrthogonalSteps(OptimizerRegistry().Make(options.optimizer)) {}

OrthogonalSteps::OrthogonalSteps(const std::shared_ptr<const LearnedOptimizer>& optimizer)
    : OfAnotherOptimizer(optimizer, optimizer->theta_layout(), optimizer->needs_num_steps()) {}

std::unique_ptr<UpdateRule> OrthogonalSteps::DoBind(const Layout& params,
                                                    std::span<const float> theta) const {
  auto rule = optimizer().Bind(params, theta);
  RequireStepsMakeParams(*rule, "OrthogonalSteps");
  return std::make_unique<OrthogonalRule>(std::move(rule));
}

}  // namespace lopt
