#include "lopt/tasks/check/task_rows.h"

#include <fmt/format.h>

namespace lopt::checks {

TaskRows DrawRows(const TaskFamily& task, int64_t rows, uint64_t seed) {
  const int64_t config_size = task.config_layout().size();
  const int64_t params_size = task.params_layout().size();
  const int64_t model_state_size = task.model_state_layout().size();
  TaskRows drawn{.rows = rows,
                 .config = std::vector<float>(rows * config_size),
                 .params = std::vector<float>(rows * params_size),
                 .model_state = std::vector<float>(rows * model_state_size),
                 .keys = SplitKey(KeyFromSeed(seed), rows)};
  std::vector<float> noise(params_size);
  for (int64_t row = 0; row < rows; ++row) {
    const Key key = drawn.keys[row];
    const std::span config = std::span(drawn.config).subspan(row * config_size, config_size);
    const std::span params = std::span(drawn.params).subspan(row * params_size, params_size);
    task.Sample(FoldIn(key, 1), config);
    task.Init(config, FoldIn(key, 2), params,
              std::span(drawn.model_state).subspan(row * model_state_size, model_state_size));
    Normal(FoldIn(key, 3), noise);
    for (int64_t i = 0; i < params_size; ++i) params[i] += 0.1F * noise[i];
  }
  return drawn;
}

std::vector<float> RowOf(const std::vector<float>& values, int64_t rows, int64_t row) {
  const int64_t size = std::ssize(values) / rows;
  return {values.begin() + row * size, values.begin() + (row + 1) * size};
}

TaskRows TakeRow(const TaskRows& all, int64_t row) {
  return {.rows = 1,
          .config = RowOf(all.config, all.rows, row),
          .params = RowOf(all.params, all.rows, row),
          .model_state = RowOf(all.model_state, all.rows, row),
          .keys = {all.keys[row]}};
}

bool SameBits(const TaskResults& a, const TaskResults& b) { return Differing(a, b).empty(); }

std::string Differing(const TaskResults& a, const TaskResults& b) {
  std::string names;
  const auto compare = [&](const char* name, const auto& left, const auto& right) {
    if (!SameBits(left, right)) names += (names.empty() ? "" : " and ") + std::string(name);
  };
  compare("losses", a.losses, b.losses);
  compare("gradients", a.gradients, b.gradients);
  compare("aux", a.aux, b.aux);
  compare("model_state", a.model_state, b.model_state);
  return names;
}

TaskResults EvaluateRows(const TaskFamily& task, const TaskRows& rows, const HowToEvaluate& how) {
  const int64_t gradients = how.gradients ? rows.rows * task.params_layout().size() : 0;
  TaskResults results{.losses = std::vector<float>(rows.rows, how.garbage),
                      .gradients = std::vector<float>(gradients, how.garbage),
                      .aux = std::vector<float>(rows.rows * task.aux_layout().size(), how.garbage),
                      .model_state = rows.model_state};
  Workspace scratch;
  Dirty(scratch, how.garbage);
  task.Evaluate(
      {.rows = rows.rows,
       .config = rows.config,
       .params = rows.params,
       .model_state = results.model_state,
       .split = how.split,
       .keys = how.examples.empty() ? std::span<const Key>(rows.keys) : std::span<const Key>(),
       .examples = how.examples,
       .losses = results.losses,
       .gradients = results.gradients,
       .aux = results.aux},
      scratch);
  return results;
}

bool HasDataSet(const TaskFamily& task) { return task.ExampleRange(Split::kTrain).second > 0; }

bool RowsAreExact(const TaskFamily& task) { return task.PreferredRows() != TaskFamily::kAllRows; }

std::string ElementName(const Layout& layout, int64_t index) {
  for (const LayoutEntry& entry : layout.entries()) {
    if (index < entry.offset + entry.size) {
      return fmt::format("'{}', element {}", entry.name, index - entry.offset);
    }
  }
  return fmt::format("element {}", index);
}

}  // namespace lopt::checks
