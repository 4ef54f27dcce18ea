#include "lopt/estimators/lopt_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/options.h"
#include "lopt/base/parallel.h"
#include "lopt/base/utf8.h"
#include "lopt/estimators/device_program.h"
#include "lopt/estimators/lopt_state.h"
#include "lopt/estimators/replica_keys.h"
#include "lopt/estimators/window_cpu.h"

namespace lopt {

std::optional<Split> SplitOf(MetaLoss meta_loss) {
  switch (meta_loss) {
    case MetaLoss::kTrain:
      return Split::kTrain;
    case MetaLoss::kInnerValid:
      return Split::kInnerValid;
    case MetaLoss::kOuterValid:
      return Split::kOuterValid;
    case MetaLoss::kTest:
      return Split::kTest;
    default:
      return std::nullopt;
  }
}

namespace {

// None without a name. Throws Error that lists the aux outputs if there is none of this name.
std::optional<int64_t> IndexOfAux(const Layout& aux, const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<std::string_view> names;
  for (const LayoutEntry& entry : aux.entries()) {
    if (entry.name == name) return entry.offset;
    names.push_back(entry.name);
  }
  Fail("inner problem: meta_loss_aux is '{}'; aux outputs of the task: {}", name,
       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

// NAME of "noted/NAME" in an optimizer's state, also in that of an optimizer inside it; behind
// "matrices." or "vectors." where it is one of two, which may note the same.
std::optional<std::string> NotedName(std::string_view tensor) {
  constexpr std::pair<std::string_view, std::string_view> kInside[] = {
      {"optimizer/", ""}, {"matrices/", "matrices."}, {"vectors/", "vectors."}};
  constexpr std::string_view kNoted = "noted/";
  std::string which;
  while (!tensor.starts_with(kNoted)) {
    const auto* const inside =
        std::ranges::find_if(kInside, [&](const auto& of) { return tensor.starts_with(of.first); });
    if (inside == std::end(kInside)) return std::nullopt;
    which += inside->second;
    tensor.remove_prefix(inside->first.size());
  }
  return which + std::string(tensor.substr(kNoted.size()));
}

// Appends a note of the tensor as `metric` + name. Throws Error unless it is a scalar and the name
// one of a metric, of no other note.
void AddNote(const std::string& metric, const std::string& name, const LayoutEntry& tensor,
             std::vector<Note>* notes) {
  constexpr size_t kMostBytes = 100;
  const bool plain = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  Require(
      plain && !name.empty() && name.size() <= kMostBytes,
      "inner problem: with_metrics would make a metric {}NAME of '{}'; wanted a name of 1 to {} "
      "letters, digits, '_', '-' and '.'",
      metric, PlainText(name), kMostBytes);
  Require(tensor.shape.empty(),
          "inner problem: with_metrics notes numbers, and '{}' has shape {}; wanted a scalar",
          tensor.name, ToString(tensor.shape));
  Require(std::ranges::find(*notes, metric + name, &Note::metric) == notes->end(),
          "inner problem: with_metrics would make the metric {} of '{}' and of another scalar; "
          "wanted different names",
          metric + name, tensor.name);
  notes->push_back({.metric = metric + name, .offset = tensor.offset});
}

std::unique_ptr<const UpdateRule> BindZeros(const LearnedOptimizer& optimizer,
                                            const Layout& params) {
  const std::vector<float> theta(static_cast<size_t>(optimizer.theta_layout().size()));
  return optimizer.Bind(params, theta);
}

}  // namespace

void LoptProblemOptions::Visit(FieldVisitor& v) {
  v.Choice(
      "meta_loss", &meta_loss, kMetaLosses,
      "The loss that theta is judged by at each inner step: the training loss before the update, "
      "the same batch's after it, or that of a fresh batch of a split after it.");
  v.Field("meta_loss_aux", &meta_loss_aux,
          "Name of an aux output of the task to use in place of the loss; empty: the loss.");
  v.Field(
      "meta_loss_log", &meta_loss_log, Above(0),
      "e: the meta-loss is ln(max(l, e)) of the loss l, so that a part of it counts the same "
      "however small it is. l is the mean over all fresh batches with loss_type last_recompute, "
      "which small batches want; otherwise it is that of one batch.");
  v.Choice(
      "non_finite", &non_finite, kNonFinites,
      "What a meta-loss that is not finite becomes. count: the maximum of the task's normalizer "
      "where it has one, else the step is left out for both replicas of the pair; clip: that "
      "maximum, which the "
      "task must have; abort: an error.");
  v.Field("random_initial_iteration_offset", &random_initial_iteration_offset,
          Between(0, std::numeric_limits<int32_t>::max()),
          "n > 0: the first episode of each task is shorter by a number drawn from [0, n), but has "
          "at least one step: tasks whose number is not below their episode's length restart "
          "together after it.");
  v.Field(
      "random_initial_iteration_multiple", &random_initial_iteration_multiple, Between(1, 10000000),
      "m > 1: the first episodes are shorter by multiples of m; trunc_length keeps windows from "
      "crossing the ends of episodes whose lengths are such multiples and no less than n.");
  v.Field("with_metrics", &with_metrics,
          "Whether metrics also have the task's aux outputs, as task/NAME, and what the optimizer "
          "notes, as optimizer/NAME: means over inner steps and replicas.");
}

LoptProblem::LoptProblem(std::shared_ptr<const TaskFamily> task,
                         std::shared_ptr<const LearnedOptimizer> optimizer,
                         std::shared_ptr<const TruncationSchedule> schedule,
                         const LoptProblemOptions& options, const Device* device)
    : InnerProblem(optimizer->theta_layout()),
      task_(std::move(task)),
      optimizer_(std::move(optimizer)),
      schedule_(std::move(schedule)),
      options_(options),
      meta_loss_split_(SplitOf(options.meta_loss)),
      rule_of_no_theta_(BindZeros(*optimizer_, task_->params_layout())),
      device_(device) {
  CheckOptions("inner problem", options_);
  meta_loss_aux_ = IndexOfAux(task_->aux_layout(), options_.meta_loss_aux);
  Require(options_.non_finite != NonFinite::kClip || task_->NormalizerMaximum().has_value(),
          "inner problem: non_finite is 'clip', but the task's normalizer has no maximum; choose "
          "'count' or 'abort'");
  Require(options_.random_initial_iteration_multiple == 1 ||
              options_.random_initial_iteration_offset > 0,
          "inner problem: random_initial_iteration_multiple is {}, but "
          "random_initial_iteration_offset is 0; no episode is made shorter",
          options_.random_initial_iteration_multiple);
  Require(options_.random_initial_iteration_offset == 0 || schedule_->EpisodesEnd(),
          "inner problem: random_initial_iteration_offset is {}, but no first episode can be "
          "shorter: episodes do not end, or the estimator runs whole ones",
          options_.random_initial_iteration_offset);
  if (options_.with_metrics) FindNotes();
  if (device != nullptr) program_ = std::make_unique<DeviceProgram>(*this, *device);
}

LoptProblem::~LoptProblem() = default;

void LoptProblem::FindNotes() {
  for (const LayoutEntry& entry : task_->aux_layout().entries()) {
    AddNote("task/", entry.name, entry, &task_notes_);
  }
  for (const LayoutEntry& entry : optimizer_state_layout().entries()) {
    if (const auto name = NotedName(entry.name)) {
      AddNote("optimizer/", *name, entry, &optimizer_notes_);
    }
  }
  Require(
      !task_notes_.empty() || !optimizer_notes_.empty(),
      "inner problem: with_metrics is true, but the task has no aux outputs and the optimizer's "
      "state no scalars named noted/NAME");
}

int64_t LoptProblem::AuxSize() const {
  return meta_loss_aux_ || !task_notes_.empty() ? task_->aux_layout().size() : 0;
}

void LoptProblem::CheckEpisodesHaveLengths() const {
  Require(EpisodesEnd() || optimizer_->needs_num_steps().empty(),
          "inner problem: {} needs the length of episodes, which do not end "
          "(NeverEndingTruncationSchedule); choose another schedule",
          optimizer_->needs_num_steps());
}

LoptProblem::Episode LoptProblem::DrawEpisode(Key key, const OuterState& outer,
                                              const ReplicaRow& row) const {
  task_->Sample(FoldIn(key, kTaskDraw), row.config);
  task_->Init(row.config, FoldIn(key, kParamsDraw), row.params, row.model_state);
  const Key order = FoldIn(key, kOrderDraw);
  return {.length = schedule_->Length(FoldIn(key, kLengthDraw), outer),
          .order = static_cast<int64_t>(uint64_t{order.hi} << 32 | order.lo)};
}

double LoptProblem::UnscaledLoss(std::span<const float> config, float raw, bool* non_finite) const {
  *non_finite = !std::isfinite(raw);
  if (!*non_finite) {
    return task_->Normalize(config, static_cast<double>(raw));
  }
  Require(options_.non_finite != NonFinite::kAbort,
          "inner problem: a meta-loss is {}, and non_finite is 'abort'", raw);
  return task_->NormalizerMaximum().value_or(std::numeric_limits<double>::quiet_NaN());
}

double LoptProblem::OnScale(double loss) const {
  return options_.meta_loss_log ? std::log(std::max(loss, *options_.meta_loss_log)) : loss;
}

double LoptProblem::MetaLossSlope(double meta_loss) const {
  if (!std::isfinite(meta_loss)) return 0;
  const bool log = options_.meta_loss_log.has_value();
  const std::optional<double> maximum = task_->NormalizerMaximum();
  if ((log || maximum) && meta_loss <= OnScale(0)) return 0;
  if (maximum && meta_loss >= OnScale(*maximum)) return 0;
  return log ? std::exp(-meta_loss) : 1;
}

int64_t LoptProblem::GroupRows(int64_t replicas) const {
  const int64_t preferred = task_->PreferredRows();
  return preferred == TaskFamily::kAllRows ? replicas : std::min(preferred, replicas);
}

UnrollState LoptProblem::DoStart(const ThetaRows& theta, const OuterState& outer,
                                 std::span<const Key> keys, std::optional<int64_t> horizon) const {
  if (!horizon) CheckEpisodesHaveLengths();
  UnrollState arrays = MakeLoptState(*this, theta.rows);
  const LoptState state(*this, theta.rows, &arrays);
  ParallelFor(theta.rows, [&](int64_t b) {
    WorkspacePool::Lease lease(workspaces_);
    const Workspace::Frame frame(*lease);
    const auto theta_row = (*lease).Take<float>(std::ssize(theta.theta));
    theta.Row(b, {}, theta_row);
    const auto rule = optimizer_->Bind(task_->params_layout(), theta_row);
    const ReplicaRow row = state.Row(*this, b);
    auto [length, order] = DrawEpisode(keys[b], outer, row);
    const int64_t offset = options_.random_initial_iteration_offset;
    if (offset > 0 && length != TruncationSchedule::kNever) {
      const int64_t multiple = options_.random_initial_iteration_multiple;
      const auto choices = static_cast<int32_t>((offset + multiple - 1) / multiple);
      length = std::max<int64_t>(
          1, length - multiple * Randint(FoldIn(keys[b], kOffsetDraw), 0, choices));
    }
    state.length[b] = horizon.value_or(length);
    state.horizon[b] = horizon.has_value() ? 1 : 0;
    state.order[b] = order;
    rule->InitState({.num_steps = state.NumSteps(b)}, row.params, row.optimizer_state);
  });
  return arrays;
}

void LoptProblem::DoRun(const Window& window) const {
  for (const auto* notes : {&task_notes_, &optimizer_notes_}) {
    for (const Note& note : *notes) {
      window.trace->noted.push_back(
          {note.metric, Eigen::ArrayXXf(window.steps, window.theta.rows)});
    }
  }
  if (program_ != nullptr) {
    program_->Run(window);
  } else {
    RunWindowOnCpu(*this, window);
  }
}

void LoptProblem::DoMetaLoss(const ThetaRows& theta, std::span<const Key> keys,
                             const UnrollState& state, std::span<double> loss) const {
  if (program_ != nullptr) {
    program_->MetaLoss(theta, keys, state, loss);
  } else {
    MetaLossOnCpu(*this, theta.rows, keys, state, loss);
  }
}

}  // namespace lopt
