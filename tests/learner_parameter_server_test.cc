#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/job/async_updates.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/lopt/learned_optimizer.h"

// What a parameter server does (pull, push, version, tolerance; docs/parameter_server.md), by the
// learner of the mode Async: the numbers are those of ElasticDL's tests (pserver_servicer_test.py,
// SGD with learning rate 0.1).

namespace lopt {
namespace {

// Two variables, v1 [3] and v2 [3].
class Variables final : public LearnedOptimizer {
 public:
  Variables() : LearnedOptimizer(Layout({{"v1", {3}}, {"v2", {3}}})) {}

 private:
  void DoInitTheta(Key, std::span<float>) const override {}
  std::unique_ptr<UpdateRule> DoBind(const Layout&, std::span<const float>) const override {
    Fail("these variables update nothing");
  }
};

Eigen::VectorXf Numbers(std::vector<float> numbers) {
  return Eigen::Map<const Eigen::VectorXf>(numbers.data(), std::ssize(numbers));
}

class Server {
 public:
  explicit Server(const AsyncOptions& options)
      : learner_(std::make_shared<Variables>(),
                 Config::Parse(R"({"type": "SGD", "learning_rate": 0.1})", "test")),
        transport_(std::move(MakeLocalTransports(1)[0])),
        loop_(transport_.get(), &wakeup_, {.on_poll = [] { return false; }}),
        state_{.learner = learner_.Init(Numbers({10, 20, 30, 20, 40, 60})),
               .totals = std::vector<StepCounts>(1),
               .ledger = Ledger(1, 1)},
        updates_(
            options, &learner_, &state_, &loop_, [] { return true; }, 1) {}

  // Pushes a gradient of the weights of this version; the version afterwards.
  int64_t Push(int64_t version, const std::vector<float>& gradient) {
    const StepCounts counts{.inner_steps = 1};
    WorkerGradient pushed{.first_window = windows_++, .windows = 1};
    pushed.gradient.outer_step = version;
    pushed.gradient.gradient = Numbers(gradient);
    pushed.gradient.counts = counts;
    pushed.gradient.estimators = {{.counts = counts}};
    updates_.Take(std::move(pushed));
    updates_.Make();  // if there are enough
    return state_.learner.outer_step;
  }
  int64_t refused() const { return state_.ledger.Total()[Outcome::kStale]; }
  const Eigen::VectorXf& weights() const { return state_.learner.theta; }

 private:
  GradientLearner learner_;
  Wakeup wakeup_;
  std::unique_ptr<Transport> transport_;
  MessageLoop loop_;
  RunState state_;
  AsyncUpdates updates_;
  int64_t windows_ = 0;
};

const std::vector<float> kFirst = {1, 2, 3, 2, 4, 6};
const std::vector<float> kSecond = {0, 0, 7, 9, 9, 6};

void CheckWeights(const Server& server, const std::vector<float>& expected) {
  CHECK_MESSAGE(server.weights().isApprox(Numbers(expected), 1e-6f), server.weights().transpose());
}

TEST_CASE("Two gradients make an update, and a push of the version before is refused") {
  Server server({.batch_size = 2, .staleness = 0});
  CHECK_EQ(server.Push(0, kFirst), 0);
  CHECK_EQ(server.Push(0, kSecond), 1);
  CheckWeights(server, {9.95f, 19.9f, 29.5f, 19.45f, 39.35f, 59.4f});
  CHECK_EQ(server.refused(), 0);
  CHECK_EQ(server.Push(0, kFirst), 1);
  CHECK_EQ(server.refused(), 1);
  CheckWeights(server, {9.95f, 19.9f, 29.5f, 19.45f, 39.35f, 59.4f});
}

TEST_CASE("One gradient makes an update, divided by the updates that it is behind") {
  Server server({.staleness_policy = StalenessPolicy::kDivide});
  CHECK_EQ(server.Push(0, kFirst), 1);
  CheckWeights(server, {9.9f, 19.8f, 29.7f, 19.8f, 39.6f, 59.4f});
  CHECK_EQ(server.Push(0, kFirst), 2);  // 1 behind: as it is
  CheckWeights(server, {9.8f, 19.6f, 29.4f, 19.6f, 39.2f, 58.8f});
  CHECK_EQ(server.Push(0, kFirst), 3);  // 2 behind: a half
  CheckWeights(server, {9.75f, 19.5f, 29.25f, 19.5f, 39, 58.5f});
  CHECK_EQ(server.Push(3, kFirst), 4);
  CheckWeights(server, {9.65f, 19.3f, 28.95f, 19.3f, 38.6f, 57.9f});
  CHECK_EQ(server.refused(), 0);
}

}  // namespace
}  // namespace lopt
