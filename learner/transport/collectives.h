#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lopt/base/choices.h"
#include "lopt/base/error.h"
#include "lopt/learner/transport/transport.h"

namespace lopt {

// What becomes of the numbers that the members of a group have in one place.
enum class Reduction { kSum, kProduct, kMax, kMin };
inline constexpr Named<Reduction> kReductions[] = {{Reduction::kSum, "sum"},
                                                   {Reduction::kProduct, "product"},
                                                   {Reduction::kMax, "max"},
                                                   {Reduction::kMin, "min"}};

// Ranks of a job, ascending, that do something together; others take no part.
using RankGroup = std::vector<int>;

// All ranks of the job.
RankGroup AllRanks(const Transport& transport);

// A collective operation that has begun on this rank. Nothing blocks: Done moves it on as far as
// what has arrived lets it, so every member asks until it is done.
template <class T>
class Pending {
 public:
  // `advance` gives the result once it is there.
  explicit Pending(std::function<std::optional<T>()> advance) : advance_(std::move(advance)) {}

  // Throws Error, once what the others sent is here, if they began another operation, or if sizes
  // differ that must not.
  bool Done() {
    if (!result_) result_ = advance_();
    return result_.has_value();
  }
  // What it gave. Throws Error unless it is done.
  const T& Get() const {
    Require(result_.has_value(),
            "a collective operation is asked for its result before it is done");
    return *result_;
  }

 private:
  std::function<std::optional<T>()> advance_;
  std::optional<T> result_;
};

// Collective operations over a transport, as in MPI or torch.distributed, on groups of its ranks.
// The members of a group begin the same operations, with the same roots, in the same order; else
// there is an error where another's part of another operation arrives, and who waits for a part
// that nobody sends waits for ever. Several may be under way, of one group or of different ones.
// What comes of numbers is a function of the members' numbers and their ranks alone: they are
// combined in the order of the ranks, in float64, and rounded once, so the order of arrival does
// not show. Not thread-safe, and must outlive what it began.
//
// All begin functions throw Error if this rank is not in the group, the root is not, or the group
// is not a list of different ranks of the job in ascending order.
class Collectives {
 public:
  using Bytes = std::vector<std::byte>;  // of any length
  using Numbers = std::vector<float>;    // of any length

  // Its messages are those of `kind`.
  explicit Collectives(Transport* transport, int kind = 0) : transport_(transport), kind_(kind) {}
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // The root's bytes, on all members; `bytes` counts on the root alone.
  Pending<Bytes> Broadcast(const RankGroup& group, int root, Bytes bytes = {});
  // Part i of the root's parts on the i-th member. Throws Error on the root unless there are as
  // many parts as members.
  Pending<Bytes> Scatter(const RankGroup& group, int root, const std::vector<Bytes>& parts = {});
  // Every member's bytes, in the order of the ranks: on the root; on others nothing.
  Pending<std::vector<Bytes>> Gather(const RankGroup& group, int root, Bytes bytes);
  // The same on all members.
  Pending<std::vector<Bytes>> AllGather(const RankGroup& group, Bytes bytes);
  // The members' numbers combined place by place: on the root; on others nothing. All must have
  // equally many. A NaN gives NaN.
  Pending<Numbers> Reduce(const RankGroup& group, int root, Reduction reduction,
                          const Numbers& numbers);
  // The same on all members.
  Pending<Numbers> AllReduce(const RankGroup& group, Reduction reduction, const Numbers& numbers);

  // A message of the kind, for who takes all messages from the transport. Throws Error if it is
  // damaged.
  void Take(const Message& message);
  // Takes what has arrived from the transport, for who has no other messages. False if nothing has.
  // Throws Error if there is a message of another kind.
  bool Poll();
  // What the operation gives, for which it waits as long as it takes: polls until it is done.
  // Throws Error as Pending::Done and Poll do.
  template <class T>
  T Await(Pending<T> pending) {
    PollUntil([&] { return pending.Done(); });
    return pending.Get();
  }

 private:
  // What one member sends another in an operation.
  struct Parcel {
    std::vector<int> group = {};
    int64_t number = 0;          // of the operation, among those of the group
    std::string operation = {};  // what the sender began
    std::string error = {};      // why there is no result; empty: there is one
    Bytes bytes = {};

    template <class Visitor>
    void VisitMembers(Visitor& visit) {
      visit("group", group);
      visit("number", number);
      visit("operation", operation);
      visit("error", error);
      visit("bytes", bytes);
    }
  };
  // An operation as this rank began it.
  struct Operation {
    std::string name;
    RankGroup group;
    int64_t number;
  };

  void PollUntil(const std::function<bool()>& done);
  void TakeOwn(const Message& message);
  Operation Begin(const RankGroup& group, std::optional<int> root, std::string name);
  void Send(const Operation& operation, int to, Bytes bytes, const std::string& error = "");
  void SendToOthers(const Operation& operation, const Bytes& bytes, const std::string& error = "");
  // What these members sent, this one's `own` in its place; nothing until all of it is here.
  std::optional<std::vector<Bytes>> Receive(const Operation& operation,
                                            const std::vector<int>& from, const Bytes& own = {});
  std::optional<Numbers> ReceiveReduced(const Operation& operation, Reduction reduction,
                                        const Bytes& own);

  Transport* transport_;
  int kind_;
  std::map<RankGroup, int64_t> begun_;                             // operations
  std::map<std::tuple<RankGroup, int64_t, int>, Parcel> arrived_;  // by group, number, sender
};

}  // namespace lopt
