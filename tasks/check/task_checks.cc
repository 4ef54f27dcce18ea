#include "lopt/tasks/check/task_checks.h"

#include "lopt/tasks/check/draw_checks.h"
#include "lopt/tasks/check/evaluation_checks.h"
#include "lopt/tasks/check/gradient_check.h"

namespace lopt::checks {

const std::vector<Check<TaskFamily>>& TaskChecks() {
  constexpr const char* kFamily = "lopt/tasks/task_family.h";
  static const std::vector<Check<TaskFamily>> checks = {
      {"layouts", "There are params, and aux outputs are scalars.", kFamily, CheckTaskLayouts},
      {"sizes",
       "A span of another size than its layout's, or an example that there is not, is an "
       "Error that names it.",
       kFamily, CheckTaskSizes},
      {"draws",
       "Sample and Init write finite numbers that are functions of their keys alone, "
       "another for each tensor.",
       kFamily, CheckTaskDraws},
      {"inputs",
       "Evaluate leaves config, params and keys as they are.",
       kFamily,
       CheckInputsAreLeft,
       {"draws"}},
      {"pure",
       "An evaluation is a function of its inputs: the same gives the same bits.",
       kFamily,
       CheckEvaluationIsPure,
       {"draws", "inputs"}},
      {"outputs",
       "Losses, and gradients and aux outputs where wanted, are written in full, and "
       "nothing beside them.",
       kFamily,
       CheckOutputsAreWritten,
       {"draws", "inputs", "pure"}},
      {"gradient",
       "Gradients are those of the loss, as differences of it show; noisy ones in the "
       "mean.",
       kFamily,
       CheckTaskGradient,
       {"draws", "inputs", "pure", "outputs"}},
      {"data",
       "Other keys and other splits are other data.",
       kFamily,
       CheckDataOfKeys,
       {"draws", "inputs", "pure", "outputs"}},
      {"pairs",
       "Equal keys are equal data, whichever row they are of.",
       kFamily,
       CheckPairRows,
       {"draws", "inputs", "pure", "outputs"}},
      {"rows",
       "A row does not depend on those beside it.",
       kFamily,
       CheckRowsAreIndependent,
       {"draws", "inputs", "pure", "outputs", "pairs"}},
      {"losses",
       "Losses and aux outputs do not depend on whether gradients are wanted.",
       kFamily,
       CheckLossesWithoutGradients,
       {"draws", "inputs", "pure", "outputs"}},
      {"model state",
       "Evaluations of train write it back, those of other splits leave it.",
       kFamily,
       CheckModelState,
       {"draws", "inputs", "pure"}},
      {"threads",
       "A family is thread-safe and gives the same bits on any number of threads.",
       kFamily,
       CheckTaskThreads,
       {"draws", "inputs", "pure", "outputs"}},
      {"examples",
       "Splits follow one another; results are means over a row's examples.",
       kFamily,
       CheckExamples,
       {"draws", "inputs", "pure", "outputs"}},
      {"not finite",
       "Params that are not numbers have a loss that is not finite.",
       kFamily,
       CheckNotFiniteParams,
       {"draws", "inputs", "pure", "outputs"}},
      {"normalizer", "Normalized losses are finite, keep to their maximum and do not fall.",
       kFamily, CheckNormalizer},
      {"answers",
       "The losses and the accuracy of a family with classes are those of its logits and labels.",
       kFamily,
       CheckAnswers,
       {"draws", "inputs", "pure", "outputs", "examples"}},
      {"pictures",
       "What is shown is finite, the same each time, and changes nothing.",
       kFamily,
       CheckPictures,
       {"draws", "inputs", "pure"}},
      {"allocations",
       "Evaluations take no memory but their scratch memory.",
       kFamily,
       CheckTaskAllocations,
       {"draws", "inputs"}},
  };
  return checks;
}

}  // namespace lopt::checks
