#include "lopt/estimators/lopt_state.h"

#include <utility>

namespace lopt {
namespace {

std::span<float> Floats(UnrollState* state, const char* name, int64_t replicas,
                        const Layout& layout) {
  return state->At(name, DType::kFloat32, {replicas, layout.size()}).As<float>();
}

std::span<int64_t> Counters(UnrollState* state, const char* name, int64_t replicas) {
  return state->At(name, DType::kInt64, {replicas}).As<int64_t>();
}

}  // namespace

LoptCounters::LoptCounters(int64_t replicas, UnrollState* state)
    : inner_step(Counters(state, "inner_step", replicas)),
      length(Counters(state, "length", replicas)),
      episode(Counters(state, "episode", replicas)),
      horizon(Counters(state, "horizon", replicas)),
      order(Counters(state, "order", replicas)) {}

int64_t LoptCounters::NumSteps(int64_t b) const { return TruncationSchedule::NumSteps(length[b]); }

bool LoptCounters::CountStep(int64_t k, int64_t b, UnrollTrace* trace) const {
  trace->iteration(k, b) = inner_step[b];
  ++inner_step[b];
  const bool is_last = inner_step[b] == length[b];
  trace->is_last(k, b) = is_last;
  if (!is_last || horizon[b] != 0) return false;
  inner_step[b] = 0;
  return true;
}

void LoptCounters::FollowWith(int64_t b, const LoptProblem::Episode& next) const {
  length[b] = next.length;
  order[b] = next.order;
  ++episode[b];
}

LoptState::LoptState(const LoptProblem& problem, int64_t replicas, UnrollState* state)
    : LoptCounters(replicas, state),
      config(Floats(state, "config", replicas, problem.task().config_layout())),
      params(Floats(state, "params", replicas, problem.task().params_layout())),
      model_state(Floats(state, "model_state", replicas, problem.task().model_state_layout())),
      optimizer_state(
          Floats(state, "optimizer_state", replicas, problem.optimizer_state_layout())) {}

LoptProblem::ReplicaRow LoptState::Row(const LoptProblem& problem, int64_t replica) const {
  const TaskFamily& task = problem.task();
  return {
      .config = RowsOf(config, replica, task.config_layout().size()),
      .params = RowsOf(params, replica, task.params_layout().size()),
      .model_state = RowsOf(model_state, replica, task.model_state_layout().size()),
      .optimizer_state = RowsOf(optimizer_state, replica, problem.optimizer_state_layout().size())};
}

UnrollState MakeLoptState(const LoptProblem& problem, int64_t replicas) {
  UnrollState state;
  const auto add = [&](const char* name, const Layout& layout) {
    state.Set(name, Array(DType::kFloat32, {replicas, layout.size()}));
  };
  add("config", problem.task().config_layout());
  add("params", problem.task().params_layout());
  add("model_state", problem.task().model_state_layout());
  add("optimizer_state", problem.optimizer_state_layout());
  for (const char* name : {"inner_step", "length", "episode", "horizon", "order"}) {
    state.Set(name, Array(DType::kInt64, {replicas}));
  }
  return state;
}

}  // namespace lopt
