#pragma once

#include <vector>

#include "lopt/base/key.h"
#include "lopt/base/pictures.h"
#include "lopt/base/workspace.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/tasks/task_family.h"

namespace lopt {

// What a trained task sees and does (TaskFamily::Show): on the first examples of a split, at most
// 64, or in families without a data set on the data of `key`.
std::vector<Pictures> ShowTraining(const TaskFamily& task, const TrainingCurve& training,
                                   Split split, Key key, Workspace& scratch);

}  // namespace lopt
