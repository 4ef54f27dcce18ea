#include "lopt/tools/distill/scheduler_records.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "lopt/base/workspace.h"

namespace lopt {

namespace {

class RecordedRule : public UpdateRule {
 public:
  RecordedRule(std::unique_ptr<UpdateRule> rule, std::function<void(const SchedulerRecord&)> tell)
      : UpdateRule(rule->params_layout(), rule->state_layout()),
        rule_(std::move(rule)),
        tell_(std::move(tell)),
        kinds_(KindsOf(rule_->params_layout())) {}

 private:
  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    rule_->InitState(info, params, state);
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const std::span<float> before = scratch.Take<float>(std::ssize(params));
    std::ranges::copy(params, before.begin());
    rule_->Update(info, gradient, params, state, scratch);
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const LayoutEntry& entry = params_layout().entries()[i];
      if (entry.size == 0) continue;
      const auto of = [&](auto all, const LayoutEntry& e) { return all.subspan(e.offset, e.size); };
      const LayoutEntry& last = state_layout().Find("step/" + entry.name);
      SchedulerRecord record = Measure(entry.shape, of(std::span<const float>(before), entry),
                                       of(params, entry), of(state, last));
      record.kind = kinds_[i];
      record.step = info.step;
      record.num_steps = info.num_steps;
      tell_(record);
    }
  }

  // Size and decay of an update of one tensor from `before` to `after` with the step `last`.
  static SchedulerRecord Measure(const Shape& shape, std::span<const float> before,
                                 std::span<const float> after, std::span<const float> last) {
    double step2 = 0;
    double before2 = 0;
    double kept = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const double p = before[i];
      step2 += double{last[i]} * last[i];
      before2 += p * p;
      kept += p * (double{after[i]} + last[i]);
    }
    const auto size = static_cast<double>(before.size());
    const double columns = shape.empty() ? 1 : static_cast<double>(shape.back());
    SchedulerRecord record;
    record.size = std::sqrt(step2 / size * std::max(size / columns, columns));
    if (before2 > 0) record.decay = 1 - kept / before2;
    return record;
  }

  const std::unique_ptr<UpdateRule> rule_;
  const std::function<void(const SchedulerRecord&)> tell_;
  const std::vector<TensorKind> kinds_;
};

}  // namespace

std::vector<TensorKind> KindsOf(const Layout& params) {
  std::vector<TensorKind> kinds;
  std::vector<size_t> matrices;
  for (const LayoutEntry& entry : params.entries()) {
    const size_t axes = entry.shape.size();
    if (axes == 2) matrices.push_back(kinds.size());
    kinds.push_back(axes < 2    ? TensorKind::kVector
                    : axes == 2 ? TensorKind::kMatrix
                                : TensorKind::kConvolution);
  }
  if (!matrices.empty()) {
    kinds[matrices.front()] = TensorKind::kFirstMatrix;
    kinds[matrices.back()] = TensorKind::kLastMatrix;
  }
  return kinds;
}

std::unique_ptr<UpdateRule> RecordSchedulerSteps(std::unique_ptr<UpdateRule> rule,
                                                 std::function<void(const SchedulerRecord&)> tell) {
  return std::make_unique<RecordedRule>(std::move(rule), std::move(tell));
}

}  // namespace lopt
