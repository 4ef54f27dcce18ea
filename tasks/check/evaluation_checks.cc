#include "lopt/tasks/check/evaluation_checks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/parallel.h"
#include "lopt/base/pictures.h"
#include "lopt/tasks/check/task_rows.h"

namespace lopt::checks {
namespace {

// Sums of other lengths, or in another order.
constexpr double kRounding = 1e-6;
constexpr double kRoundingOfMeans = 1e-5;
// Draws that are tried where not every one need show a difference.
constexpr uint64_t kManySeeds = 16;

std::string_view Words(bool gradients) { return gradients ? "with" : "without"; }

// The splits that there are.
std::vector<Split> SplitsOf(const TaskFamily& task) {
  if (!HasDataSet(task)) return {Split::kTrain};
  return {std::begin(kSplits), std::end(kSplits)};
}

// A span in the middle of memory of its own.
class Guarded {
 public:
  Guarded(size_t size, float garbage) : memory_(size + 2 * kMargin, kGuard), size_(size) {
    std::ranges::fill(values(), garbage);
  }
  std::span<float> values() { return std::span(memory_).subspan(kMargin, size_); }
  bool Intact() const {
    const auto is_guard = [](float value) { return value == kGuard; };
    return std::all_of(memory_.begin(), memory_.begin() + kMargin, is_guard) &&
           std::all_of(memory_.end() - kMargin, memory_.end(), is_guard);
  }

 private:
  static constexpr int64_t kMargin = 32;
  static constexpr float kGuard = -4321.5F;
  std::vector<float> memory_;
  size_t size_;
};

// An element that kept the garbage of two evaluations, or differs between them.
void ExpectWritten(const char* what, const std::vector<float>& first, float first_garbage,
                   const std::vector<float>& second, float second_garbage, const Layout* layout,
                   Findings* findings) {
  const auto is = [](float value, float garbage) {
    return value == garbage || (std::isnan(value) && std::isnan(garbage));
  };
  const auto name = [&](size_t i) {
    const auto index = static_cast<int64_t>(i);
    return layout == nullptr ? fmt::format("row {}", index)
                             : fmt::format("row {}, {}", index / layout->size(),
                                           ElementName(*layout, index % layout->size()));
  };
  for (size_t i = 0; i < first.size(); ++i) {
    const bool left = is(first[i], first_garbage) && is(second[i], second_garbage);
    if (!findings->Expect(!left, "{} of {} is not written: it is what was in memory before", what,
                          name(i))) {
      return;
    }
    if (!findings->Expect(SameBits(std::span(first).subspan(i, 1), std::span(second).subspan(i, 1)),
                          "{} of {} depends on what was in memory before ({} or {}): it is added "
                          "to, or scratch memory is read that was not written",
                          what, name(i), first[i], second[i])) {
      return;
    }
  }
}

void ExpectNear(const char* what, const std::vector<float>& a, const std::vector<float>& b,
                double tolerance, const std::string& where, Findings* findings) {
  const double distance = Distance(a, b);
  findings->Expect(distance <= tolerance, "{}: {} differ by {:.2g}, accepted is {:.2g}", where,
                   what, distance, tolerance);
}

}  // namespace

void CheckInputsAreLeft(const TaskFamily& task, Findings* findings) {
  for (const bool gradients : {true, false}) {
    const TaskRows rows = DrawRows(task, 3, 9);
    const TaskRows given = rows;
    EvaluateRows(task, given, {.gradients = gradients});
    findings->Expect(SameBits(rows.config, given.config),
                     "Evaluate {} gradients changed the config that it was given",
                     Words(gradients));
    findings->Expect(SameBits(rows.params, given.params),
                     "Evaluate {} gradients changed the params that it was given",
                     Words(gradients));
    findings->Expect(rows.keys == given.keys,
                     "Evaluate {} gradients changed the keys that it was given", Words(gradients));
  }
}

void CheckOutputsAreWritten(const TaskFamily& task, Findings* findings) {
  constexpr float kSeven = 7;
  const TaskRows rows = DrawRows(task, 3, 1);
  const TaskResults first = EvaluateRows(task, rows);
  const TaskResults second = EvaluateRows(task, rows, {.garbage = kSeven});
  // What differs without other garbage is another check's.
  if (SameBits(first, EvaluateRows(task, rows)) &&
      SameBits(second, EvaluateRows(task, rows, {.garbage = kSeven}))) {
    ExpectWritten("the loss", first.losses, kNaN, second.losses, kSeven, nullptr, findings);
    ExpectWritten("the gradient", first.gradients, kNaN, second.gradients, kSeven,
                  &task.params_layout(), findings);
    ExpectWritten("the aux output", first.aux, kNaN, second.aux, kSeven, &task.aux_layout(),
                  findings);
    findings->Expect(SameBits(first.model_state, second.model_state),
                     "the model state depends on what was in scratch memory before");
  }
  // Nothing beside them is written.
  for (const bool gradients : {true, false}) {
    Guarded losses(rows.rows, kNaN);
    Guarded gradient(gradients ? rows.params.size() : 0, kNaN);
    Guarded aux(first.aux.size(), kNaN);
    Guarded model_state(rows.model_state.size(), 0);
    std::ranges::copy(rows.model_state, model_state.values().begin());
    Workspace scratch;
    task.Evaluate({.rows = rows.rows,
                   .config = rows.config,
                   .params = rows.params,
                   .model_state = model_state.values(),
                   .keys = rows.keys,
                   .losses = losses.values(),
                   .gradients = gradient.values(),
                   .aux = aux.values()},
                  scratch);
    const auto intact = [&](const char* what, const Guarded& memory) {
      findings->Expect(memory.Intact(), "Evaluate {} gradients writes beside the {} it was given",
                       Words(gradients), what);
    };
    intact("losses", losses);
    intact("gradients", gradient);
    intact("aux outputs", aux);
    intact("model state", model_state);
  }
}

void CheckEvaluationIsPure(const TaskFamily& task, Findings* findings) {
  const TaskRows rows = DrawRows(task, 3, 1);
  const TaskResults results = EvaluateRows(task, rows);
  for (const char* when : {"at once", "after another evaluation"}) {
    const std::string differing = Differing(results, EvaluateRows(task, rows));
    findings->Expect(differing.empty(),
                     "the same evaluation {} gives other {}: something is kept in the family, or "
                     "drawn from elsewhere than the keys",
                     when, differing);
    EvaluateRows(task, DrawRows(task, 2, 2));
  }
}

void CheckDataOfKeys(const TaskFamily& task, Findings* findings) {
  const TaskRows rows = DrawRows(task, 3, 1);
  const TaskResults results = EvaluateRows(task, rows);
  TaskRows other_keys = rows;
  TaskResults other = results;
  for (uint64_t n = 0; n < kManySeeds && SameBits(results.losses, other.losses); ++n) {
    other_keys.keys = SplitKey(KeyFromSeed(2 + n), rows.rows);
    other = EvaluateRows(task, other_keys);
  }
  const bool same = SameBits(results.losses, other.losses);
  if (!HasDataSet(task)) {
    findings->Measure("no data set: losses {} on keys, splits were not tried",
                      same ? "do not depend" : "depend");
  } else {
    const auto [first, last] = task.ExampleRange(Split::kTrain);
    const DataRows& data = task.parts().data;
    if (last - first == 1 ||
        (data.sampling == Sampling::kEpoch && data.batch_size % (last - first) == 0)) {
      findings->Measure("all batches of train are the same rows: other keys were not tried");
    } else {
      findings->Expect(!same,
                       "the losses of other keys are the same: the examples are not those given");
    }
    for (const Split split : {Split::kInnerValid, Split::kOuterValid, Split::kTest}) {
      findings->Expect(!SameBits(results.losses, EvaluateRows(task, rows, {.split = split}).losses),
                       "the losses of split {} are those of train", ToString(split));
    }
  }
  if (task.parts().gradients == Gradients::kNoisy) {
    findings->Expect(!SameBits(results.gradients, other.gradients),
                     "the noisy gradients of other keys are the same: the noise is not drawn from "
                     "the keys");
  }
}

void CheckPairRows(const TaskFamily& task, Findings* findings) {
  const TaskRows row = DrawRows(task, 1, 1);
  const auto twice = [](const auto& values) {
    auto both = values;
    both.insert(both.end(), values.begin(), values.end());
    return both;
  };
  const TaskRows replicas{.rows = 2,
                          .config = twice(row.config),
                          .params = twice(row.params),
                          .model_state = twice(row.model_state),
                          .keys = twice(row.keys)};
  const TaskResults pair = EvaluateRows(task, replicas);
  const auto part = [&](int64_t row) {
    return TaskResults{.losses = RowOf(pair.losses, 2, row),
                       .gradients = RowOf(pair.gradients, 2, row),
                       .aux = RowOf(pair.aux, 2, row),
                       .model_state = RowOf(pair.model_state, 2, row)};
  };
  const std::string differing = Differing(part(0), part(1));
  const bool equal_losses = pair.losses[0] == pair.losses[1];
  findings->Expect(differing.empty(),
                   "two rows of equal params and equal keys have different {}: {}", differing,
                   equal_losses ? "with equal losses, so they depend on which row it is"
                                : "they do not see the same data");
}

void CheckRowsAreIndependent(const TaskFamily& task, Findings* findings) {
  constexpr int64_t kRows = 5;
  const TaskRows all = DrawRows(task, kRows, 3);
  const TaskResults together = EvaluateRows(task, all);
  double worst = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    const TaskResults alone = EvaluateRows(task, TakeRow(all, row));
    const TaskResults part{.losses = RowOf(together.losses, kRows, row),
                           .gradients = RowOf(together.gradients, kRows, row),
                           .aux = RowOf(together.aux, kRows, row),
                           .model_state = RowOf(together.model_state, kRows, row)};
    if (RowsAreExact(task)) {
      const std::string differing = Differing(part, alone);
      findings->Expect(differing.empty(), "row {} of {} evaluated together has other {} than alone",
                       row, kRows, differing);
      continue;
    }
    const auto near = [&](const char* what, const auto& a, const auto& b) {
      ExpectNear(what, a, b, kRounding,
                 fmt::format("row {} of {} evaluated together and alone", row, kRows), findings);
      worst = std::max(worst, Distance(a, b));
    };
    near("losses", part.losses, alone.losses);
    near("gradients", part.gradients, alone.gradients);
    near("aux outputs", part.aux, alone.aux);
    near("model states", part.model_state, alone.model_state);
  }
  if (!RowsAreExact(task)) findings->Measure("within {:.2g}", worst);
}

void CheckLossesWithoutGradients(const TaskFamily& task, Findings* findings) {
  const TaskRows rows = DrawRows(task, 4, 4);
  const TaskResults with = EvaluateRows(task, rows);
  const TaskResults without = EvaluateRows(task, rows, {.gradients = false});
  const std::string where = "with and without gradients";
  ExpectNear("losses", with.losses, without.losses, kRounding, where, findings);
  ExpectNear("aux outputs", with.aux, without.aux, kRounding, where, findings);
  if (RowsAreExact(task) && findings->passed()) {
    TaskResults expected = with;
    expected.gradients.clear();
    const std::string differing = Differing(expected, without);
    findings->Expect(differing.empty(), "{} differ {}, in their last bits", differing, where);
  }
}

void CheckModelState(const TaskFamily& task, Findings* findings) {
  const TaskRows rows = DrawRows(task, 3, 8);
  for (const Split split : SplitsOf(task)) {
    for (const bool gradients : {true, false}) {
      const TaskResults results =
          EvaluateRows(task, rows, {.split = split, .gradients = gradients});
      findings->Expect(AllFinite(results.model_state), "after {} it is not finite",
                       ToString(split));
      bool same = SameBits(results.model_state, rows.model_state);
      if (split == Split::kTrain) {
        // Not every evaluation need change it.
        for (uint64_t n = 1; n < kManySeeds && same && !rows.model_state.empty(); ++n) {
          const TaskRows others = DrawRows(task, 3, 8 + n);
          same = SameBits(EvaluateRows(task, others, {.gradients = gradients}).model_state,
                          others.model_state);
        }
        findings->Expect(!same || rows.model_state.empty(),
                         "{} evaluations of train {} gradients leave it as it is: what is learned "
                         "is not written back",
                         kManySeeds, Words(gradients));
      } else {
        findings->Expect(same, "an evaluation of {} {} gradients changes it; only train may",
                         ToString(split), Words(gradients));
      }
    }
  }
}

void CheckTaskThreads(const TaskFamily& task, Findings* findings) {
  constexpr int64_t kCalls = 48;
  constexpr int kThreads = 8;
  // One evaluation that may itself use the threads.
  const TaskRows rows = DrawRows(task, 5, 1);
  const TaskResults outside = EvaluateRows(task, rows);
  for (const int threads : {1, 2, kThreads}) {
    TaskResults inside;
    ThreadPool(threads).Run([&] { inside = EvaluateRows(task, rows); });
    const std::string differing = Differing(outside, inside);
    findings->Expect(differing.empty(), "on a pool of {} threads it gives other {}", threads,
                     differing);
  }
  const auto call = [&](int64_t n) {
    return EvaluateRows(task, DrawRows(task, 1 + n % 2, static_cast<uint64_t>(n)));
  };
  std::vector<TaskResults> together(kCalls);
  ThreadPool(kThreads).Run([&] { ParallelFor(kCalls, [&](int64_t n) { together[n] = call(n); }); });
  for (int64_t n = 0; n < kCalls; ++n) {
    const std::string differing = Differing(together[n], call(n));
    findings->Expect(differing.empty(),
                     "evaluated while {} threads evaluate others it has other {} than alone",
                     kThreads, differing);
  }
}

void CheckTaskSizes(const TaskFamily& task, Findings* findings) {
  constexpr int64_t kRows = 2;
  struct Buffers {
    TaskRows in;
    TaskResults out;
    std::vector<int32_t> examples;
  };
  const TaskRows drawn = DrawRows(task, kRows, 5);
  const Buffers good{drawn, EvaluateRows(task, drawn), {}};
  const auto expect = [&](const char* span, const auto& spoil) {
    Buffers b = good;
    spoil(b);
    Workspace scratch;
    findings->ExpectError(span, [&] {
      task.Evaluate({.rows = kRows,
                     .config = b.in.config,
                     .params = b.in.params,
                     .model_state = b.out.model_state,
                     .keys = b.in.keys,
                     .examples = b.examples,
                     .losses = b.out.losses,
                     .gradients = b.out.gradients,
                     .aux = b.out.aux},
                    scratch);
    });
  };
  expect("config", [](Buffers& b) { b.in.config.emplace_back(); });
  expect("params", [](Buffers& b) { b.in.params.emplace_back(); });
  expect("params", [](Buffers& b) { b.in.params.pop_back(); });
  expect("model_state", [](Buffers& b) { b.out.model_state.emplace_back(); });
  expect("losses", [](Buffers& b) { b.out.losses.pop_back(); });
  expect("losses", [](Buffers& b) { b.out.losses.clear(); });
  expect("gradients", [](Buffers& b) { b.out.gradients.pop_back(); });
  expect("aux", [](Buffers& b) { b.out.aux.emplace_back(); });
  expect("keys", [](Buffers& b) { b.in.keys.pop_back(); });
  expect("keys", [](Buffers& b) { b.in.keys.clear(); });
  if (HasDataSet(task)) {
    expect("keys", [](Buffers& b) {
      b.examples = {0, 0};
      b.in.keys.pop_back();
    });
  }
  expect("example", [](Buffers& b) { b.examples = {0, 1, 2}; });
  expect("example", [](Buffers& b) { b.examples = {0, -1}; });
  const auto behind = static_cast<int32_t>(task.ExampleRange(Split::kTest).second);
  expect("example", [&](Buffers& b) { b.examples = {0, behind}; });

  TaskRows one = TakeRow(drawn, 0);
  const auto longer = [](std::vector<float> values) {
    values.emplace_back();
    return values;
  };
  std::vector<float> config = longer(one.config);
  std::vector<float> params = longer(one.params);
  std::vector<float> model_state = longer(one.model_state);
  findings->ExpectError("config", [&] { task.Sample(Key{}, config); });
  findings->ExpectError("config", [&] { task.Init(config, Key{}, one.params, one.model_state); });
  findings->ExpectError("params", [&] { task.Init(one.config, Key{}, params, one.model_state); });
  findings->ExpectError("model_state",
                        [&] { task.Init(one.config, Key{}, one.params, model_state); });
}

// Splits follow one another, and the loss of explicit examples is the mean over them (where they
// train a task with a model state it may depend on statistics of all of them), as is the gradient
// if it is the loss's.
void CheckExamples(const TaskFamily& task, Findings* findings) {
  const bool gradients = task.parts().gradients == Gradients::kOfLoss;
  int64_t end = 0;
  for (const Split split : kSplits) {
    const auto name = ToString(split);
    const auto [first, last] = task.ExampleRange(split);
    findings->Expect(first == end, "split {} begins with row {}, wanted {}", name, first, end);
    end = last;
    if (!HasDataSet(task)) {
      findings->Expect(last == 0, "split {} ends at row {} of no data set", name, last);
      continue;
    }
    if (!findings->Expect(first < last, "split {} is empty: rows [{}, {})", name, first, last)) {
      return;
    }
    const int64_t count = std::min<int64_t>(last - first, 203);
    const int64_t share = count / 3;
    std::vector<int32_t> examples(count);
    std::iota(examples.begin(), examples.end(), static_cast<int32_t>(last - count));
    const TaskRows row = DrawRows(task, 1, 7);
    const auto evaluate = [&](std::span<const int32_t> some) {
      return EvaluateRows(task, row, {.split = split, .examples = some, .gradients = gradients});
    };
    const TaskResults whole = evaluate(examples);
    const TaskResults left = evaluate(std::span(examples).first(share));
    const TaskResults right = evaluate(std::span(examples).subspan(share));
    const bool averaged = split != Split::kTrain || task.model_state_layout().size() == 0;
    const auto mean = [&](const std::vector<float>& a, const std::vector<float>& b) {
      std::vector<float> values(a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        values[i] = static_cast<float>((double{a[i]} * static_cast<double>(share) +
                                        double{b[i]} * static_cast<double>(count - share)) /
                                       static_cast<double>(count));
      }
      return values;
    };
    if (averaged) {
      const std::string where = fmt::format(
          "{} examples of {} at once, and the mean over two parts of them", count, name);
      const auto near = [&](const char* what, const auto& a, const auto& b, const auto& c) {
        ExpectNear(what, a, mean(b, c), kRoundingOfMeans, where, findings);
      };
      near("losses", whole.losses, left.losses, right.losses);
      near("gradients", whole.gradients, left.gradients, right.gradients);
      near("aux outputs", whole.aux, left.aux, right.aux);
    }
    findings->Expect(share == 0 || !SameBits(left.losses, right.losses),
                     "two parts of {} have the same loss: the examples are not those given", name);
    std::ranges::reverse(examples);
    ExpectNear("losses", whole.losses, evaluate(examples).losses, kRoundingOfMeans,
               fmt::format("examples of {} in two orders", name), findings);
    // Two rows share the examples out in order.
    const int64_t half = count / 2;
    const TaskRows two = DrawRows(task, 2, 7);
    const std::span shared = std::span(examples).first(2 * half);
    const TaskResults both =
        EvaluateRows(task, two, {.split = split, .examples = shared, .gradients = gradients});
    for (int64_t r = 0; r < 2; ++r) {
      const TaskResults alone = EvaluateRows(
          task, TakeRow(two, r),
          {.split = split, .examples = shared.subspan(r * half, half), .gradients = gradients});
      ExpectNear("losses", {both.losses[r]}, alone.losses, kRounding,
                 fmt::format("row {} with its part of the examples of {}, and alone", r, name),
                 findings);
    }
  }
}

void CheckNormalizer(const TaskFamily& task, Findings* findings) {
  const TaskRows rows = DrawRows(task, 1, 6);
  const std::optional<double> maximum = task.NormalizerMaximum();
  findings->Expect(!maximum || std::isfinite(*maximum), "its maximum is {}", maximum.value_or(0));
  double previous = -std::numeric_limits<double>::infinity();
  for (const double loss :
       {-1e30, -1e3, -2.0, -1e-3, 0.0, 1e-6, 0.1, 1.0, 2.0, 3.0, 10.0, 1e6, 1e30}) {
    const double normalized = task.Normalize(rows.config, loss);
    findings->Expect(std::isfinite(normalized), "a loss of {} becomes {}", loss, normalized);
    findings->Expect(!(normalized < previous),
                     "a loss of {} becomes {}, a smaller one {}: it must not fall", loss,
                     normalized, previous);
    findings->Expect(!maximum || normalized <= *maximum,
                     "a loss of {} becomes {}, above the maximum {}", loss, normalized,
                     maximum.value_or(0));
    previous = normalized;
  }
}

void CheckNotFiniteParams(const TaskFamily& task, Findings* findings) {
  for (const bool gradients : {true, false}) {
    TaskRows rows = DrawRows(task, 2, 10);
    std::ranges::fill(rows.params, kNaN);
    for (const float loss :
         EvaluateRows(task, rows, {.gradients = gradients, .garbage = 7}).losses) {
      findings->Expect(!std::isfinite(loss),
                       "params of NaN have the loss {}: a training that blew up would go unseen",
                       loss);
    }
  }
}

void CheckAnswers(const TaskFamily& task, Findings* findings) {
  constexpr int64_t kRows = 2;
  constexpr int64_t kExamples = 9;
  const int64_t classes = task.parts().classes;
  const TaskRows rows = DrawRows(task, kRows, 12);
  const auto [first, last] = task.ExampleRange(Split::kTest);
  std::vector<int32_t> examples;
  for (int64_t i = 0; first < last && i < kRows * kExamples; ++i) {
    examples.push_back(static_cast<int32_t>(first + i % (last - first)));
  }
  std::vector<int32_t> labels(kRows * kExamples, -1);
  std::vector<float> logits(kRows * kExamples * std::max<int64_t>(classes, 1), kNaN);
  TaskResults results{.losses = std::vector<float>(kRows),
                      .gradients = {},
                      .aux = std::vector<float>(kRows * task.aux_layout().size()),
                      .model_state = rows.model_state};
  const auto evaluate = [&] {
    Workspace scratch;
    Dirty(scratch, kNaN);
    task.Evaluate({.rows = kRows,
                   .config = rows.config,
                   .params = rows.params,
                   .model_state = results.model_state,
                   .split = Split::kTest,
                   .keys = rows.keys,
                   .examples = examples,
                   .losses = results.losses,
                   .aux = results.aux,
                   .answers = {.logits = logits, .labels = labels}},
                  scratch);
  };
  if (classes == 0) return findings->ExpectError("no classes", evaluate);
  evaluate();
  const TaskResults without =
      EvaluateRows(task, rows, {.split = Split::kTest, .examples = examples, .gradients = false});
  findings->Expect(SameBits(results, without), "{} are others where answers are wanted",
                   Differing(results, without));
  for (const int32_t label : labels) {
    if (!findings->Expect(label >= 0 && label < classes, "{} is no label of {} classes", label,
                          classes)) {
      return;
    }
  }
  for (int64_t row = 0; row < kRows; ++row) {
    double loss = 0;
    int64_t right = 0;
    for (int64_t i = row * kExamples; i < (row + 1) * kExamples; ++i) {
      const auto scores = std::span(logits).subspan(i * classes, classes);
      const auto largest = std::ranges::max_element(scores);
      double sum = 0;
      for (const float score : scores) sum += std::exp(double{score} - double{*largest});
      loss += std::log(sum) + double{*largest} - double{scores[labels[i]]};
      right += largest - scores.begin() == labels[i] ? 1 : 0;
    }
    const double mean = loss / kExamples;
    findings->Expect(
        std::abs(mean - results.losses[row]) <= kRoundingOfMeans * std::max(1.0, std::abs(mean)),
        "row {} has the loss {}, its logits and labels {}", row, results.losses[row], mean);
    const double accuracy = static_cast<double>(right) / kExamples;
    for (const LayoutEntry& entry : task.aux_layout().entries()) {
      if (entry.name != "accuracy") continue;
      const double got = results.aux[row * task.aux_layout().size() + entry.offset];
      findings->Expect(std::abs(got - accuracy) <= kRounding,
                       "row {} has the accuracy {}, its logits and labels {}", row, got, accuracy);
    }
  }
}

void CheckPictures(const TaskFamily& task, Findings* findings) {
  size_t count = 0;
  for (const Split split : SplitsOf(task)) {
    const TaskRows row = DrawRows(task, 1, 8);
    const auto show = [&](int64_t rows) {
      std::vector<float> model_state = row.model_state;
      Workspace scratch;
      Dirty(scratch, kNaN);
      std::vector<Pictures> pictures = task.Show({.rows = rows,
                                                  .config = row.config,
                                                  .params = row.params,
                                                  .model_state = model_state,
                                                  .split = split,
                                                  .keys = row.keys},
                                                 scratch);
      findings->Expect(SameBits(model_state, row.model_state), "Show changed the model state");
      return pictures;
    };
    const std::vector<Pictures> pictures = show(1);
    const std::vector<Pictures> again = show(1);
    count = pictures.size();
    if (!findings->Expect(pictures.size() == again.size(), "Show gave {} pictures, then {}",
                          pictures.size(), again.size())) {
      return;
    }
    for (size_t p = 0; p < pictures.size(); ++p) {
      findings->Expect(MakeGrid(pictures[p]).pixels == MakeGrid(again[p]).pixels,
                       "'{}' of {} shown twice differs", pictures[p].name, ToString(split));
      findings->Expect(AllFinite(pictures[p].pixels), "'{}' of {} is not finite", pictures[p].name,
                       ToString(split));
    }
    findings->ExpectError("", [&] { show(2); });
  }
  findings->Measure("{} shown", count);
}

void CheckTaskAllocations(const TaskFamily& task, Findings* findings) {
  constexpr int kEvaluations = 5;
  if (findings->allocations() == nullptr) return findings->Measure("not counted");
  const TaskRows rows = DrawRows(task, 1, 1);
  std::vector<float> losses(1);
  std::vector<float> gradients(rows.params.size());
  std::vector<float> aux(task.aux_layout().size());
  std::vector<float> model_state = rows.model_state;
  Key key = rows.keys[0];
  Workspace scratch;
  const auto evaluate = [&] {
    task.Evaluate({.config = rows.config,
                   .params = rows.params,
                   .model_state = model_state,
                   .keys = {&key, 1},
                   .losses = losses,
                   .gradients = gradients,
                   .aux = aux},
                  scratch);
  };
  evaluate();
  const Allocations before = findings->allocations()();
  for (int i = 0; i < kEvaluations; ++i) {
    key = FoldIn(key, 0);
    evaluate();
  }
  const Allocations after = findings->allocations()();
  const int64_t count = after.count - before.count;
  if (task.parts().allocates) {
    return findings->Measure("{} an evaluation, as the family says", count / kEvaluations);
  }
  findings->Expect(count == 0,
                   "{} evaluations took memory {} times, {} bytes, beside their scratch memory; "
                   "use that, or say so in TaskParts::allocates",
                   kEvaluations, count, after.bytes - before.bytes);
}

}  // namespace lopt::checks
