#pragma once

#include <string>

#include "lopt/evaluation/summary.h"

namespace lopt {

// What train and test losses are, in sentences for people.
std::string LossesNote();

// All rows, one section a task, with verdicts; wins and defeats alike.
std::string MarkdownTable(const Summary& summary);
std::string CsvTable(const Summary& summary);

}  // namespace lopt
