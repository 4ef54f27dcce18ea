#include "lopt/learner/train/train_config.h"

#include "lopt/learner/train/batches.h"
#include "lopt/learner/train/train_optimizer.h"
#include "lopt/tasks/registry.h"

namespace lopt {

void TrainConfig::Visit(FieldVisitor& v) {
  v.FreeOnResume().Field("name", &name, "Name of the training, for people.");
  v.Typed("task", &task, TaskRegistry().table(),
          "The task whose model is trained; drawn with the seed where tasks of a family differ.");
  v.Field(
      "init_model", &init_model,
      "File of a model to start from, relative to the working directory, with a fresh state of "
      "the optimizer: model.safetensors of a training, a checkpoint's state.safetensors, or any "
      "with the arrays params/... and model_state/... of the task. Read at the start alone. Empty: "
      "the model is drawn.");
  v.Typed("optimizer", &optimizer, TrainOptimizerRegistry().table(), "What trains it.");
  v.Field("workers", &workers, Between(1, 100000),
          "Logical workers that share the examples of each step evenly, and whose gradients are "
          "averaged. Part of the training; threads and processes only execute them. Where a task "
          "has no data set, each draws its own data.");
  v.Typed("batches", &batches, BatchesRegistry().table(), "How they get their examples.");
  v.FreeOnResume().Field(
      "steps", &steps, Between(1, 1e9),
      "Updates of the params in total; an optimizer that depends on it (a schedule) fixes it.");
  v.Field("seed", &seed, AtLeast(0), "Everything random in the training follows from it.");
  v.FreeOnResume().Field(
      "eval_every", &eval_every, AtLeast(0),
      "Updates between evaluations of the model on all of eval_split, with one more at the "
      "end; the results are among the metrics. 0: none.");
  v.FreeOnResume().Choice("eval_split", &eval_split, kSplitNames,
                          "The split of these evaluations.");
  VisitTimeouts(v);
  VisitMachine(v);
  VisitIntervals(v);
}

std::vector<std::string> TrainKeysFreeOnResume() {
  return KeysFreeOnResume([](FieldVisitor& v) { TrainConfig().Visit(v); });
}

}  // namespace lopt
