#include "lopt/tasks/wrappers/sampled_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/base/options.h"

namespace lopt {
namespace {

constexpr const char* kSampledWho = "SampledFamily";

void RequireAlike(const char* what, const Layout& first, const Layout& other, size_t number) {
  const auto [of_first, of_other] = FirstDifference(first, other);
  Require(first == other,
          "{}: all tasks must have the same {}; tasks[0] has {} where tasks[{}] has {}",
          kSampledWho, what, of_first, number, of_other);
}

std::string MaximumWords(const TaskParts& parts) {
  return parts.normalizer_maximum ? fmt::format("{}", *parts.normalizer_maximum) : "none";
}

using Tasks = std::vector<std::shared_ptr<const TaskFamily>>;

std::vector<double> Weights(const Tasks& tasks, const SampledFamilyOptions& options) {
  return options.weights.empty() ? std::vector<double>(tasks.size(), 1) : options.weights;
}

// 0, which is not stated, if one of them is.
double MeanFlops(const Tasks& tasks, const std::vector<double>& weights) {
  double flops = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i]->flops() == 0) return 0;
    flops += weights[i] * tasks[i]->flops();
  }
  return flops / std::accumulate(weights.begin(), weights.end(), 0.0);
}

TaskParts PartsOfMix(const Tasks& tasks, const SampledFamilyOptions& options) {
  CheckOptions(kSampledWho, options);
  Require(!tasks.empty(), "{}: tasks is empty, wanted at least one", kSampledWho);
  Require(options.weights.empty() || options.weights.size() == tasks.size(),
          "{}: {} weights for {} tasks; give one for each, or none for equal ones", kSampledWho,
          options.weights.size(), tasks.size());
  const TaskParts& first = tasks[0]->parts();
  int64_t config = 0;
  int64_t model_state = 0;
  bool same_data = true;
  bool same_records = true;
  bool same_classes = true;
  Gradients gradients = first.gradients;
  bool allocates = false;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const TaskParts& parts = tasks[i]->parts();
    RequireAlike("params", first.params, parts.params, i);
    RequireAlike("aux outputs", first.aux, parts.aux, i);
    Require(parts.normalizer_maximum == first.normalizer_maximum,
            "{}: all tasks must have the same maximum of their normalizers; tasks[0] has {} where "
            "tasks[{}] has {}",
            kSampledWho, MaximumWords(first), i, MaximumWords(parts));
    same_data = same_data && parts.data == first.data;
    same_records = same_records && parts.records == first.records;
    same_classes = same_classes && parts.classes == first.classes;
    gradients = std::max(gradients, parts.gradients);
    allocates = allocates || parts.allocates;
    config = std::max(config, parts.config.size());
    model_state = std::max(model_state, parts.model_state.size());
  }
  return {.config = Layout({{"index", Shape()}, {"task", {config}}}),
          .params = first.params,
          .model_state = Layout({{"task", {model_state}}}),
          .records = same_records ? first.records : std::nullopt,
          .aux = first.aux,
          .data = same_data ? first.data : DataRows(),
          .classes = same_data && same_classes ? first.classes : 0,
          .normalizer_maximum = first.normalizer_maximum,
          .flops = MeanFlops(tasks, Weights(tasks, options)),
          .gradients = gradients,
          .allocates = allocates};
}

std::vector<const TaskFamily*> Pointers(const Tasks& tasks) {
  std::vector<const TaskFamily*> pointers;
  for (const auto& task : tasks) pointers.push_back(task.get());
  return pointers;
}

// The rows of one family, which stand at `places` among `rows` [n, width]: their first `size`
// numbers.
template <class T>
std::span<T> Gather(std::span<const T> rows, int64_t n, std::span<const int64_t> places,
                    int64_t first, int64_t size, Workspace& scratch) {
  const int64_t width = std::ssize(rows) / n;
  const std::span<T> gathered = scratch.Take<T>(std::ssize(places) * size);
  for (int64_t i = 0; i < std::ssize(places); ++i) {
    std::ranges::copy(rows.subspan(places[i] * width + first, size), gathered.begin() + i * size);
  }
  return gathered;
}

// Puts rows back to where they stand.
template <class T>
void Scatter(std::span<T> gathered, std::span<const int64_t> places, std::span<T> rows, int64_t n) {
  const int64_t width = std::ssize(rows) / n;
  const int64_t size = std::ssize(gathered) / std::ssize(places);
  for (int64_t i = 0; i < std::ssize(places); ++i) {
    std::ranges::copy(gathered.subspan(i * size, size), rows.begin() + places[i] * width);
  }
}

}  // namespace

void SampledFamilyOptions::Visit(FieldVisitor& v) {
  v.Field("weights", &weights, Above(0),
          "How probable each of the families is, relative to the others; none: all the same.");
}

SampledFamily::SampledFamily(Tasks tasks, const SampledFamilyOptions& options)
    : FamilyOverFamilies(PartsOfMix(tasks, options), Pointers(tasks)),
      tasks_(std::move(tasks)),
      up_to_(Weights(tasks_, options)) {
  std::partial_sum(up_to_.begin(), up_to_.end(), up_to_.begin());
}

size_t SampledFamily::IndexOf(std::span<const float> config) const {
  const float index = config[0];
  Require(index >= 0 && index < static_cast<float>(tasks_.size()),
          "{}: a config has the index {}, wanted that of one of {} tasks", kSampledWho, index,
          tasks_.size());
  return static_cast<size_t>(index);
}

double SampledFamily::Normalize(std::span<const float> config, double loss) const {
  const TaskFamily& task = *tasks_[IndexOf(config)];
  return task.Normalize(config.subspan(1, task.config_layout().size()), loss);
}

int64_t SampledFamily::PreferredRows() const {
  int64_t rows = 1;
  for (const auto& task : tasks_) {
    if (task->PreferredRows() == kAllRows) return kAllRows;
    rows = std::max(rows, task->PreferredRows());
  }
  return rows;
}

void SampledFamily::DoSample(Key key, std::span<float> config) const {
  const double drawn = Uniform(OwnKey(key)) * up_to_.back();
  const auto index = std::ranges::upper_bound(up_to_, drawn) - up_to_.begin();
  std::ranges::fill(config, 0.0F);
  config[0] = static_cast<float>(index);
  const TaskFamily& task = *tasks_[static_cast<size_t>(index)];
  task.Sample(key, config.subspan(1, task.config_layout().size()));
}

void SampledFamily::DoInit(std::span<const float> config, Key key, std::span<float> params,
                           std::span<float> model_state) const {
  const TaskFamily& task = *tasks_[IndexOf(config)];
  std::ranges::fill(model_state, 0.0F);
  task.Init(config.subspan(1, task.config_layout().size()), key, params,
            model_state.first(task.model_state_layout().size()));
}

void SampledFamily::DoEvaluate(const TaskEvaluation& e, Workspace& scratch) const {
  const int64_t width = config_layout().size();
  for (size_t index = 0; index < tasks_.size(); ++index) {
    const Workspace::Frame frame(scratch);
    std::span<int64_t> places = scratch.Take<int64_t>(e.rows);
    int64_t count = 0;
    for (int64_t row = 0; row < e.rows; ++row) {
      if (IndexOf(e.config.subspan(row * width, width)) == index) places[count++] = row;
    }
    if (count == 0) continue;
    places = places.first(count);
    const TaskFamily& task = *tasks_[index];
    const auto gather = [&](auto rows, int64_t first, int64_t size) {
      return Gather(rows, e.rows, places, first, size, scratch);
    };
    const auto whole = [&](auto rows) { return gather(rows, 0, std::ssize(rows) / e.rows); };
    const auto out = [&]<class T>(std::span<T> rows) {
      return scratch.Take<T>(std::ssize(rows) / e.rows * count);
    };
    const TaskEvaluation of_task{
        .rows = count,
        .config = gather(e.config, 1, task.config_layout().size()),
        .params = whole(e.params),
        .model_state =
            gather(std::span<const float>(e.model_state), 0, task.model_state_layout().size()),
        .split = e.split,
        .keys = whole(e.keys),
        .steps = whole(e.steps),
        .examples = whole(e.examples),
        .shares = {.parts = whole(e.shares.parts), .records = out(e.shares.records)},
        .losses = out(e.losses),
        .gradients = out(e.gradients),
        .aux = out(e.aux),
        .answers = {.logits = out(e.answers.logits), .labels = out(e.answers.labels)}};
    task.Evaluate(of_task, scratch);
    Scatter(of_task.model_state, places, e.model_state, e.rows);
    Scatter(of_task.losses, places, e.losses, e.rows);
    Scatter(of_task.gradients, places, e.gradients, e.rows);
    Scatter(of_task.aux, places, e.aux, e.rows);
    Scatter(of_task.shares.records, places, e.shares.records, e.rows);
    Scatter(of_task.answers.logits, places, e.answers.logits, e.rows);
    Scatter(of_task.answers.labels, places, e.answers.labels, e.rows);
  }
}

void SampledFamily::DoLearn(std::span<const float> config, std::span<const float> records,
                            std::span<float> model_state, Workspace& scratch) const {
  const TaskFamily& task = *tasks_[IndexOf(config)];
  task.Learn(config.subspan(1, task.config_layout().size()), records,
             model_state.first(task.model_state_layout().size()), scratch);
}

std::vector<Pictures> SampledFamily::DoShow(const TaskEvaluation& e, Workspace& scratch) const {
  const TaskFamily& task = *tasks_[IndexOf(e.config)];
  TaskEvaluation of_task = e;
  of_task.config = e.config.subspan(1, task.config_layout().size());
  of_task.model_state = e.model_state.first(task.model_state_layout().size());
  return task.Show(of_task, scratch);
}

}  // namespace lopt
