#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/lopt/golden_steps.h"
#include "lopt/lopt/learned_optimizer.h"

namespace lopt {

// What the inner trainings were like on which an optimizer was meta-trained. A number is 0 where it
// is unknown.
struct TrainedRange {
  int64_t shortest_training = 0;  // inner steps of an episode
  int64_t longest_training = 0;   // likewise
  int64_t smallest_batch = 0;     // examples; of the tasks that have a data set
  int64_t largest_batch = 0;      // likewise
  int64_t fewest_params = 0;      // numbers that a task trains
  int64_t most_params = 0;        // likewise
  int64_t largest_tensor = 0;     // numbers of one of its tensors

  bool operator==(const TrainedRange&) const = default;
  bool known() const { return *this != TrainedRange(); }  // in part, at least

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("shortest_training", shortest_training);
    visit("longest_training", longest_training);
    visit("smallest_batch", smallest_batch);
    visit("largest_batch", largest_batch);
    visit("fewest_params", fewest_params);
    visit("most_params", most_params);
    visit("largest_tensor", largest_tensor);
  }
};

// Says how a training differs from those of the range: fewer than half of the shortest's steps or
// more than the longest's, batches of fewer than half of the smallest's examples, or more than ten
// times the largest's, the params or the largest tensor's numbers. A sentence, without its stop,
// that names all of it; empty where there is nothing, or nothing is known. `num_steps`,
// `batch_size`: 0 if unknown; `tensors`: the sizes of those that are trained.
std::string UnlikeTrained(const TrainedRange& range, int64_t num_steps,
                          std::span<const int64_t> tensors, int64_t batch_size = 0);

// The range of a JSON text, which has all members. Throws Error that begins with `source` if it is
// another text, a number is below 0, or the largest of something is below the smallest.
TrainedRange ParseTrainedRange(const std::string& text, const std::string& source);

// A learned optimizer's weights with what is needed to use them.
struct ThetaFile {
  Config learned_optimizer;  // type and options
  Eigen::VectorXf theta;     // [D]
  Config config = {};        // resolved, of the run that trained it; empty if unknown
  int64_t seed = 0;          // of the run that made it
  int64_t meta_steps = 0;    // updates of theta
  // Inner steps that no episode of that run exceeded; 0 if unknown. What the optimizer does in
  // longer trainings it was not trained for.
  int64_t trained_horizon = 0;
  // Of that run's tasks, as far as it is known; its longest training is trained_horizon.
  TrainedRange trained_range = {};
  // The split on whose loss this theta was chosen, by its run or by a fit; empty: it is its run's
  // last.
  std::string chosen_on = {};
  std::string version = {};  // of the program that wrote it; empty if unknown
};

// A safetensors file with the tensors theta/<name>, the other members as metadata, and golden steps
// with which every reader checks itself (lopt/golden_steps.h). Where the optimizer throws Error in
// them, the file has none, and a warning is logged. The file is complete or absent after a crash.
// The calling thread computes the golden steps; no other work of the process is touched. Throws
// Error, and writes nothing, if theta has another size than the optimizer's or is not finite, or
// the range is not one that can be read.
void WriteThetaFile(const std::string& path, const ThetaFile& file);

// What becomes of a file whose golden steps come out otherwise here.
enum class FailedCheck {
  kError,
  kWarn,  // the file is read, and a warning is logged
};

// Reads it and repeats the golden steps, where there are some, on the thread's instruction set:
// throws Error if a result is farther off than its limit allows (unless `failed_check` is kWarn),
// the tensors are not those of the optimizer or not finite, or the file is of another format than
// WriteThetaFile writes or wrote. `learned_optimizer` is for files that do not name one (tensors
// from elsewhere), which are an Error without it; where the file names one and both are given, a
// difference is an Error that names the options and tensors.
ThetaFile ReadThetaFile(const std::string& path,
                        const std::optional<Config>& learned_optimizer = {},
                        FailedCheck failed_check = FailedCheck::kError);

// Throws Error, whose text begins with `who`, unless theta has as many weights as its optimizer
// needs and all are finite numbers.
void RequireUsable(const ThetaFile& file, const std::string& who);

// Reads a file and repeats its golden steps on every instruction set of the machine. Empty where
// the file has none. Throws Error as ReadThetaFile does, but for a result that is off.
std::vector<GoldenDeviation> CheckThetaFile(const std::string& path,
                                            const std::optional<Config>& learned_optimizer = {});

}  // namespace lopt
