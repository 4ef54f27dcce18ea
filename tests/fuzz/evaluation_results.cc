// results.jsonl of an evaluation.
#include <cmath>

#include "lopt/evaluation/results_file.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

void ReadResultLines(std::string_view input) {
  const Results results = ReadResults(PutFile(FreshDirectory(), "results.jsonl", input));
  for (const RunResult& run : results.runs) ResultLine(run);
}

std::vector<std::string> ResultSeeds() {
  const std::vector<double> two = {1.5, std::nan("")};
  const RunResult result{.task = "t",
                         .optimizer = "Adam",
                         .seed = 1,
                         .steps = {1, 3},
                         .train_loss = {3, 2, 1},
                         .final_train_loss = two,
                         .final_train_accuracy = two,
                         .mean_train_loss = two,
                         .test_loss = two,
                         .test_part_loss = {1, 2},
                         .test_accuracy = two,
                         .steps_to_adam = {1, 0},
                         .seconds = two,
                         .learning_rate = {0.1, 0.2},
                         .at_edge = {true, false},
                         .hyperparameters = {{"beta1", two}},
                         .tuning_loss = two,
                         .trials = 2,
                         .blew_up = {false, true}};
  const std::string line = ResultLine(result) + "\n";
  return {line, line + line + line.substr(0, 40)};
}

const AddFuzzTarget results_target({"evaluation_results", ReadResultLines, ResultSeeds});

}  // namespace
}  // namespace lopt
