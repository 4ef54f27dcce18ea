#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lopt/base/config.h"

namespace lopt {

// What a fit is asked for; all that its result depends on besides the clock.
struct FitRequest {
  Config task = {};                     // type and options
  int64_t steps = 1000;                 // of a training
  int64_t seeds = 3;                    // of the comparison
  int64_t seed = 0;                     // of all randomness
  std::string data_dir = {};            // of the task's files
  std::string start = "recommended";    // the name of the optimizer that it starts from
  std::optional<double> minutes = {};   // for everything; none where the two below say enough
  std::optional<int64_t> updates = {};  // of theta; none: as many as there is time for
  std::optional<int64_t> trials = {};   // of each rival and of fitting; none: by the minutes

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("task", task);
    visit("steps", steps);
    visit("seeds", seeds);
    visit("seed", seed);
    visit("data_dir", data_dir);
    visit("start", start);
    visit("minutes", minutes);
    visit("updates", updates);
    visit("trials", trials);
  }
};

// How fast the task is trained here, and what that leaves time for.
struct FitMeasurement {
  double seconds = 0;                           // that measuring took
  std::optional<int64_t> threads = {};          // that times are of; earlier versions: not known
  bool log_loss = false;                        // whether all losses were above 0
  double update_seconds = 0;                    // of one update of theta; 0: not measured
  std::map<std::string, double> training = {};  // seconds for each whole training, by optimizer
  std::vector<std::string> kinds = {};          // of candidates, in the order of `steps`
  int64_t updates = 0;                          // of theta that there is time for
  int64_t search_seeds = 1;                     // of each trial of the search

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("seconds", seconds);
    visit("threads", threads);
    visit("log_loss", log_loss);
    visit("update_seconds", update_seconds);
    visit("training", training);
    visit("kinds", kinds);
    visit("updates", updates);
    visit("search_seeds", search_seeds);
  }
};

// FitTrial::kind: whose directions and step sizes a candidate has.
inline constexpr const char* kTrainedKind = "trained";           // the start's
inline constexpr const char* kAdamKind = "adam";                 // Adam's directions
inline constexpr const char* kAdamVectorsKind = "adam-vectors";  // Adam's for vectors alone
// The same two, whose steps the schedule alone sizes: as Muon with AdamW for vectors, and as AdamW.
inline constexpr const char* kPlainKind = "plain";
inline constexpr const char* kPlainAdamKind = "plain-adam";

// A candidate, made of the start, and its mean loss on inner_valid.
struct FitTrial {
  std::string name = {};                // of the start and in trainings that decide; else empty
  std::string kind = kTrainedKind;      // one of the above
  double multiplier = 1;                // of its steps
  double decay = 1;                     // multiplier of its weight decay
  std::optional<double> momentum = {};  // of its directions; none: as it was
  std::optional<double> loss = {};      // none: it was not finite

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("kind", kind);
    visit("multiplier", multiplier);
    visit("decay", decay);
    visit("momentum", momentum);
    visit("loss", loss);
  }
};

// A phase that tries things, when it has ended.
struct FitSearch {
  double seconds = 0;                 // that it took
  std::vector<FitTrial> trials = {};  // in their order
  int64_t best = 0;                   // the place of the one that was taken

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("seconds", seconds);
    visit("trials", trials);
    visit("best", best);
  }
};

// One optimizer of the comparison.
struct FitContender {
  std::string name = {};     // as in the report, and of its directory in compare/
  int64_t trials = 0;        // values that were tried; 0: it was not tuned
  int64_t tuning_seeds = 1;  // of each of these
  double seconds = 0;        // for fitting or tuning it, and to train it with each seed
  std::map<std::string, double> tuned = {};  // what a rival's tuning chose, by the option's name
  std::optional<double> test_loss = {};      // mean over the seeds; none: one was not finite

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("name", name);
    visit("trials", trials);
    visit("tuning_seeds", tuning_seeds);
    visit("seconds", seconds);
    visit("tuned", tuned);
    visit("test_loss", test_loss);
  }
};

// The file fit.json of a fit's directory: what it was asked for, and what it has found so far.
struct FitRecord {
  static constexpr const char* kFormat = "lopt fit 4";  // the first key of the file

  std::string status = {};   // running, interrupted or finished
  std::string version = {};  // of the program
  std::string isa = {};      // instruction set of the kernels
  // TaskResources::DataChecksums; none: not known
  std::optional<std::string> data = {};
  FitRequest request = {};  // what is asked for
  std::optional<FitMeasurement> measured = {};
  std::optional<FitSearch> steps = {};   // over multipliers of steps, in short trainings
  std::optional<FitSearch> kinds = {};   // each with its best one, and the start, in whole ones
  std::optional<FitSearch> search = {};  // in whole trainings; grows by rounds
  std::optional<FitSearch> bases = {};   // the start, and the best of the search, again
  double meta_seconds = 0;  // of meta-training; up to 10 s less for each time that it was killed
  bool meta_ended = false;  // or there was none
  std::optional<FitSearch> candidates = {};   // bases, and what was meta-trained
  std::vector<FitContender> contenders = {};  // those that have been judged
  std::optional<bool> take = {};              // the verdict
  std::string verdict = {};                   // the same in a sentence

  // What fitting took, measuring included.
  double FittingSeconds() const;

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("status", status);
    visit("version", version);
    visit("isa", isa);
    visit("data", data);
    visit("request", request);
    visit("measured", measured);
    visit("steps", steps);
    visit("kinds", kinds);
    visit("search", search);
    visit("bases", bases);
    visit("meta_seconds", meta_seconds);
    visit("meta_ended", meta_ended);
    visit("candidates", candidates);
    visit("contenders", contenders);
    visit("take", take);
    visit("verdict", verdict);
  }
};

}  // namespace lopt
