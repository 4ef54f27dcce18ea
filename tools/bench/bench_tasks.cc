#include "lopt/tools/bench/bench_tasks.h"

#include <memory>
#include <string>

#include "lopt/base/key.h"
#include "lopt/evaluation/evaluation_config.h"
#include "lopt/evaluation/presets.h"
#include "lopt/tasks/registry.h"
#include "lopt/tasks/torch/torch_module.h"

namespace lopt {
namespace {

constexpr int64_t kTogetherRows = 16;

// Replicas of a task, each with a batch of its own in every call.
class Replicas {
 public:
  explicit Replicas(const Config& config)
      : task_(TaskRegistry().Make(config, TaskResources(""))),
        rows_(task_->PreferredRows() == TaskFamily::kAllRows ? kTogetherRows : 1),
        config_(Row(task_->config_layout())),
        params_(Row(task_->params_layout())),
        model_state_(Row(task_->model_state_layout())),
        gradients_(params_.size()),
        losses_(static_cast<size_t>(rows_)) {
    for (int64_t r = 0; r < rows_; ++r) {
      const Key key = KeyFromSeed(static_cast<uint64_t>(r));
      const auto row = [&](std::vector<float>& all) {
        const size_t size = all.size() / static_cast<size_t>(rows_);
        return std::span(all).subspan(static_cast<size_t>(r) * size, size);
      };
      task_->Sample(FoldIn(key, 0), row(config_));
      task_->Init(row(config_), FoldIn(key, 1), row(params_), row(model_state_));
    }
  }

  int64_t rows() const { return rows_; }
  double flop() const { return static_cast<double>(rows_) * task_->flops(); }

  void Evaluate() {
    const std::vector<Key> keys = SplitKey(KeyFromSeed(calls_++), rows_);
    task_->Evaluate({.rows = rows_,
                     .config = config_,
                     .params = params_,
                     .model_state = model_state_,
                     .keys = keys,
                     .losses = losses_,
                     .gradients = gradients_},
                    scratch_);
  }

 private:
  std::vector<float> Row(const Layout& layout) const {
    return std::vector<float>(static_cast<size_t>(rows_ * layout.size()));
  }

  std::shared_ptr<const TaskFamily> task_;
  int64_t rows_;
  std::vector<float> config_;
  std::vector<float> params_;
  std::vector<float> model_state_;
  std::vector<float> gradients_;
  std::vector<float> losses_;
  uint64_t calls_ = 0;
  Workspace scratch_;
};

}  // namespace

std::vector<WorkloadMaker> TaskWorkloads() {
  std::vector<WorkloadMaker> makers;
  for (const EvaluationTask& named :
       ReadEvaluationConfig(EvaluationPresets().Find("tasks")).tasks) {
    const std::string name = "task/" + named.name;
    const auto make = [name, config = named.task] {
      auto replicas = std::make_shared<Replicas>(config);
      return Workload{.name = name,
                      .unit = "gradients",
                      .units = static_cast<double>(replicas->rows()),
                      .flop = replicas->flop(),
                      .call = [replicas] { replicas->Evaluate(); }};
    };
    makers.push_back({name, make, MissingTorchModule(named.task)});
  }
  return makers;
}

}  // namespace lopt
