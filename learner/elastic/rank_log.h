#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/answer_rules.h"
#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// The messages that a learner has sent to a rank with one logical worker, as far as they are needed
// to bring a fresh worker role to where the rank is. What a role does is a function of the messages
// that it gets, so it gets them again, and what it answers a second time is dropped. States that
// the rank has sent take the place of all messages before.
class RankLog {
 public:
  // So many windows are run for an update.
  explicit RankLog(int64_t windows) : windows_per_update_(windows) {}

  // The rules of the logical worker's answers; to be known before the first message.
  void Know(AnswerRules rules) { rules_ = std::move(rules); }
  bool KnowsRules() const { return rules_.has_value(); }

  // Adds a message of the learner. Throws Error if it asks for states in a directory, which a
  // worker elsewhere does not see.
  void Add(int kind, FrameBody body);
  // Adds a request for the rank's states, whose answer is for this log alone.
  void AddSnapshot();
  // So many messages with weights were added.
  int64_t weights() const { return weights_; }
  // Whether the learner still waits for an answer.
  bool Owes() const;

  // From now on a fresh role is told, from the beginning.
  void Restart();
  struct Told {
    int kind = 0;
    FrameBody body = {};
    bool again = false;  // some role was told before
  };
  // What to tell the role next; none if it has been told all.
  std::optional<Told> Tell();
  // Whether the role has answered all that it was told.
  bool Answered() const { return !NextAwaited().has_value(); }
  // Whether all that the role was told are states, or nothing.
  bool OnlyStatesTold() const { return told_ == states_; }
  // Whether a request for states is the last of all messages.
  bool EndsWithStates() const { return log_.size() == states_ || log_.back().gives_states; }

  // Takes the role's next answer. Returns whether it is one for the learner. Throws Error if
  // nothing is open that it could answer, or if it is against the rules.
  bool Take(int kind, const std::vector<std::byte>& bytes);
  // The answer that was for the learner, taken last, was no good: another role is to give it again.
  void Reopen();

 private:
  struct Entry {
    int kind = 0;
    FrameBody body = {};
    bool told = false;          // to some role
    bool settled = false;       // its answer is not for the learner, or the learner has it
    bool gives_states = false;  // its answer has the states
    int64_t windows = 0;        // that the worker has run before it
    int64_t outer_step = 0;     // of kWeights
    uint64_t theta_size = 0;    // of kWeights
  };
  void Append(Entry entry);
  std::optional<size_t> NextAwaited() const;
  void TakeStates(size_t asked, const std::vector<std::byte>& bytes);

  std::optional<AnswerRules> rules_;
  int64_t windows_per_update_;
  std::deque<Entry> log_;
  size_t states_ = 0;    // the first so many entries are states that the rank has sent
  size_t told_ = 0;      // the first so many were told to the present role
  size_t answered_ = 0;  // of the first so many it owes no answer
  int64_t windows_ = 0;  // that the worker has run after all entries
  int64_t weights_ = 0;
};

}  // namespace lopt
