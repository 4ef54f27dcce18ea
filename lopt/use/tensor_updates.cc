#include "lopt/lopt/use/tensor_updates.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/finite.h"
#include "lopt/base/key.h"
#include "lopt/lopt/registry.h"

namespace lopt {
namespace {

// Fewer elements than this are not worth waking other threads for.
constexpr int64_t kParallelElements = 8192;
// Elements of a tensor that one thread looks at.
constexpr int64_t kElementsPiece = 1 << 16;

// Calls body(begin, end) for pieces of [0, n), in parallel.
template <class Body>
void ForPieces(int64_t n, const Body& body) {
  ParallelFor((n + kElementsPiece - 1) / kElementsPiece,
              [&](int64_t i) { body(i * kElementsPiece, std::min(n, (i + 1) * kElementsPiece)); });
}

// The params after two updates, each with the params as they are for the gradient.
std::vector<float> TwoUpdates(const UpdateRule& rule, std::span<const float> start) {
  std::vector<float> params(start.begin(), start.end());
  std::vector<float> state(static_cast<size_t>(rule.state_layout().size()));
  StepInfo info = {.num_steps = 2};
  rule.InitState(info, params, state);
  Workspace scratch;
  for (; info.step < info.num_steps; ++info.step) {
    const std::vector<float> gradient = params;
    rule.Update(info, gradient, params, state, scratch);
  }
  return params;
}

// Whether two tensors are updated together as each is by itself.
bool TreatsTensorsSeparately(const LearnedOptimizer& optimizer, std::span<const float> theta) {
  const Layout both({{"a", {3}}, {"b", {4, 3}}});
  const auto rule = optimizer.Bind(both, theta);
  std::vector<float> start(static_cast<size_t>(both.size()));
  Normal(KeyFromSeed(0), start);
  const std::vector<float> together = TwoUpdates(*rule, start);
  int64_t state_size = 0;
  for (const LayoutEntry& entry : both.entries()) {
    const auto alone = optimizer.Bind(Layout({{entry.name, entry.shape}}), theta);
    state_size += alone->state_layout().size();
    const std::vector<float> separate =
        TwoUpdates(*alone, std::span(start).subspan(entry.offset, entry.size));
    if (std::memcmp(separate.data(), together.data() + entry.offset,
                    separate.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  const int64_t again = (std::ssize(both.entries()) - 1) * optimizer.run_state_size();
  return state_size - again == rule->state_layout().size();
}

bool AllFiniteInPieces(std::span<const float> values) {
  std::atomic<bool> finite = true;
  ForPieces(std::ssize(values), [&](int64_t begin, int64_t end) {
    if (!AllFinite(values.subspan(begin, end - begin))) finite = false;
  });
  return finite;
}

void CopyInPieces(std::span<const float> from, std::span<float> to) {
  ForPieces(std::ssize(from), [&](int64_t begin, int64_t end) {
    std::copy(from.begin() + begin, from.begin() + end, to.begin() + begin);
  });
}

std::vector<int64_t> NumbersOf(const std::vector<std::atomic<bool>>& chosen) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) numbers.push_back(static_cast<int64_t>(i));
  }
  return numbers;
}

// The root of the mean square of a - b, in float64; in an order that threads do not change.
double RootMeanSquareApart(std::span<const float> a, std::span<const float> b) {
  if (a.empty()) return 0;
  std::vector<double> sums(
      static_cast<size_t>((std::ssize(a) + kElementsPiece - 1) / kElementsPiece));
  ForPieces(std::ssize(a), [&](int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const double apart = a[i] - b[i];
      sum += apart * apart;
    }
    sums[static_cast<size_t>(begin / kElementsPiece)] = sum;
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// What the options of `update` make of the change from `old` to its params. The part that weight
// decay takes.
double ApplyOptions(const TensorUpdate& update, std::span<const float> old) {
  const StepOptions& options = update.options;
  const double part = options.weight_decay == 0 ? 0
                                                : options.lr * options.weight_decay / kAdamWStep *
                                                      RootMeanSquareApart(update.params, old);
  const auto lr = static_cast<float>(options.lr);
  const auto decay = static_cast<float>(part);
  ForPieces(std::ssize(old), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float before = old[i];
      const bool keep = options.skip_zero_gradients && update.gradient[i] == 0;
      const float change = (update.params[i] - before) * lr - before * decay;
      update.params[i] = keep ? before : before + change;
    }
  });
  return part;
}

}  // namespace

namespace {

// RunUpdate with `before`, a copy of the params, which updates with plain options do not read.
double RunFrom(const TensorUpdate& update, std::span<const float> before, Workspace& scratch) {
  update.rule->Update(update.info, update.gradient, update.params, update.state, scratch);
  return update.options.plain() ? 0 : ApplyOptions(update, before);
}

// RunUpdate, but params that it would make not finite of finite ones keep their values. Whether it
// did not come to that.
bool RunOrLeave(const TensorUpdate& update, Workspace& scratch, double* decay) {
  const Workspace::Frame frame(scratch);
  const std::span<float> before = scratch.Take<float>(std::ssize(update.params));
  CopyInPieces(update.params, before);
  *decay = RunFrom(update, before, scratch);
  if (AllFiniteInPieces(update.params) || !AllFiniteInPieces(before)) return true;
  CopyInPieces(before, update.params);
  return false;
}

}  // namespace

double RunUpdate(const TensorUpdate& update, Workspace& scratch) {
  if (update.options.plain()) return RunFrom(update, {}, scratch);
  const Workspace::Frame frame(scratch);
  const std::span<float> before = scratch.Take<float>(std::ssize(update.params));
  CopyInPieces(update.params, before);
  return RunFrom(update, before, scratch);
}

TensorRules::TensorRules(const Config& learned_optimizer, Eigen::VectorXf theta)
    : optimizer_(OptimizerRegistry().Make(learned_optimizer)), theta_(std::move(theta)) {
  Require(theta_.size() == optimizer_->theta_layout().size(),
          "LearnedOptimizer: theta has {} numbers, a {} needs {}", theta_.size(),
          learned_optimizer.Type(), optimizer_->theta_layout().size());
  RequireFiniteWeights(optimizer_->theta_layout(), AsSpan(theta_),
                       "LearnedOptimizer: wanted a theta of finite numbers");
  Require(TreatsTensorsSeparately(*optimizer_, AsSpan(theta_)),
          "LearnedOptimizer: a {} does not treat each tensor by itself, which this class needs",
          learned_optimizer.Type());
}

const UpdateRule& TensorRules::For(const Shape& shape) {
  std::unique_ptr<UpdateRule>& rule = by_shape_[shape];
  if (rule == nullptr) {
    const Layout layout({{shape.size() < 2 ? "b" : "w", shape}});
    rule = optimizer_->Bind(layout, AsSpan(theta_));
  }
  return *rule;
}

void TensorUpdater::Run(int64_t elements, int threads, const std::function<void()>& work) {
  if (elements < kParallelElements || threads == 1) {
    work();
    return;
  }
  if (!pool_ || pool_->threads() != threads) pool_.emplace(threads);
  pool_->Run(work);
}

UpdateReport TensorUpdater::Update(std::span<const TensorUpdate> updates, int threads) {
  int64_t elements = 0;
  for (const TensorUpdate& update : updates) elements += std::ssize(update.params);
  std::vector<std::atomic<bool>> left(updates.size());
  std::vector<double> decays(updates.size());
  Run(elements, threads, [&] {
    ParallelFor(std::ssize(updates), [&](int64_t i) {
      const auto n = static_cast<size_t>(i);
      WorkspacePool::Lease scratch(workspaces_);
      left[n] = !RunOrLeave(updates[n], *scratch, &decays[n]);
    });
  });
  return {.left = NumbersOf(left), .decays = std::move(decays)};
}

std::vector<int64_t> TensorUpdater::NotFinite(std::span<const std::span<const float>> arrays,
                                              int threads) {
  int64_t elements = 0;
  for (const std::span<const float> array : arrays) elements += std::ssize(array);
  std::vector<std::atomic<bool>> bad(arrays.size());
  Run(elements, threads, [&] {
    ParallelFor(std::ssize(arrays), [&](int64_t i) {
      const auto n = static_cast<size_t>(i);
      if (!AllFiniteInPieces(arrays[n])) bad[n] = true;
    });
  });
  return NumbersOf(bad);
}

}  // namespace lopt
