#include "lopt/tools/predict/prediction_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "lopt/base/print.h"
#include "lopt/base/record.h"
#include "lopt/base/utf8.h"
#include "lopt/base/wrapped.h"

namespace lopt {
namespace {

// What --json prints.
struct PredictedRow {
  int64_t row = 0;
  int64_t label = 0;
  int64_t predicted = 0;
  std::vector<double> logits = {};
  std::vector<double> probabilities = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("row", row);
    visit("label", label);
    visit("class", predicted);
    visit("logits", logits);
    visit("probabilities", probabilities);
  }
};
struct PredictionRecord {
  std::string run = {};
  std::string split = {};
  int64_t rows = 0;
  int64_t classes = 0;
  double loss = 0;
  double accuracy = 0;
  std::vector<std::vector<int64_t>> confusion = {};
  std::vector<PredictedRow> predictions = {};

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("run", run);
    visit("split", split);
    visit("rows", rows);
    visit("classes", classes);
    visit("loss", loss);
    visit("accuracy", accuracy);
    visit("confusion", confusion);
    visit("predictions", predictions);
  }
};

double Accuracy(const Predictions& p) {
  return static_cast<double>(p.Right()) / static_cast<double>(p.rows());
}

// "7: 0.9981  3: 0.0012  9: 0.0003", the likeliest classes of a row.
std::string LikeliestWords(const std::vector<double>& shares) {
  constexpr size_t kShown = 4;
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return shares[a] > shares[b]; });
  order.resize(std::min(order.size(), kShown));
  std::string words;
  for (const size_t c : order) words += fmt::format("  {:>3}: {:.4f}", c, shares[c]);
  return words;
}

void PrintRows(const Predictions& p, const RowRange& range) {
  PrintOut("{:>7}  {:>5}  {:>5}  {}\n", "row", "label", "class", "likeliest classes");
  for (int64_t row = range.first; row < range.last; ++row) {
    PrintOut("{:>7}  {:>5}  {:>5}{}{}\n", row, p.labels[row], p.Class(row),
             LikeliestWords(p.Probabilities(row)), p.Class(row) == p.labels[row] ? "" : "  wrong");
  }
}

// The confusion matrix where it fits, else the pairs that are confused most often.
void PrintConfusion(const Predictions& p) {
  constexpr int64_t kLabelColumns = 7;
  const auto counts = p.Confusion();
  int64_t largest = p.classes - 1;
  for (const auto& row : counts) largest = std::max(largest, std::ranges::max(row));
  const int64_t width = std::ssize(fmt::to_string(largest)) + 2;
  if (kLabelColumns + p.classes * width <= static_cast<int64_t>(kTerminalColumns)) {
    PrintOut("\nRows of each label (line) that have each class (column):\n{:>7}", "");
    for (int64_t c = 0; c < p.classes; ++c) PrintOut("{:>{}}", c, width);
    for (int64_t label = 0; label < p.classes; ++label) {
      PrintOut("\n{:>7}", label);
      for (const int64_t count : counts[label]) PrintOut("{:>{}}", count, width);
    }
    PrintOut("\n");
    return;
  }
  struct Pair {
    int64_t count, label, predicted;
  };
  std::vector<Pair> pairs;
  for (int64_t label = 0; label < p.classes; ++label) {
    for (int64_t c = 0; c < p.classes; ++c) {
      if (c != label && counts[label][c] > 0) pairs.push_back({counts[label][c], label, c});
    }
  }
  std::ranges::stable_sort(pairs, std::greater<>(), &Pair::count);
  pairs.resize(std::min<size_t>(pairs.size(), 10));
  PrintOut(
      "\nMost often confused, of {} classes (--json has the whole matrix):\n{:>8}  {:>5}  {}\n",
      p.classes, "rows", "label", "class");
  for (const Pair& pair : pairs) {
    PrintOut("{:>8}  {:>5}  {:>5}\n", pair.count, pair.label, pair.predicted);
  }
}

}  // namespace

std::string PredictionsJson(const std::string& run, std::string_view split, const Predictions& p,
                            const RowRange& range) {
  PredictionRecord record{.run = Utf8Text(run),
                          .split = std::string(split),
                          .rows = p.rows(),
                          .classes = p.classes,
                          .loss = p.loss,
                          .accuracy = Accuracy(p),
                          .confusion = p.Confusion()};
  for (int64_t row = range.first; row < range.last; ++row) {
    const auto logits = std::span(p.logits).subspan(row * p.classes, p.classes);
    record.predictions.push_back({.row = row,
                                  .label = p.labels[row],
                                  .predicted = p.Class(row),
                                  .logits = {logits.begin(), logits.end()},
                                  .probabilities = p.Probabilities(row)});
  }
  return RecordText(record);
}

std::string PredictionsCsv(const Predictions& p, const RowRange& range) {
  std::string text = "row,label,class";
  for (int64_t c = 0; c < p.classes; ++c) text += fmt::format(",p{}", c);
  text += "\n";
  for (int64_t row = range.first; row < range.last; ++row) {
    text += fmt::format("{},{},{}", row, p.labels[row], p.Class(row));
    for (const double share : p.Probabilities(row)) text += fmt::format(",{:.9g}", share);
    text += "\n";
  }
  return text;
}

void PrintPredictions(const Predictions& p, const RowRange& range) {
  PrintRows(p, range);
  PrintOut("\n  loss: {:.6g}\n  accuracy: {:.6g} ({} of {})\n", p.loss, Accuracy(p), p.Right(),
           p.rows());
  PrintConfusion(p);
}

}  // namespace lopt
