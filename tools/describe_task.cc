#include "lopt/tools/describe_task.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/png.h"
#include "lopt/base/print.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/evaluation/task_pictures.h"
#include "lopt/lopt/rules/learnable.h"
#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/progress_line.h"
#include "lopt/tools/typed_config.h"

namespace lopt {
namespace {

constexpr double kFlopPerMega = 1e6;

void PrintLayout(const char* what, const Layout& layout) {
  std::vector<std::string> tensors;
  for (const LayoutEntry& entry : layout.entries()) {
    tensors.push_back(entry.name + " " + ToString(entry.shape));
  }
  PrintOut("  {:<12} {}{}{}\n", what, FormatCount(static_cast<double>(layout.size())),
           tensors.empty() ? "" : ": ", fmt::join(tensors, ", "));
}

void PrintParts(const TaskFamily& task) {
  PrintLayout("params", task.params_layout());
  PrintLayout("config", task.config_layout());
  PrintLayout("model state", task.model_state_layout());
  PrintLayout("aux", task.aux_layout());
  if (task.ExampleRange(Split::kTrain).second > 0) {
    std::vector<std::string> splits;
    for (const Split split : kSplits) {
      const auto [first, last] = task.ExampleRange(split);
      splits.push_back(
          fmt::format("{} {}", FormatCount(static_cast<double>(last - first)), ToString(split)));
    }
    PrintOut("  {:<12} {}\n", "data", fmt::join(splits, ", "));
  }
  if (const auto maximum = task.NormalizerMaximum()) {
    PrintOut("  {:<12} meta-losses are at most {:.4g}\n", "normalizer", *maximum);
  }
  if (task.flops() > 0) {
    PrintOut("  {:<12} {:.4g} million for a loss with its gradient\n", "FLOP",
             task.flops() / kFlopPerMega);
  }
}

TrainingCurve TrainWithAdam(const TaskFamily& task, const TaskRequest& request, Key key,
                            Workspace& scratch) {
  const LearnableAdam adam({.learning_rate = request.learning_rate});
  const Eigen::VectorXf theta = adam.InitTheta(key);
  return TrainTask(task, *adam.Bind(task.params_layout(), AsSpan(theta)), {&request.steps, 1},
                   Split::kOuterValid, {.key = key}, scratch);
}

}  // namespace

void DescribeTask(const TaskRequest& request) {
  const Config config = ReadTypedConfig("--task", request.task, TaskRegistry().table());
  const auto task = TaskRegistry().Make(config, TaskResources(request.data_dir));
  PrintOut("{}\n", config.Dump());
  const Config stands_for = StandsFor(config);
  if (stands_for.Type() != config.Type()) PrintOut("stands for {}\n", stands_for.Dump(-1));
  PrintParts(*task);
  const Key key = KeyFromSeed(static_cast<uint64_t>(request.seed));
  Workspace scratch;
  const TrainingCurve training = TrainWithAdam(*task, request, key, scratch);
  PrintOut("  {:<12} {:.6g} of the first batch; {:.6g} on outer_valid after step {} of Adam\n",
           "loss", training.train_loss.front(), training.judged[0].loss, request.steps);
  if (request.preview.empty()) return;
  const std::vector<Pictures> pictures = ShowTraining(*task, training, Split::kTrain, key, scratch);
  Require(!pictures.empty(), "--preview: a {} has nothing to draw", config.Type());
  WriteTextFile(request.preview, EncodePng(ContactSheet(pictures)));
  std::vector<std::string> names;
  for (const Pictures& shown : pictures) names.push_back(shown.name);
  PrintOut("{} shows, from top to bottom: {}\n", request.preview, fmt::join(names, ", "));
}

}  // namespace lopt
