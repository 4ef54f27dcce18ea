#include "lopt/tasks/wrappers/task_wrapper.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

namespace lopt {
namespace {

// What the key of a family over families is folded with, which no task folds with.
constexpr uint64_t kOwnDomain = std::numeric_limits<uint64_t>::max() - 1;

Layout Joined(const Layout& task, const Layout& own) {
  if (own.entries().empty()) return task;
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const LayoutEntry& entry : task.entries()) {
    tensors.emplace_back("task/" + entry.name, entry.shape);
  }
  for (const LayoutEntry& entry : own.entries()) tensors.emplace_back(entry.name, entry.shape);
  return Layout(std::move(tensors));
}

// The first `size` columns of n rows.
template <class T>
std::span<T> FirstColumns(std::span<T> rows, int64_t n, int64_t size, Workspace& scratch) {
  const int64_t width = std::ssize(rows) / n;
  if (n == 1 || size == width) return rows.first(n * size);
  const auto columns = scratch.Take<std::remove_const_t<T>>(n * size);
  for (int64_t row = 0; row < n; ++row) {
    std::ranges::copy(rows.subspan(row * width, size), columns.begin() + row * size);
  }
  return columns;
}

std::string EntryWords(const Layout& layout, size_t i) {
  if (i >= layout.entries().size()) return "nothing";
  const LayoutEntry& entry = layout.entries()[i];
  return fmt::format("'{}' {}", entry.name, ToString(entry.shape));
}

}  // namespace

FamilyOverFamilies::FamilyOverFamilies(TaskParts parts, std::vector<const TaskFamily*> inside)
    : TaskFamily(std::move(parts)), inside_(std::move(inside)) {
  for (const TaskFamily* task : inside_) {
    if (const auto* over = dynamic_cast<const FamilyOverFamilies*>(task)) {
      depth_ = std::max(depth_, over->depth_ + 1);
    }
  }
}

Key FamilyOverFamilies::OwnKey(Key key) const { return FoldIn(FoldIn(key, kOwnDomain), depth_); }

TaskWrapper::TaskWrapper(std::shared_ptr<const TaskFamily> task, TaskParts parts)
    : FamilyOverFamilies(std::move(parts), {task.get()}), task_(std::move(task)) {}

TaskParts TaskWrapper::PartsOf(const TaskFamily& task, const Layout& config,
                               const Layout& model_state) {
  TaskParts parts = task.parts();
  parts.config = Joined(parts.config, config);
  parts.model_state = Joined(parts.model_state, model_state);
  return parts;
}

TaskParts TaskWrapper::WithOtherGradients(TaskParts parts) {
  parts.gradients = Gradients::kOther;
  return parts;
}

double TaskWrapper::Normalize(std::span<const float> config, double loss) const {
  return task_->Normalize(config.first(task_->config_layout().size()), loss);
}

std::span<float> TaskWrapper::OwnConfig(std::span<float> row) const {
  return row.subspan(task_->config_layout().size());
}

std::span<const float> TaskWrapper::OwnConfig(std::span<const float> rows, int64_t row) const {
  const int64_t of_task = task_->config_layout().size();
  const int64_t width = config_layout().size();
  return rows.subspan(row * width + of_task, width - of_task);
}

std::span<float> TaskWrapper::OwnModelState(std::span<float> rows, int64_t row) const {
  const int64_t of_task = task_->model_state_layout().size();
  const int64_t width = model_state_layout().size();
  return rows.subspan(row * width + of_task, width - of_task);
}

TaskEvaluation TaskWrapper::OfTask(const TaskEvaluation& e, Workspace& scratch) const {
  TaskEvaluation of_task = e;
  of_task.config = FirstColumns(e.config, e.rows, task_->config_layout().size(), scratch);
  of_task.model_state =
      FirstColumns(e.model_state, e.rows, task_->model_state_layout().size(), scratch);
  return of_task;
}

void TaskWrapper::EvaluateTask(const TaskEvaluation& e, Workspace& scratch) const {
  const Workspace::Frame frame(scratch);
  const TaskEvaluation of_task = OfTask(e, scratch);
  task_->Evaluate(of_task, scratch);
  if (of_task.model_state.data() == e.model_state.data()) return;
  const int64_t size = task_->model_state_layout().size();
  for (int64_t row = 0; row < e.rows; ++row) {
    std::ranges::copy(of_task.model_state.subspan(row * size, size),
                      e.model_state.begin() + row * model_state_layout().size());
  }
}

void TaskWrapper::DoSample(Key key, std::span<float> config) const {
  task_->Sample(key, config.first(task_->config_layout().size()));
}

void TaskWrapper::DoInit(std::span<const float> config, Key key, std::span<float> params,
                         std::span<float> model_state) const {
  task_->Init(config.first(task_->config_layout().size()), key, params,
              model_state.first(task_->model_state_layout().size()));
}

void TaskWrapper::DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const {
  EvaluateTask(evaluation, scratch);
}

void TaskWrapper::DoLearn(std::span<const float> config, std::span<const float> records,
                          std::span<float> model_state, Workspace& scratch) const {
  task_->Learn(config.first(task_->config_layout().size()), records,
               model_state.first(task_->model_state_layout().size()), scratch);
}

std::vector<Pictures> TaskWrapper::DoShow(const TaskEvaluation& evaluation,
                                          Workspace& scratch) const {
  return task_->Show(OfTask(evaluation, scratch), scratch);
}

double TaskWrapper::Dot(std::span<const float> a, std::span<const float> b) {
  constexpr int64_t kLanes = 8;
  const int64_t n = std::ssize(a);
  std::array<double, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += double{a[i + lane]} * double{b[i + lane]};
    }
  }
  for (int64_t lane = 0; i + lane < n; ++lane) {
    sums[lane] += double{a[i + lane]} * double{b[i + lane]};
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

std::pair<std::string, std::string> FirstDifference(const Layout& first, const Layout& other) {
  size_t i = 0;
  const size_t shorter = std::min(first.entries().size(), other.entries().size());
  while (i < shorter && first.entries()[i] == other.entries()[i]) ++i;
  return {EntryWords(first, i), EntryWords(other, i)};
}

}  // namespace lopt
