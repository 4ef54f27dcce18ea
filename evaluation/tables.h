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

// One optimizer beside the best baseline of each task and number of steps, in Markdown: a table,
// and below the heading "### Defeats" every one of these on which its test loss is the higher one,
// whether or not the difference is clear, and how many have no best baseline. Throws Error if the
// summary does not have the optimizer.
std::string TableAgainstBest(const Summary& summary, const std::string& optimizer);

// A name as Markdown shows it, in one line of plain text.
std::string MarkdownName(const std::string& name);

}  // namespace lopt
