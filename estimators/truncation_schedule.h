#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lopt/base/fields.h"
#include "lopt/base/key.h"
#include "lopt/estimators/inner_problem.h"

namespace lopt {

// Decides how many inner steps an episode has. Immutable, thread-safe.
class TruncationSchedule {
 public:
  // The length of an episode that has no end.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // StepInfo::num_steps of an episode of this length.
  static constexpr int64_t NumSteps(int64_t length) { return length == kNever ? 0 : length; }

  virtual ~TruncationSchedule() = default;
  // The length, in inner steps, of an episode that starts now: at least 1, or kNever if it has no
  // end.
  virtual int64_t Length(Key key, const OuterState& outer) const = 0;
  // Episodes that start in the first `outer_steps` >= 1 outer steps have no more inner steps;
  // kNever if they may have no end, or it is not known.
  virtual int64_t Longest(int64_t) const { return kNever; }
  // They have no fewer: kNever if they have no end; 0 if it is not known.
  virtual int64_t Shortest(int64_t) const { return 0; }
  // Whether Length can be anything but kNever.
  virtual bool EpisodesEnd() const { return true; }
};

// Episodes have no end: for estimators that own a schedule, and for endless problems.
class NeverEndingTruncationSchedule : public TruncationSchedule {
 public:
  // It has no keys.
  struct Options {
    void Visit(FieldVisitor&) {}
  };
  NeverEndingTruncationSchedule() = default;
  // What a registry makes it by.
  explicit NeverEndingTruncationSchedule(const Options&) {}
  int64_t Length(Key, const OuterState&) const override { return kNever; }
  int64_t Shortest(int64_t) const override { return kNever; }
  bool EpisodesEnd() const override { return false; }
};

// Every episode has the same length.
class ConstantTruncationSchedule : public TruncationSchedule {
 public:
  // The keys of a config.
  struct Options {
    int64_t total_length = 100;
    void Visit(FieldVisitor& v);
  };
  // Throws Error, as the others do, if an option is not valid.
  explicit ConstantTruncationSchedule(const Options& options);
  int64_t Length(Key, const OuterState&) const override { return options_.total_length; }
  int64_t Longest(int64_t) const override { return options_.total_length; }
  int64_t Shortest(int64_t) const override { return options_.total_length; }

 private:
  Options options_;
};

// exp(u) rounded towards 0, u uniform on (ln min_length, ln max_length); drawn anew for each
// episode.
class LogUniformLengthSchedule : public TruncationSchedule {
 public:
  // The keys of a config.
  struct Options {
    int64_t min_length = 100;
    int64_t max_length = 1000;
    void Visit(FieldVisitor& v);
  };
  // Throws Error unless min_length < max_length.
  explicit LogUniformLengthSchedule(const Options& options);
  int64_t Length(Key key, const OuterState& outer) const override;
  int64_t Longest(int64_t) const override { return options_.max_length; }
  int64_t Shortest(int64_t) const override { return options_.min_length; }

 private:
  Options options_;
};

// A length that follows the outer step: linear between the points (outer_steps[i], lengths[i]),
// constant before the first and after the last, rounded towards 0; with std > 0 plus std times a
// standard normal, rounded towards 0; never below min_length.
class ScheduledTruncationSchedule : public TruncationSchedule {
 public:
  // The keys of a config.
  struct Options {
    std::vector<int64_t> outer_steps = {0};
    std::vector<int64_t> lengths = {100};
    double std = 0;
    int64_t min_length = 1;
    void Visit(FieldVisitor& v);
  };
  // Throws Error unless there are as many outer_steps as lengths and the former increase.
  explicit ScheduledTruncationSchedule(const Options& options);
  int64_t Length(Key key, const OuterState& outer) const override;
  // Of any normal that can be drawn: 5.5 std longer than without, or min_length.
  int64_t Longest(int64_t outer_steps) const override;
  int64_t Shortest(int64_t outer_steps) const override;

 private:
  int64_t MeanLength(int64_t outer_step) const;

  Options options_;
};

}  // namespace lopt
