#include "lopt/lopt/check/optimizer_checks.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/compare.h"
#include "lopt/base/eigen.h"
#include "lopt/base/key.h"
#include "lopt/base/parallel.h"

namespace lopt::checks {
namespace {

constexpr const char* kHeader = "lopt/lopt/learned_optimizer.h";

// Steps of the runs below, of which each makes the first few.
constexpr int64_t kRunLength = 100;
constexpr float kOtherNumber = 7;

// Tensors of ranks 0 to 4, around the widths of vector registers, and an empty one.
std::vector<Layout> ParamsLayouts() {
  return {Layout({{"scalar", Shape{}}}), Layout({{"bias", {17}}}),
          Layout({{"scalar", {}},
                  {"vector", {7}},
                  {"matrix", {5, 3}},
                  {"cube", {2, 3, 3}},
                  {"kernel", {2, 1, 3, 3}},
                  {"empty", {0, 4}},
                  {"row", {1, 16}},
                  {"long", {33}}})};
}

std::string NameOf(const Layout& layout) {
  return layout.entries().size() == 1
             ? fmt::format("tensor {}", ToString(layout.entries()[0].shape))
             : fmt::format("{} tensors", layout.entries().size());
}

// Params under training: all that an optimizer may know between two updates.
struct Training {
  std::vector<float> params;
  std::vector<float> state;
};

Training StartTraining(const UpdateRule& rule, uint64_t seed, float garbage = kNaN) {
  Training training{std::vector<float>(rule.params_layout().size()),
                    std::vector<float>(rule.state_layout().size(), garbage)};
  Normal(KeyFromSeed(seed), training.params);
  rule.InitState({.num_steps = kRunLength}, training.params, training.state);
  return training;
}

std::string Differing(const Training& a, const Training& b) {
  const bool params = SameBits(a.params, b.params);
  const bool state = SameBits(a.state, b.state);
  if (params && state) return "";
  if (params) return "state";
  return state ? "params" : "params and state";
}

// Updates [first, last) along gradients of seed `seed`.
void Train(const UpdateRule& rule, uint64_t seed, int64_t first, int64_t last,
           std::span<float> params, std::span<float> state, float garbage = kNaN) {
  std::vector<float> gradient(params.size());
  Workspace scratch;
  for (int64_t step = first; step < last; ++step) {
    const Key key = FoldIn(KeyFromSeed(seed), static_cast<uint64_t>(step));
    Normal(key, gradient);
    Dirty(scratch, garbage);
    rule.Update({.step = step, .num_steps = kRunLength, .loss = 1 / (1 + static_cast<float>(step))},
                gradient, params, state, scratch);
  }
}

Training Trained(const UpdateRule& rule, uint64_t seed, int64_t steps, float garbage = kNaN) {
  Training training = StartTraining(rule, seed);
  Train(rule, seed, 0, steps, training.params, training.state, garbage);
  return training;
}

void CheckInitTheta(const LearnedOptimizer& optimizer, Findings* findings) {
  const Eigen::VectorXf theta = optimizer.InitTheta(KeyFromSeed(1));
  findings->Expect(theta.size() >= 1, "theta has no numbers");
  findings->Expect(theta.size() == optimizer.theta_layout().size(),
                   "theta has {} numbers, its layout has {}", theta.size(),
                   optimizer.theta_layout().size());
  findings->Expect(AllFinite(theta), "the initial theta is not finite");
  findings->Expect(SameBits(theta, optimizer.InitTheta(KeyFromSeed(1))),
                   "InitTheta called twice with the same key differs: it is not a function of the "
                   "key, or does not write all of theta");
  findings->Measure("{} numbers", theta.size());
}

void CheckLayouts(const LearnedOptimizer& optimizer, Findings* findings) {
  for (const Layout& params : ParamsLayouts()) {
    const auto rule = optimizer.Bind(params, DrawTheta(optimizer, 1));
    findings->Expect(rule->params_layout() == params,
                     "a rule bound to {} has another layout of params", NameOf(params));
    findings->Expect(rule->state_layout() == optimizer.StateLayout(params),
                     "for {} the layout of the state depends on theta", NameOf(params));
  }
}

void CheckSizes(const LearnedOptimizer& optimizer, Findings* findings) {
  const Layout layout = ParamsLayouts().back();
  std::vector<float> theta = DrawTheta(optimizer, 1);
  const auto rule = optimizer.Bind(layout, theta);
  theta.emplace_back();
  findings->ExpectError("theta", [&] { optimizer.Bind(layout, theta); });
  theta.resize(theta.size() - 2);
  findings->ExpectError("theta", [&] { optimizer.Bind(layout, theta); });

  const std::vector<float> gradient(layout.size());
  Training good = StartTraining(*rule, 1);
  const auto expect = [&](const char* span, const auto& spoil) {
    std::vector<float> g = gradient;
    Training t = good;
    spoil(g, t);
    Workspace scratch;
    findings->ExpectError(span, [&] { rule->Update({}, g, t.params, t.state, scratch); });
  };
  expect("gradient", [](auto& g, auto&) { g.emplace_back(); });
  expect("gradient", [](auto& g, auto&) { g.clear(); });
  expect("params", [](auto&, auto& t) { t.params.pop_back(); });
  expect("state", [](auto&, auto& t) { t.state.emplace_back(); });
  std::vector<float> longer = good.params;
  longer.emplace_back();
  findings->ExpectError("params", [&] { rule->InitState({}, longer, good.state); });
  good.state.emplace_back();
  findings->ExpectError("state", [&] { rule->InitState({}, good.params, good.state); });
}

void CheckStart(const LearnedOptimizer& optimizer, Findings* findings) {
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 2));
    const Training first = StartTraining(*rule, 3);
    const Training second = StartTraining(*rule, 3, kOtherNumber);
    findings->Expect(SameBits(first.state, second.state),
                     "for {} InitState does not write all of the state: some of it is what was in "
                     "memory before",
                     NameOf(layout));
    findings->Expect(AllFinite(second.state), "for {} the initial state is not finite",
                     NameOf(layout));
  }
}

// What Update reads, what it leaves as it is, and what it must not touch.
void CheckInputs(const LearnedOptimizer& optimizer, Findings* findings) {
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
    Training training = StartTraining(*rule, 1);
    std::vector<float> gradient(layout.size());
    Normal(KeyFromSeed(2), gradient);
    const std::vector<float> given = gradient;
    Workspace scratch;
    rule->Update({.num_steps = kRunLength, .loss = 1}, gradient, training.params, training.state,
                 scratch);
    findings->Expect(SameBits(gradient, given), "for {} Update changes the gradient",
                     NameOf(layout));
    // What differs without other garbage is another check's.
    const Training trained = Trained(*rule, 1, 3);
    if (!Differing(trained, Trained(*rule, 1, 3)).empty()) continue;
    const std::string differing = Differing(trained, Trained(*rule, 1, 3, kOtherNumber));
    findings->Expect(differing.empty(),
                     "for {} other {} come of other numbers in scratch memory: it is read before "
                     "it is written",
                     NameOf(layout), differing);
  }
}

// Params and state are all there is: a rule bound anew goes on from a copy of them.
void CheckTrainingResumes(const LearnedOptimizer& optimizer, Findings* findings) {
  for (const Layout& layout : ParamsLayouts()) {
    const std::vector<float> theta = DrawTheta(optimizer, 2);
    const auto rule = optimizer.Bind(layout, theta);
    Training whole = StartTraining(*rule, 3);
    Training saved = StartTraining(*rule, 3);
    Train(*rule, 4, 0, 10, whole.params, whole.state);
    Train(*rule, 4, 0, 5, saved.params, saved.state);
    Training resumed = saved;
    Train(*rule, 99, 5, 8, saved.params, saved.state);  // something else in between
    Train(*optimizer.Bind(layout, theta), 4, 5, 10, resumed.params, resumed.state);
    const std::string differing = Differing(whole, resumed);
    findings->Expect(differing.empty(),
                     "for {} 5 updates and 5 more by a rule bound anew give other {} than 10: "
                     "something is kept elsewhere than in the state",
                     NameOf(layout), differing);
    findings->Expect(AllFinite(whole.params), "for {} params are not finite after 10 updates",
                     NameOf(layout));
    findings->Expect(AllFinite(whole.state), "for {} the state is not finite after 10 updates",
                     NameOf(layout));
    findings->Expect(!SameBits(whole.params, StartTraining(*rule, 3).params),
                     "for {} params are the same after 10 updates", NameOf(layout));
  }
}

void CheckThetaMatters(const LearnedOptimizer& optimizer, Findings* findings) {
  const Layout layout = ParamsLayouts().back();
  const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
  const auto other = optimizer.Bind(layout, DrawTheta(optimizer, 2));
  findings->Expect(
      SameBits(StartTraining(*rule, 1).params, StartTraining(*other, 1, kOtherNumber).params),
      "InitState changes the params");
  findings->Expect(!SameBits(Trained(*rule, 1, 3).params, Trained(*other, 1, 3).params),
                   "two thetas give the same params: theta is not used");
}

void CheckAlignmentDoesNotMatter(const LearnedOptimizer& optimizer, Findings* findings) {
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
    const Training aligned = StartTraining(*rule, 5);
    for (const size_t shift : {1, 3}) {
      const auto shifted = [&](const std::vector<float>& values) {
        std::vector<float> moved(shift, kNaN);
        moved.insert(moved.end(), values.begin(), values.end());
        moved.emplace_back(kNaN);
        return moved;
      };
      std::vector<float> params = shifted(aligned.params);
      std::vector<float> state = shifted(aligned.state);
      const std::span params_part = std::span(params).subspan(shift, aligned.params.size());
      const std::span state_part = std::span(state).subspan(shift, aligned.state.size());
      Training expected = aligned;
      Train(*rule, 6, 0, 4, expected.params, expected.state);
      Train(*rule, 6, 0, 4, params_part, state_part);
      const auto expect = [&](const char* what, const auto& wanted, const auto& got,
                              const std::vector<float>& around) {
        findings->Expect(SameBits(wanted, got),
                         "for {} the {} differ where they lie {} floats further in memory",
                         NameOf(layout), what, shift);
        findings->Expect(std::isnan(around.back()) && std::isnan(around[shift - 1]),
                         "for {} Update writes beside the {}", NameOf(layout), what);
      };
      expect("params", expected.params, params_part, params);
      expect("state", expected.state, state_part, state);
    }
  }
}

void CheckThreads(const LearnedOptimizer& optimizer, Findings* findings) {
  constexpr int64_t kRuns = 24;
  constexpr int kThreads = 8;
  const Layout layout = ParamsLayouts().back();
  const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
  const auto run = [&](int64_t n) { return Trained(*rule, static_cast<uint64_t>(n), 6); };
  const Training outside = run(0);
  for (const int threads : {1, 2, kThreads}) {
    Training inside;
    ThreadPool(threads).Run([&] { inside = run(0); });
    const std::string differing = Differing(outside, inside);
    findings->Expect(differing.empty(), "on a pool of {} threads it gives other {}", threads,
                     differing);
  }
  std::vector<Training> together(kRuns);
  ThreadPool(kThreads).Run([&] { ParallelFor(kRuns, [&](int64_t n) { together[n] = run(n); }); });
  for (int64_t n = 0; n < kRuns; ++n) {
    const std::string differing = Differing(together[n], run(n));
    findings->Expect(differing.empty(),
                     "a training beside others on {} threads has other {} than alone", kThreads,
                     differing);
  }
}

void CheckZeroGradient(const LearnedOptimizer& optimizer, Findings* findings) {
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
    for (const float value : {0.0F, 1.0F}) {
      Training training{std::vector<float>(layout.size(), value),
                        std::vector<float>(rule->state_layout().size())};
      const std::vector<float> gradient(layout.size());
      Workspace scratch;
      for (int64_t step = 0; step < 3; ++step) {
        rule->Update({.step = step, .num_steps = kRunLength}, gradient, training.params,
                     training.state, scratch);
      }
      findings->Expect(AllFinite(training.params),
                       "for {} with params of {} they are not finite after gradients of 0",
                       NameOf(layout), value);
      findings->Expect(AllFinite(training.state),
                       "for {} with params of {} the state is not finite after gradients of 0",
                       NameOf(layout), value);
    }
  }
}

// Updates go without the length of the run exactly where the optimizer does not say that it is
// needed.
void CheckNeedOfNumSteps(const LearnedOptimizer& optimizer, Findings* findings) {
  const Layout layout = ParamsLayouts().back();
  const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
  const std::vector<float> gradient(layout.size(), 0.5F);
  Workspace scratch;
  for (const StepInfo& info : {StepInfo{}, StepInfo{.step = 5, .num_steps = 5}}) {
    Training training = StartTraining(*rule, 1);
    const Training before = training;
    const auto update = [&] {
      rule->Update(info, gradient, training.params, training.state, scratch);
    };
    if (optimizer.needs_num_steps().empty()) {
      update();
      findings->Expect(AllFinite(training.params),
                       "without the length of the run params are not finite");
      findings->Expect(!Differing(training, before).empty(),
                       "without the length of the run an update changes nothing");
    } else {
      findings->ExpectError(optimizer.needs_num_steps() + " needs the length of the run", update);
      findings->Expect(Differing(training, before).empty(),
                       "an update that is refused changes the {}", Differing(training, before));
    }
  }
}

void CheckAllocations(const LearnedOptimizer& optimizer, Findings* findings) {
  constexpr int64_t kUpdates = 5;
  if (findings->allocations() == nullptr) return findings->Measure("not counted");
  for (const Layout& layout : ParamsLayouts()) {
    const auto rule = optimizer.Bind(layout, DrawTheta(optimizer, 1));
    Training training = StartTraining(*rule, 1);
    const std::vector<float> gradient(layout.size(), 0.5F);
    Workspace scratch;
    const auto update = [&](int64_t step) {
      rule->Update({.step = step, .num_steps = kRunLength, .loss = 1}, gradient, training.params,
                   training.state, scratch);
    };
    for (int64_t step = 0; step < 2; ++step) update(step);  // SOAP's first takes no scratch
    const Allocations before = findings->allocations()();
    for (int64_t step = 2; step < 2 + kUpdates; ++step) update(step);
    const Allocations after = findings->allocations()();
    findings->Expect(after.count == before.count,
                     "for {} {} updates took memory {} times, {} bytes, beside their scratch "
                     "memory",
                     NameOf(layout), kUpdates, after.count - before.count,
                     after.bytes - before.bytes);
  }
}

}  // namespace

std::vector<float> DrawTheta(const LearnedOptimizer& optimizer, uint64_t seed) {
  const Eigen::VectorXf initial = optimizer.InitTheta(KeyFromSeed(seed));
  std::vector<float> theta(initial.begin(), initial.end());
  std::vector<float> noise(theta.size());
  Normal(FoldIn(KeyFromSeed(seed), 1), noise);
  for (size_t i = 0; i < theta.size(); ++i) theta[i] += 0.05F * noise[i];
  return theta;
}

const std::vector<Check<LearnedOptimizer>>& OptimizerChecks() {
  static const std::vector<Check<LearnedOptimizer>> checks = {
      {"theta", "The initial theta is finite, of its layout's size and a function of the key.",
       kHeader, CheckInitTheta},
      {"layouts", "Rules have the layouts that the optimizer says.", kHeader, CheckLayouts},
      {"sizes", "A span of another size than its layout's is an Error that names it.", kHeader,
       CheckSizes},
      {"start", "InitState writes all of the state, with finite numbers.", kHeader, CheckStart},
      {"inputs",
       "Update leaves the gradient as it is and reads no scratch memory unwritten.",
       kHeader,
       CheckInputs,
       {"theta", "start"}},
      {"theta matters",
       "Another theta makes other updates.",
       kHeader,
       CheckThetaMatters,
       {"theta", "start"}},
      {"resume",
       "Params and state are all: a training goes on from a copy, bit for bit.",
       kHeader,
       CheckTrainingResumes,
       {"theta", "start", "inputs"}},
      {"alignment",
       "Params and state may lie anywhere, and nothing beside them is written.",
       kHeader,
       CheckAlignmentDoesNotMatter,
       {"theta", "start", "inputs", "resume"}},
      {"threads",
       "A rule is thread-safe and gives the same bits on any number of threads.",
       kHeader,
       CheckThreads,
       {"theta", "start", "inputs", "resume"}},
      {"zero gradient",
       "Gradients of zeros leave params and state finite.",
       kHeader,
       CheckZeroGradient,
       {"theta", "start", "inputs"}},
      {"run length",
       "Updates need the run's length exactly where the optimizer says so.",
       kHeader,
       CheckNeedOfNumSteps,
       {"theta", "start", "inputs"}},
      {"allocations",
       "Updates take no memory but their scratch memory.",
       kHeader,
       CheckAllocations,
       {"theta", "start", "inputs"}},
  };
  return checks;
}

}  // namespace lopt::checks
