#include "lopt/lopt/rules/learned_scheduler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/options.h"
#include "lopt/lopt/network/plain_network.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/rules/learned_scheduler_kernel.h"
#include "lopt/lopt/rules/rule_parts.h"

namespace lopt {
namespace {

constexpr int64_t kF = LearnedScheduler::kFeatures;
constexpr int64_t kO = LearnedScheduler::kOutputs;

// The means of a tensor's state.
constexpr std::array<double, 5> kMeanDecays = {.9, .99, .9, .999, .9};
constexpr auto kMeans = std::ssize(kMeanDecays);

Layout ThetaLayout(int64_t hidden_size, const Layout& optimizer) {
  NamedShapes tensors;
  AppendPrefixed("optimizer/", optimizer, &tensors);
  tensors.emplace_back("scheduler/hidden/w", Shape{kF, hidden_size});
  tensors.emplace_back("scheduler/hidden/b", Shape{hidden_size});
  tensors.emplace_back("scheduler/out/w", Shape{kF + hidden_size, kO});
  tensors.emplace_back("scheduler/out/b", Shape{kO});
  return Layout(std::move(tensors));
}

Layout StateLayoutOf(const Layout& params, const Layout& optimizer) {
  NamedShapes tensors;
  AppendPrefixed("optimizer/", optimizer, &tensors);
  AppendPrefixed("step/", params, &tensors);
  for (const LayoutEntry& e : params.entries()) {
    tensors.emplace_back("means/" + e.name, Shape{kMeans});
  }
  return Layout(std::move(tensors));
}

double Cosine(double xy, double xx, double yy) {
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx) / std::sqrt(yy) : 0;
}

// The network.
class Network {
 public:
  Network(int64_t hidden_size, std::span<const float> theta)
      : hidden_size_(hidden_size), theta_(theta.begin(), theta.end()) {}

  std::array<double, kO> operator()(const std::array<double, kF>& features) const {
    const float* v = theta_.data();
    const float* d = v + kF * hidden_size_;
    const float* w = d + hidden_size_;
    const float* b = w + (kF + hidden_size_) * kO;
    std::array<double, kO> out = {b[0], b[1]};
    const auto add = [&](int64_t row, double x) {
      for (int64_t k = 0; k < kO; ++k) out[k] += x * w[row * kO + k];
    };
    for (int64_t i = 0; i < kF; ++i) add(i, features[i]);
    for (int64_t j = 0; j < hidden_size_; ++j) {
      double x = d[j];
      for (int64_t i = 0; i < kF; ++i) x += features[i] * v[i * hidden_size_ + j];
      add(kF + j, std::tanh(x));
    }
    return out;
  }

 private:
  int64_t hidden_size_;
  std::vector<float> theta_;
};

class ScheduledRule : public UpdateRule {
 public:
  ScheduledRule(const LearnedSchedulerOptions& options, std::unique_ptr<UpdateRule> rule,
                std::span<const float> network)
      : UpdateRule(rule->params_layout(),
                   StateLayoutOf(rule->params_layout(), rule->state_layout())),
        options_(options),
        rule_(std::move(rule)),
        network_(options.hidden_size, network) {}

 private:
  // One tensor in an update.
  struct Tensor {
    const Shape& shape;
    std::span<const float> gradient;
    std::span<const float> before;
    std::span<float> params;  // after the optimizer's step
    std::span<float> last;
    std::span<float> means;
  };

  void DoInitState(const StepInfo& info, std::span<const float> params,
                   std::span<float> state) const override {
    rule_->InitState(info, params, state.first(rule_->state_layout().size()));
    std::ranges::fill(state.subspan(rule_->state_layout().size()), 0.0f);
  }

  void DoUpdate(const StepInfo& info, std::span<const float> gradient, std::span<float> params,
                std::span<float> state, Workspace& scratch) const override {
    const Workspace::Frame frame(scratch);
    const std::span<float> before = scratch.Take<float>(std::ssize(params));
    std::ranges::copy(params, before.begin());
    const int64_t optimizer = rule_->state_layout().size();
    rule_->Update(info, gradient, params, state.first(optimizer), scratch);
    const std::span<float> last = state.subspan(optimizer, params.size());
    std::span<float> means = state.subspan(optimizer + params.size());
    for (const LayoutEntry& e : params_layout().entries()) {
      const auto of = [&](auto span) { return span.subspan(e.offset, e.size); };
      if (e.size > 0) {
        Step(info, {.shape = e.shape,
                    .gradient = of(gradient),
                    .before = of(std::span<const float>(before)),
                    .params = of(params),
                    .last = of(last),
                    .means = means.first(kMeans)});
      }
      means = means.subspan(kMeans);
    }
  }

  void Step(const StepInfo& info, const Tensor& x) const {
    const auto n = std::ssize(x.params);
    const auto size = static_cast<double>(n);
    const double columns = x.shape.empty() ? 1.0 : static_cast<double>(x.shape.back());
    const double longest = std::max(size / columns, columns);
    const SchedulerSums sums = SumsOfScheduler(x.gradient, x.before, x.params, x.last);
    if (!std::isfinite(sums.ss) && std::isfinite(sums.pp)) {
      // The optimizer's step is too large for float32. The params show it; the state stays finite.
      Features(info, x, columns, sums, 0);
      std::ranges::fill(x.last, 0.0f);
      return;
    }
    const double step2 = sums.ss;
    const auto out = network_(Features(info, x, columns, sums, step2));
    const double factor = ScheduleFactor(options_.schedule, info);
    const double wanted =
        options_.step_size * factor * std::exp(std::min(out[0], 10.0)) / std::sqrt(longest);
    const double exact = step2 > 0 ? wanted / std::sqrt(step2 / size) : 0.0;
    const auto scale = static_cast<float>(exact);
    // Of steps so small or so large that float32 cannot hold their factor.
    const bool wide = step2 > 0 && std::isfinite(step2) && wanted > 0 && !std::isnormal(scale);
    const auto decay = static_cast<float>(
        std::min(1.0, options_.weight_decay * factor * std::exp(std::min(2 * out[1], 10.0))));
    if (!wide) {
      StepOfScheduler(scale, decay, x.before, x.params, x.last);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const float p = x.before[i];
      x.last[i] = static_cast<float>(exact * double{p - x.params[i]});
      x.params[i] = (p - x.last[i]) - decay * p;
    }
  }

  // step2 is sums.ss, or 0 where the step counts as none.
  std::array<double, kF> Features(const StepInfo& info, const Tensor& x, double columns,
                                  const SchedulerSums& sums, double step2) const {
    const auto size = static_cast<double>(x.params.size());
    const auto t = static_cast<double>(info.step);
    const auto steps = static_cast<double>(info.num_steps);
    const double gradient2 = sums.gg;
    const double to_last = Cosine(sums.gl, gradient2, sums.ll);
    const double to_step = Cosine(sums.gs, gradient2, step2);
    const double square = std::min(gradient2 / size, 1e30);  // the means are float32
    const std::array<double, kMeans> values = {to_last, to_last, to_step, square, square};
    std::array<double, kMeans> means;
    for (int64_t i = 0; i < kMeans; ++i) {
      const double k = kMeanDecays[i];
      x.means[i] = static_cast<float>(k * x.means[i] + (1 - k) * values[i]);
      means[i] = x.means[i] / (1 - std::pow(k, t + 1));
    }
    return {2 * t / steps - 1,
            (std::log(steps) - 5.5) / 2,
            std::exp(-t / 10),
            3 * means[0],
            5 * means[1],
            3 * means[2] - 1,
            means[3] > 0 && means[4] > 0 ? std::clamp(std::log(means[4] / means[3]) / 2, -20.0, 3.0)
                                         : -20.0,
            (std::log(std::max(sums.pp / size, 1e-8)) / 2 + 2) / 2,
            (std::log(size / columns) - 3) / 2,
            (std::log(columns) - 3) / 2,
            x.shape.size() >= 2 ? 1.0 : -1.0};
  }

  const LearnedSchedulerOptions options_;
  const std::unique_ptr<UpdateRule> rule_;
  const Network network_;
};

// All but the optimizer, which a constructor may be given beside them.
void VisitOwnOptions(FieldVisitor& v, LearnedSchedulerOptions* options) {
  v.Field("hidden_size", &options->hidden_size, Between(1, 65536),
          "Width of the network's hidden layer.");
  v.Field("step_size", &options->step_size, Above(0),
          "Size of the first steps in a run of 245: a vector's length, an orthogonal matrix's "
          "spectral norm.");
  v.Field("weight_decay", &options->weight_decay, Between(0, 1),
          "Fraction of the params that a step takes away where the network says 0.");
  VisitSchedule(v, &options->schedule);
}

LearnedSchedulerOptions Checked(LearnedSchedulerOptions options) {
  CheckFields("LearnedScheduler", [&](FieldVisitor& v) { VisitOwnOptions(v, &options); });
  return options;
}

}  // namespace

void LearnedSchedulerOptions::Visit(FieldVisitor& v) {
  v.Typed("optimizer", &optimizer, OptimizerRegistry().table(),
          "The optimizer whose directions are kept.");
  VisitOwnOptions(v, this);
}

LearnedScheduler::LearnedScheduler(const LearnedSchedulerOptions& options)
    : LearnedScheduler(options, OptimizerRegistry().Make(options.optimizer)) {}

LearnedScheduler::LearnedScheduler(const LearnedSchedulerOptions& options,
                                   const std::shared_ptr<const LearnedOptimizer>& optimizer)
    : OfAnotherOptimizer(optimizer,
                         ThetaLayout(Checked(options).hidden_size, optimizer->theta_layout()),
                         "LearnedScheduler"),
      options_(options) {}

void LearnedScheduler::DoInitTheta(Key key, std::span<float> theta) const {
  std::ranges::fill(theta, 0.0f);
  const Eigen::VectorXf initial = optimizer().InitTheta(FoldIn(key, 0));
  std::copy(initial.begin(), initial.end(), theta.begin());
  const LayoutEntry& hidden = theta_layout().Find("scheduler/hidden/w");
  InitLayer(FoldIn(key, 1), kF, theta.subspan(hidden.offset, hidden.size));
  const int64_t out = theta_layout().Find("scheduler/out/w").offset;
  theta[out + 1 * kO] = -1;
  theta[out + 3 * kO] = 0.3f;
  theta[out + 6 * kO] = 0.5f;
}

std::unique_ptr<UpdateRule> LearnedScheduler::DoBind(const Layout& params,
                                                     std::span<const float> theta) const {
  const int64_t own = optimizer().theta_layout().size();
  auto rule = optimizer().Bind(params, theta.first(own));
  RequireStepsMakeParams(*rule, "LearnedScheduler");
  return std::make_unique<ScheduledRule>(options_, std::move(rule), theta.subspan(own));
}

}  // namespace lopt
