#include "estimators/lopt_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/arrays.h"
#include "base/eigen.h"
#include "base/error.h"
#include "base/parallel.h"

namespace lopt {
namespace {

// What a replica's key is folded with, for each purpose.
enum ReplicaDraw : uint64_t {
  kTaskDraw = 0,
  kParamsDraw = 1,
  kLengthDraw = 2,
  kOffsetDraw = 3,
  kDataDraw = 4,
  kMetaDataDraw = 5,
  kUpdateDraw = 6,
  kRestartDraw = 7,
};

Key FoldIn2(Key key, uint64_t first, int64_t second) {
  return FoldIn(FoldIn(key, first), static_cast<uint64_t>(second));
}

// Row `row` of an array of rows of `size` numbers.
template <class T>
std::span<T> RowOf(std::span<T> rows, int64_t row, int64_t size) {
  return rows.subspan(static_cast<size_t>(row * size), static_cast<size_t>(size));
}

}  // namespace

// An unroll state's arrays, looked up and checked once.
struct LoptProblem::StateView {
  std::span<float> config;           // [B, C]
  std::span<float> params;           // [B, P]
  std::span<float> model_state;      // [B, M]
  std::span<float> optimizer_state;  // [B, S]
  std::span<int64_t> inner_step;     // the rest [B]
  std::span<int64_t> length;
  std::span<int64_t> episode;
  std::span<int64_t> horizon;
};

LoptProblem::StateView LoptProblem::View(UnrollState* state, int64_t replicas) const {
  const auto floats = [&](const char* name, const Layout& layout) {
    return state->At(name, DType::kFloat32, {replicas, layout.size()}).As<float>();
  };
  const auto counters = [&](const char* name) {
    return state->At(name, DType::kInt64, {replicas}).As<int64_t>();
  };
  return {.config = floats("config", task_->config_layout()),
          .params = floats("params", task_->params_layout()),
          .model_state = floats("model_state", task_->model_state_layout()),
          .optimizer_state = floats("optimizer_state", prototype_->state_layout()),
          .inner_step = counters("inner_step"),
          .length = counters("length"),
          .episode = counters("episode"),
          .horizon = counters("horizon")};
}

void LoptProblemOptions::Visit(FieldVisitor& v) {
  std::vector<std::string> meta_losses = {"before_update", "same_data"};
  for (const Split split : kSplits) {
    meta_losses.emplace_back(ToString(split));
  }
  v.Field(
      "meta_loss", &meta_loss, meta_losses,
      "The loss that theta is judged by at each inner step: the training loss before the update, "
      "the same batch's after it, or that of a fresh batch of a split after it.");
  v.Field("meta_loss_aux", &meta_loss_aux, {},
          "Name of an aux output of the task to use in place of the loss; empty: the loss.");
  v.Field(
      "non_finite", &non_finite, {"count", "clip", "abort"},
      "What a meta-loss that is not finite becomes. count: the maximum of the task's normalizer "
      "where it has one, else the step is left out for both twins; clip: that maximum, which the "
      "task must have; abort: an error.");
  v.Field("random_initial_iteration_offset", &random_initial_iteration_offset, AtLeast(0),
          "n > 0: the first episode of each task is shorter by a number drawn from [0, n).");
}

LoptProblem::LoptProblem(std::shared_ptr<const TaskFamily> task,
                         std::shared_ptr<const LearnedOptimizer> optimizer,
                         std::shared_ptr<const TruncationSchedule> schedule,
                         const LoptProblemOptions& options)
    : InnerProblem(optimizer->theta_layout()),
      task_(std::move(task)),
      optimizer_(std::move(optimizer)),
      schedule_(std::move(schedule)),
      options_(options) {
  if (options_.meta_loss != "before_update" && options_.meta_loss != "same_data") {
    meta_loss_split_ = SplitFromString(options_.meta_loss);
  }
  if (!options_.meta_loss_aux.empty()) {
    meta_loss_aux_ = task_->aux_layout().Find(options_.meta_loss_aux).offset;
  }
  Require(options_.non_finite != "clip" || task_->NormalizerMaximum().has_value(),
          "inner problem: non_finite is 'clip', but the task's normalizer has no maximum; choose "
          "'count' or 'abort'");
  const Eigen::VectorXf any_theta = optimizer_->InitTheta(Key{});
  prototype_ = optimizer_->Bind(task_->params_layout(), AsSpan(any_theta));
}

int64_t LoptProblem::BeginEpisode(Key key, const OuterState& outer, std::span<float> config,
                                  std::span<float> params, std::span<float> model_state,
                                  std::span<float> optimizer_state) const {
  task_->Sample(FoldIn(key, kTaskDraw), config);
  task_->Init(config, FoldIn(key, kParamsDraw), params, model_state);
  prototype_->InitState({}, params, optimizer_state);
  return schedule_->Length(FoldIn(key, kLengthDraw), outer);
}

double LoptProblem::JudgeLoss(std::span<const float> config, float raw, bool* non_finite) const {
  *non_finite = !std::isfinite(raw);
  if (!*non_finite) {
    return task_->Normalize(config, static_cast<double>(raw));
  }
  Require(options_.non_finite != "abort",
          "inner problem: a meta-loss is {}, and non_finite is 'abort'", raw);
  return task_->NormalizerMaximum().value_or(std::numeric_limits<double>::quiet_NaN());
}

UnrollState LoptProblem::DoStart(int64_t replicas, const OuterState& outer, Key key,
                                 std::optional<int64_t> horizon) const {
  const auto floats = [&](const Layout& layout) {
    return Array(DType::kFloat32, {replicas, layout.size()});
  };
  UnrollState state;
  state.Set("config", floats(task_->config_layout()));
  state.Set("params", floats(task_->params_layout()));
  state.Set("model_state", floats(task_->model_state_layout()));
  state.Set("optimizer_state", floats(prototype_->state_layout()));
  for (const char* name : {"inner_step", "length", "episode", "horizon"}) {
    state.Set(name, Array(DType::kInt64, {replicas}));
  }
  const StateView view = View(&state, replicas);
  ParallelFor(replicas, [&](int64_t b) {
    const Key replica_key = FoldIn(key, static_cast<uint64_t>(b));
    int64_t length =
        BeginEpisode(replica_key, outer, RowOf(view.config, b, task_->config_layout().size()),
                     RowOf(view.params, b, task_->params_layout().size()),
                     RowOf(view.model_state, b, task_->model_state_layout().size()),
                     RowOf(view.optimizer_state, b, prototype_->state_layout().size()));
    const int64_t offset = options_.random_initial_iteration_offset;
    if (offset > 0 && length != TruncationSchedule::kNever) {
      length = std::max<int64_t>(
          1, length - Randint(FoldIn(replica_key, kOffsetDraw), 0, static_cast<int32_t>(offset)));
    }
    view.length[b] = horizon.value_or(length);
    view.horizon[b] = horizon.has_value() ? 1 : 0;
  });
  return state;
}

int64_t LoptProblem::GroupRows(int64_t replicas) const {
  const int64_t preferred = task_->PreferredRows();
  return preferred == TaskFamily::kAllRows ? replicas : std::min(preferred, replicas);
}

void LoptProblem::DoRun(const ThetaRows& theta, const OuterState& outer, int64_t steps,
                        std::span<const Key> keys, UnrollState* state, UnrollTrace* trace) const {
  const StateView view = View(state, theta.rows);
  const int64_t group_rows = GroupRows(theta.rows);
  const int64_t groups = (theta.rows + group_rows - 1) / group_rows;
  ParallelFor(groups, [&](int64_t group) {
    const int64_t first = group * group_rows;
    RunGroup(first, std::min(group_rows, theta.rows - first), theta, outer, steps, keys, view,
             trace);
  });
}

// The working copy of a group's replicas, in scratch memory.
struct LoptProblem::Group {
  // What a replica draws from within its running episode.
  struct Keys {
    Key data;
    Key meta_data;
    Key update;
  };
  std::span<float> config;           // [n, C]
  std::span<float> params;           // [n, P]
  std::span<float> model_state;      // [n, M]
  std::span<float> optimizer_state;  // [n, S]
  std::span<int64_t> inner_step;     // [n]
  std::span<int64_t> length;         // [n]
  std::span<int64_t> episode;        // [n]
  std::span<float> gradients;        // [n, P]
  std::span<float> losses;           // [n]
  std::span<float> aux;              // [n, A]
  std::span<float> discarded;        // [n, M]: the model state of evaluations that do not train
  std::span<Key> step_keys;          // [n]
  std::span<Keys> episode_keys;      // [n]
};

void LoptProblem::RunGroup(int64_t first, int64_t rows, const ThetaRows& theta,
                           const OuterState& outer, int64_t steps, std::span<const Key> keys,
                           const StateView& view, UnrollTrace* trace) const {
  const int64_t config_size = task_->config_layout().size();
  const int64_t params_size = task_->params_layout().size();
  const int64_t model_state_size = task_->model_state_layout().size();
  const int64_t state_size = prototype_->state_layout().size();
  const int64_t aux_size = meta_loss_aux_ ? task_->aux_layout().size() : 0;

  WorkspacePool::Lease lease(workspaces_);
  Workspace& scratch = *lease;
  const Workspace::Frame frame(scratch);
  Group group{.config = scratch.Take<float>(rows * config_size),
              .params = scratch.Take<float>(rows * params_size),
              .model_state = scratch.Take<float>(rows * model_state_size),
              .optimizer_state = scratch.Take<float>(rows * state_size),
              .inner_step = scratch.Take<int64_t>(rows),
              .length = scratch.Take<int64_t>(rows),
              .episode = scratch.Take<int64_t>(rows),
              .gradients = scratch.Take<float>(rows * params_size),
              .losses = scratch.Take<float>(rows),
              .aux = scratch.Take<float>(rows * aux_size),
              .discarded = scratch.Take<float>(rows * model_state_size),
              .step_keys = scratch.Take<Key>(rows),
              .episode_keys = scratch.Take<Group::Keys>(rows)};
  std::ranges::copy(view.config.subspan(first * config_size, group.config.size()),
                    group.config.begin());
  std::ranges::copy(view.params.subspan(first * params_size, group.params.size()),
                    group.params.begin());
  std::ranges::copy(view.model_state.subspan(first * model_state_size, group.model_state.size()),
                    group.model_state.begin());
  std::ranges::copy(view.optimizer_state.subspan(first * state_size, group.optimizer_state.size()),
                    group.optimizer_state.begin());
  std::ranges::copy(view.inner_step.subspan(first, rows), group.inner_step.begin());
  std::ranges::copy(view.length.subspan(first, rows), group.length.begin());
  std::ranges::copy(view.episode.subspan(first, rows), group.episode.begin());

  std::vector<std::unique_ptr<UpdateRule>> rules(rows);
  {
    const Workspace::Frame theta_frame(scratch);
    const std::span<float> theta_row = scratch.Take<float>(std::ssize(theta.theta));
    for (int64_t r = 0; r < rows; ++r) {
      theta.Row(first + r, theta_row);
      rules[r] = optimizer_->Bind(task_->params_layout(), theta_row);
    }
  }

  const auto set_episode_keys = [&](int64_t r) {
    const Key key = keys[first + r];
    const int64_t episode = group.episode[r];
    group.episode_keys[r] = {.data = FoldIn2(key, kDataDraw, episode),
                             .meta_data = FoldIn2(key, kMetaDataDraw, episode),
                             .update = FoldIn2(key, kUpdateDraw, episode)};
  };
  for (int64_t r = 0; r < rows; ++r) {
    set_episode_keys(r);
  }

  // The meta-losses of step k from the raw losses (or aux outputs) that were evaluated last.
  const auto record_losses = [&](int64_t k) {
    for (int64_t r = 0; r < rows; ++r) {
      const float raw =
          meta_loss_aux_ ? group.aux[r * aux_size + *meta_loss_aux_] : group.losses[r];
      trace->loss(k, first + r) =
          JudgeLoss(RowOf(group.config, r, config_size), raw, &trace->non_finite(k, first + r));
    }
  };
  const auto update = [&](int64_t r, Workspace& workspace) {
    const int64_t step = group.inner_step[r];
    const int64_t length = group.length[r];
    rules[r]->Update({.step = step,
                      .num_steps = length == TruncationSchedule::kNever ? 0 : length,
                      .loss = group.losses[r],
                      .key = FoldIn(group.episode_keys[r].update, static_cast<uint64_t>(step))},
                     RowOf(group.gradients, r, params_size), RowOf(group.params, r, params_size),
                     RowOf(group.optimizer_state, r, state_size), workspace);
  };

  for (int64_t k = 0; k < steps; ++k) {
    for (int64_t r = 0; r < rows; ++r) {
      group.step_keys[r] =
          FoldIn(group.episode_keys[r].data, static_cast<uint64_t>(group.inner_step[r]));
    }
    task_->Evaluate({.rows = rows,
                     .config = group.config,
                     .params = group.params,
                     .model_state = group.model_state,
                     .split = Split::kTrain,
                     .keys = group.step_keys,
                     .examples = {},
                     .losses = group.losses,
                     .gradients = group.gradients,
                     .aux = group.aux},
                    scratch);
    const bool judged_before = options_.meta_loss == "before_update";
    if (judged_before) {
      record_losses(k);
    }
    if (rows == 1) {
      update(0, scratch);
    } else {
      ParallelFor(rows, [&](int64_t r) {
        WorkspacePool::Lease row_lease(workspaces_);
        update(r, *row_lease);
      });
    }
    if (!judged_before) {
      if (meta_loss_split_) {
        for (int64_t r = 0; r < rows; ++r) {
          group.step_keys[r] =
              FoldIn(group.episode_keys[r].meta_data, static_cast<uint64_t>(group.inner_step[r]));
        }
      }
      std::ranges::copy(group.model_state, group.discarded.begin());
      task_->Evaluate({.rows = rows,
                       .config = group.config,
                       .params = group.params,
                       .model_state = group.discarded,
                       .split = meta_loss_split_.value_or(Split::kTrain),
                       .keys = group.step_keys,
                       .examples = {},
                       .losses = group.losses,
                       .gradients = {},
                       .aux = group.aux},
                      scratch);
      record_losses(k);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t b = first + r;
      trace->iteration(k, b) = group.inner_step[r];
      ++group.inner_step[r];
      trace->is_last(k, b) = group.inner_step[r] == group.length[r];
      if (trace->is_last(k, b) && view.horizon[b] == 0) {
        group.length[r] =
            BeginEpisode(FoldIn2(keys[b], kRestartDraw, group.episode[r]), outer,
                         RowOf(group.config, r, config_size), RowOf(group.params, r, params_size),
                         RowOf(group.model_state, r, model_state_size),
                         RowOf(group.optimizer_state, r, state_size));
        group.inner_step[r] = 0;
        ++group.episode[r];
        set_episode_keys(r);
      }
    }
  }

  std::ranges::copy(group.config, view.config.subspan(first * config_size).begin());
  std::ranges::copy(group.params, view.params.subspan(first * params_size).begin());
  std::ranges::copy(group.model_state, view.model_state.subspan(first * model_state_size).begin());
  std::ranges::copy(group.optimizer_state,
                    view.optimizer_state.subspan(first * state_size).begin());
  std::ranges::copy(group.inner_step, view.inner_step.subspan(first).begin());
  std::ranges::copy(group.length, view.length.subspan(first).begin());
  std::ranges::copy(group.episode, view.episode.subspan(first).begin());
}

void LoptProblem::DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                             const UnrollState& state, std::span<double> loss) const {
  UnrollState copy = state;
  const StateView view = View(&copy, theta.rows);
  const int64_t config_size = task_->config_layout().size();
  const int64_t params_size = task_->params_layout().size();
  const int64_t model_state_size = task_->model_state_layout().size();
  const int64_t aux_size = meta_loss_aux_ ? task_->aux_layout().size() : 0;
  const int64_t group_rows = GroupRows(theta.rows);
  ParallelFor((theta.rows + group_rows - 1) / group_rows, [&](int64_t group) {
    const int64_t first = group * group_rows;
    const int64_t rows = std::min(group_rows, theta.rows - first);
    WorkspacePool::Lease lease(workspaces_);
    Workspace& scratch = *lease;
    const Workspace::Frame frame(scratch);
    const auto losses = scratch.Take<float>(rows);
    const auto aux = scratch.Take<float>(rows * aux_size);
    task_->Evaluate(
        {.rows = rows,
         .config = view.config.subspan(first * config_size, rows * config_size),
         .params = view.params.subspan(first * params_size, rows * params_size),
         .model_state = view.model_state.subspan(first * model_state_size, rows * model_state_size),
         .split = meta_loss_split_.value_or(Split::kTrain),
         .keys = keys.subspan(first, rows),
         .examples = {},
         .losses = losses,
         .gradients = {},
         .aux = aux},
        scratch);
    for (int64_t r = 0; r < rows; ++r) {
      bool non_finite = false;
      loss[first + r] =
          JudgeLoss(RowOf(view.config, first + r, config_size),
                    meta_loss_aux_ ? aux[r * aux_size + *meta_loss_aux_] : losses[r], &non_finite);
    }
  });
}

}  // namespace lopt
