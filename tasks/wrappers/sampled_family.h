#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/tasks/wrappers/task_wrapper.h"

namespace lopt {

struct SampledFamilyOptions {
  std::vector<double> weights = {};  // of the families; empty: all the same
  void Visit(FieldVisitor& v);
};

// A mix of families: a task is one of a family drawn with probability proportional to its weight.
// Params and aux outputs of all families are alike, and so is the normalizer's maximum.
//
// Config: "index", the number of the family, and "task" [the most numbers of a family], the task's
// own and then zeros; model state: "task" likewise. Where all families draw alike from splits of
// the same rows, batches of one size, the mix has that data set. Otherwise each draws its own and
// explicit examples are an Error. Parts of a batch share probes where all families have as many
// with records alike.
class SampledFamily : public FamilyOverFamilies {
 public:
  // Throws Error as CheckOptions does, if there is no family or not one weight for each, and if
  // families are not alike (named by their places in `tasks`).
  SampledFamily(std::vector<std::shared_ptr<const TaskFamily>> tasks,
                const SampledFamilyOptions& options);

  double Normalize(std::span<const float> config, double loss) const override;
  // All rows if one of the families wants them, else the largest number.
  int64_t PreferredRows() const override;

 private:
  void DoSample(Key key, std::span<float> config) const override;
  void DoInit(std::span<const float> config, Key key, std::span<float> params,
              std::span<float> model_state) const override;
  void DoEvaluate(const TaskEvaluation& evaluation, Workspace& scratch) const override;
  void DoLearn(std::span<const float> config, std::span<const float> records,
               std::span<float> model_state, Workspace& scratch) const override;
  std::vector<Pictures> DoShow(const TaskEvaluation& evaluation, Workspace& scratch) const override;

  // The number of the family of a task. Throws Error if there is none.
  size_t IndexOf(std::span<const float> config) const;

  std::vector<std::shared_ptr<const TaskFamily>> tasks_;
  std::vector<double> up_to_;  // sums of the weights, this family's included
};

}  // namespace lopt
