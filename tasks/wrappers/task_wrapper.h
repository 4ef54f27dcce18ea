#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/layout.h"
#include "lopt/base/workspace.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// A family made of others. Its keys are passed on as they are, so that a task inside, its start and
// its batches are those that the same key draws of it alone. What it draws itself comes from
// OwnKey.
class FamilyOverFamilies : public TaskFamily {
 public:
  // The families it is made of, owned by it.
  const std::vector<const TaskFamily*>& inside() const { return inside_; }

 protected:
  FamilyOverFamilies(TaskParts parts, std::vector<const TaskFamily*> inside);

  // Another key than that of any family over families inside, and than those a task folds `key` to.
  Key OwnKey(Key key) const;

 private:
  std::vector<const TaskFamily*> inside_;
  uint64_t depth_ = 1;  // families over families, this one included, one in another
};

// A family over one other, its task. What it does not change is the task's: params and their start,
// data set, aux outputs, normalizer, preferred rows. Its config and its model state are rows [the
// task's | its own].
class TaskWrapper : public FamilyOverFamilies {
 public:
  double Normalize(std::span<const float> config, double loss) const override;
  int64_t PreferredRows() const override { return task_->PreferredRows(); }

 protected:
  // `parts` are PartsOf(*task), changed where the wrapper changes them.
  TaskWrapper(std::shared_ptr<const TaskFamily> task, TaskParts parts);
  // The task's parts. Where entries are added to the config or the model state, the task's have
  // names that begin with "task/" there.
  static TaskParts PartsOf(const TaskFamily& task, const Layout& config = {},
                           const Layout& model_state = {});
  // The same of a wrapper whose gradients are not those of the task's losses.
  static TaskParts WithOtherGradients(TaskParts parts);

  const TaskFamily& task() const { return *task_; }
  // The wrapper's own part of one row.
  std::span<float> OwnConfig(std::span<float> row) const;
  std::span<const float> OwnConfig(std::span<const float> rows, int64_t row) const;
  std::span<float> OwnModelState(std::span<float> rows, int64_t row) const;
  // `e` for the task: its part of all rows of config and model state, in place where rows are
  // nothing else, or there is one, and otherwise a copy in scratch.
  TaskEvaluation OfTask(const TaskEvaluation& e, Workspace& scratch) const;
  // Evaluates the task: `e` with the wrapper's rows of config and model state, of which the latter
  // is updated.
  void EvaluateTask(const TaskEvaluation& e, Workspace& scratch) const;

  // The sum of a b in float64, in a fixed order.
  static double Dot(std::span<const float> a, std::span<const float> b);

  void DoSample(Key key, std::span<float> config) const override;
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  void DoLearn(std::span<const float> config, std::span<const float> records,
               std::span<float> model_state, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

 private:
  std::shared_ptr<const TaskFamily> task_;
};

// What both layouts have at the first place where they differ: a tensor, such as "'x' [3]", or
// "nothing" behind the end of the shorter one.
std::pair<std::string, std::string> FirstDifference(const Layout& first, const Layout& other);

// What a loss without its gradient costs of both: a third in a network whose layers each make three
// products of one size.
inline constexpr double kLossShare = 1.0 / 3;

}  // namespace lopt
