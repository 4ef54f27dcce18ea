#pragma once

#include <string>

#include "lopt/evaluation/summary.h"

namespace lopt {

// What train and test losses are, in sentences for people.
std::string LossesNote();

// What `lopt eval` prints: the optimizers of which nothing is tuned, those that are tuned, each
// over all tasks, and the losses of each task, in at most 80 columns unless names are long.
std::string NarrowTables(const Summary& summary);
// The same tables over all tasks, then all figures, one section a task, with verdicts; wins and
// defeats alike.
std::string MarkdownTable(const Summary& summary);
std::string CsvTable(const Summary& summary);

}  // namespace lopt
