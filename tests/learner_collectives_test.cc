#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/transport/collectives.h"
#include "lopt/learner/transport/local_transport.h"

namespace lopt {
namespace {

using Bytes = Collectives::Bytes;
using Numbers = Collectives::Numbers;

constexpr int kKind = 7;

// Ranks of one process and the collectives of each, all moved on by one thread.
class Job {
 public:
  explicit Job(int size) : transports_(MakeLocalTransports(size)) {
    for (const auto& transport : transports_) {
      collectives_.push_back(std::make_unique<Collectives>(transport.get(), kKind));
    }
  }
  Collectives& operator[](int rank) { return *collectives_[static_cast<size_t>(rank)]; }
  Transport& transport(int rank) { return *transports_[static_cast<size_t>(rank)]; }

  // The members begin in the order of `order`, and are moved on in it. Returns each one's result.
  template <class T>
  std::vector<T> Run(const std::vector<int>& order, const std::function<Pending<T>(int)>& begin) {
    std::vector<Pending<T>> pending;
    for (const int rank : order) pending.push_back(begin(rank));
    for (int round = 0; round < 5; ++round) {
      for (size_t i = 0; i < order.size(); ++i) {
        (*this)[order[i]].Poll();
        pending[i].Done();
      }
    }
    std::vector<T> results;
    for (const int rank : {0, 1, 2, 3}) {
      const auto at = std::ranges::find(order, rank);
      if (at != order.end())
        results.push_back(pending[static_cast<size_t>(at - order.begin())].Get());
    }
    return results;
  }

 private:
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::unique_ptr<Collectives>> collectives_;
};

Bytes Text(const std::string& text) {
  Bytes bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

const std::vector<std::vector<int>> kOrders = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};

TEST_CASE("Reductions of rank + 1 on 4 ranks give 10, 24, 4 and 1, those of 0 and 2 4, 3, 3, 1") {
  const std::vector<std::pair<Reduction, float>> of_all = {
      {Reduction::kSum, 10}, {Reduction::kProduct, 24}, {Reduction::kMax, 4}, {Reduction::kMin, 1}};
  const std::vector<std::pair<Reduction, float>> of_two = {
      {Reduction::kSum, 4}, {Reduction::kProduct, 3}, {Reduction::kMax, 3}, {Reduction::kMin, 1}};
  for (const std::vector<int>& order : kOrders) {
    Job job(4);
    for (const auto& [reduction, wanted] : of_all) {
      const auto all = job.Run<Numbers>(order, [&, kind = reduction](int rank) {
        return job[rank].AllReduce({0, 1, 2, 3}, kind, {static_cast<float>(rank + 1)});
      });
      CHECK_EQ(all, std::vector<Numbers>(4, Numbers{wanted}));
      const auto one = job.Run<Numbers>(order, [&, kind = reduction](int rank) {
        return job[rank].Reduce({0, 1, 2, 3}, 2, kind, {static_cast<float>(rank + 1)});
      });
      CHECK_EQ(one, std::vector<Numbers>{{}, {}, {wanted}, {}});
    }
    for (const auto& [reduction, wanted] : of_two) {
      const auto two = job.Run<Numbers>({2, 0}, [&, kind = reduction](int rank) {
        return job[rank].AllReduce({0, 2}, kind, {static_cast<float>(rank + 1)});
      });
      CHECK_EQ(two, std::vector<Numbers>(2, Numbers{wanted}));
    }
    for (const int rank : {1, 3}) CHECK_FALSE(job.transport(rank).Poll().has_value());
  }
}

TEST_CASE("Broadcast, scatter, gather and all-gather bring each rank what is its own") {
  for (const std::vector<int>& order : kOrders) {
    Job job(4);
    const RankGroup all = AllRanks(job.transport(0));
    CHECK_EQ(all, RankGroup{0, 1, 2, 3});
    CHECK_EQ(job.Run<Bytes>(
                 order,
                 [&](int rank) { return job[rank].Broadcast(all, 1, Text(std::to_string(rank))); }),
             std::vector<Bytes>(4, Text("1")));
    const std::vector<Bytes> parts = {Text("a"), Text("bb"), {}, Text("d")};
    CHECK_EQ(job.Run<Bytes>(order,
                            [&](int rank) {
                              return job[rank].Scatter(all, 3,
                                                       rank == 3 ? parts : std::vector<Bytes>());
                            }),
             parts);
    const auto own = [&](int rank) { return parts[static_cast<size_t>(rank)]; };
    CHECK_EQ(job.Run<std::vector<Bytes>>(
                 order, [&](int rank) { return job[rank].Gather(all, 0, own(rank)); }),
             std::vector<std::vector<Bytes>>{parts, {}, {}, {}});
    CHECK_EQ(job.Run<std::vector<Bytes>>(
                 order, [&](int rank) { return job[rank].AllGather(all, own(rank)); }),
             std::vector<std::vector<Bytes>>(4, parts));
  }
}

TEST_CASE("Sums are taken in the order of the ranks in float64, whoever comes first") {
  // In other orders the first sum is 0 or 2. In float32 the second would be 1.
  const Numbers values = {1e16F, 1, -1e16F, 1};
  for (const std::vector<int>& order : kOrders) {
    Job job(4);
    const auto sums = job.Run<Numbers>(order, [&](int rank) {
      const float tiny = rank == 0 ? 1 : std::ldexp(1.0F, -25);
      return job[rank].AllReduce({0, 1, 2, 3}, Reduction::kSum,
                                 {values[static_cast<size_t>(rank)], tiny});
    });
    CHECK_EQ(sums, std::vector<Numbers>(4, {1, 1 + std::ldexp(1.0F, -23)}));
  }
}

TEST_CASE("What is not a number stays visible in every reduction") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction :
       {Reduction::kSum, Reduction::kProduct, Reduction::kMax, Reduction::kMin}) {
    for (const int where : {0, 1}) {
      Job job(2);
      const auto reduced = job.Run<Numbers>({0, 1}, [&](int rank) {
        return job[rank].AllReduce({0, 1}, reduction, {rank == where ? nan : 3});
      });
      CHECK(std::isnan(reduced[0][0]));
      CHECK(std::isnan(reduced[1][0]));
    }
  }
}

TEST_CASE("Several operations are under way at once, of one group and of others") {
  Job job(3);
  auto late = job[1].AllGather({0, 1, 2}, Text("1"));
  auto first = job[0].AllGather({0, 1, 2}, Text("0"));
  auto pair = job[0].Broadcast({0, 2}, 0, Text("pair"));
  auto second = job[0].AllGather({0, 1, 2}, Text("00"));
  auto pair_there = job[2].Broadcast({0, 2}, 0);
  job[2].Poll();
  CHECK(pair_there.Done());
  CHECK_EQ(pair_there.Get(), Text("pair"));
  job[0].Poll();
  CHECK_FALSE(first.Done());
  CHECK_THROWS_WITH_AS(first.Get(),
                       "a collective operation is asked for its result before it is done", Error);
  auto last = job[2].AllGather({0, 1, 2}, Text("2"));
  auto last_second = job[2].AllGather({0, 1, 2}, Text("22"));
  job[0].Poll();
  CHECK(first.Done());
  CHECK_FALSE(second.Done());
  CHECK_EQ(first.Get(), std::vector<Bytes>{Text("0"), Text("1"), Text("2")});
  auto late_second = job[1].AllGather({0, 1, 2}, Text("11"));
  for (const int rank : {0, 1, 2}) job[rank].Poll();
  CHECK(second.Done());
  CHECK(late.Done());
  CHECK(last.Done());
  CHECK(pair.Done());
  CHECK(late_second.Done());
  CHECK(last_second.Done());
  CHECK_EQ(last_second.Get(), std::vector<Bytes>{Text("00"), Text("11"), Text("22")});
  CHECK_EQ(late.Get(), first.Get());
}

TEST_CASE("Who awaits an operation gets its result when the others have begun it") {
  const auto transports = MakeLocalTransports(3);
  std::vector<std::vector<Bytes>> gathered(3);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Collectives collectives(transports[rank].get());
      for (int round = 0; round < 20; ++round) {
        gathered[rank] = collectives.Await(
            collectives.AllGather({0, 1, 2}, Text(std::to_string(rank) + std::to_string(round))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& parts : gathered) {
    CHECK_EQ(parts, std::vector<Bytes>{Text("019"), Text("119"), Text("219")});
  }
}

TEST_CASE("Errors of collectives name the operation, the ranks and what differs") {
  Job job(3);
  CHECK_THROWS_WITH_AS(job[1].Gather({0, 2}, 0, {}),
                       "gather to rank 0: rank 1 is not in the group {0, 2}", Error);
  CHECK_THROWS_WITH_AS(job[0].Broadcast({0, 2}, 1),
                       "broadcast from rank 1: rank 1 is not in the group {0, 2}", Error);
  for (const RankGroup& group : {RankGroup{}, RankGroup{0, 3}, RankGroup{0, 0}, RankGroup{1, 0}}) {
    CHECK_THROWS_AS(job[0].AllGather(group, {}), Error);
  }
  CHECK_THROWS_WITH_AS(
      job[0].AllGather({0, 0}, {}),
      "all-gather: the group {0, 0} is not a list of different ranks of the 3 there are, ascending",
      Error);
  CHECK_THROWS_WITH_AS(job[0].Scatter({0, 1, 2}, 0, {{}, {}}),
                       "scatter from rank 0: there are 2 parts for the 3 ranks of the group {0, 1, "
                       "2}",
                       Error);

  const std::string sizes = "all-reduce (sum): rank 2 has 3 numbers, rank 0 has 2";
  Job three(3);
  auto zero = three[0].AllReduce({0, 1, 2}, Reduction::kSum, {1, 2});
  auto one = three[1].AllReduce({0, 1, 2}, Reduction::kSum, {1, 2});
  auto two = three[2].AllReduce({0, 1, 2}, Reduction::kSum, {1, 2, 3});
  three[0].Poll();
  CHECK_THROWS_WITH_AS(zero.Done(), sizes.c_str(), Error);
  three[1].Poll();
  CHECK_THROWS_WITH_AS(one.Done(), sizes.c_str(), Error);
  three[2].Poll();
  CHECK_THROWS_WITH_AS(two.Done(), sizes.c_str(), Error);

  Job other(2);
  auto gather = other[0].Gather({0, 1}, 0, {});
  auto reduce = other[1].Reduce({0, 1}, 0, Reduction::kMax, {});
  other[0].Poll();
  CHECK_THROWS_WITH_AS(
      gather.Done(),
      "operation 0 of the group {0, 1} is 'gather to rank 0' on rank 0 and 'reduce "
      "(max) to rank 0' on rank 1",
      Error);
  other.transport(1).Send(0, kKind + 1, {});
  CHECK_THROWS_WITH_AS(other[0].Poll(),
                       "rank 0 got a message of kind 8 from rank 1; its collectives are of kind 7",
                       Error);
  other.transport(1).Send(0, kKind, Text("damaged"));
  CHECK_THROWS_AS(other[0].Poll(), Error);
}

}  // namespace
}  // namespace lopt
