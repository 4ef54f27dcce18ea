#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lopt/evaluation/summary.h"
#include "lopt/evaluation/summary_text.h"
#include "lopt/tools/report/evaluation.h"
#include "lopt/tools/report/evaluation_tables.h"
#include "lopt/tools/report/page.h"
#include "lopt/tools/report/plot.h"

namespace lopt {

// How the curves of optimizers look, the same in all figures: learned ones are thick (the best four
// of them) and in color, the three best baselines in color, all others grey.
class Looks {
 public:
  // Of all evaluations in one page.
  explicit Looks(const std::vector<ComparedSummary>& summaries);

  // In the order of legends: learned ones, then baselines, the best first.
  const std::vector<std::string>& optimizers() const { return optimizers_; }
  // Learned ones, then the baselines in color.
  const std::vector<std::string>& shown() const { return shown_; }
  bool IsGrey(const std::string& optimizer) const;
  // Sets style and color.
  void Give(const std::string& optimizer, Curve* curve) const;

 private:
  std::vector<std::string> optimizers_;
  std::vector<std::string> shown_;
  size_t learned_ = 0;
};

// The best first, then what is not a number; equals in their order.
std::vector<const SummaryRow*> SortedByTestLoss(SummaryRows section);

// The forest plot of all tasks; none if losses are not compared with those of a baseline, or on one
// task none is a fraction of them.
std::optional<Figure> ForestOf(const ComparedSummary& compared);

// The learning curves of each task and, where there are several, its forest plots. An evaluation
// and its summary have the same place.
void AddTaskFigures(const std::vector<EvaluationRecord>& evaluations,
                    const std::vector<ComparedSummary>& summaries, const Looks& looks,
                    ReportPage* page);

// Performance profiles of evaluations with several tasks or numbers of steps.
void AddProfiles(const std::vector<EvaluationRecord>& evaluations,
                 const std::vector<ComparedSummary>& summaries, const Looks& looks,
                 ReportPage* page);

}  // namespace lopt
