#pragma once

#include "lopt/base/check.h"
#include "lopt/tasks/task_family.h"

namespace lopt::checks {

// What Evaluate, Show and Normalize promise (tasks/task_family.h). Families that are evaluated in
// lockstep (PreferredRows) may differ by rounding between different numbers of rows; the others may
// not.

void CheckInputsAreLeft(const TaskFamily& task, Findings* findings);
void CheckOutputsAreWritten(const TaskFamily& task, Findings* findings);
void CheckEvaluationIsPure(const TaskFamily& task, Findings* findings);
void CheckDataOfKeys(const TaskFamily& task, Findings* findings);
void CheckPairRows(const TaskFamily& task, Findings* findings);
void CheckRowsAreIndependent(const TaskFamily& task, Findings* findings);
void CheckLossesWithoutGradients(const TaskFamily& task, Findings* findings);
void CheckModelState(const TaskFamily& task, Findings* findings);
void CheckTaskThreads(const TaskFamily& task, Findings* findings);
void CheckTaskSizes(const TaskFamily& task, Findings* findings);
void CheckExamples(const TaskFamily& task, Findings* findings);
void CheckNormalizer(const TaskFamily& task, Findings* findings);
void CheckNotFiniteParams(const TaskFamily& task, Findings* findings);
void CheckAnswers(const TaskFamily& task, Findings* findings);
void CheckPictures(const TaskFamily& task, Findings* findings);
void CheckTaskAllocations(const TaskFamily& task, Findings* findings);

}  // namespace lopt::checks
