#include "lopt/learner/transport/collectives.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "lopt/learner/job/wire.h"
#include "lopt/learner/transport/take_messages.h"

namespace lopt {
namespace {

using Bytes = Collectives::Bytes;
using Numbers = Collectives::Numbers;

std::string GroupText(const RankGroup& group) {
  return fmt::format("{{{}}}", fmt::join(group, ", "));
}

bool IsMember(const RankGroup& group, int rank) {
  return std::ranges::find(group, rank) != group.end();
}

Bytes BytesOf(const Numbers& numbers) {
  Bytes bytes(numbers.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

Numbers NumbersOf(const Bytes& bytes) {
  Numbers numbers(bytes.size() / sizeof(float));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  return numbers;
}

double Combine(Reduction reduction, double a, double b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kProduct:
      return a * b;
    case Reduction::kMax:
      return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
    case Reduction::kMin:
      return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
  }
  Fail("an unknown reduction");
}

}  // namespace

RankGroup AllRanks(const Transport& transport) {
  RankGroup all(static_cast<size_t>(transport.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Pending<Bytes> Collectives::Broadcast(const RankGroup& group, int root, Bytes bytes) {
  const Operation operation = Begin(group, root, fmt::format("broadcast from rank {}", root));
  if (transport_->rank() == root) {
    SendToOthers(operation, bytes);
    return Pending<Bytes>([bytes = std::move(bytes)] { return std::optional(bytes); });
  }
  return Pending<Bytes>([this, operation, root]() -> std::optional<Bytes> {
    auto received = Receive(operation, {root});
    return received ? std::optional(std::move(received->front())) : std::nullopt;
  });
}

Pending<Bytes> Collectives::Scatter(const RankGroup& group, int root,
                                    const std::vector<Bytes>& parts) {
  const Operation operation = Begin(group, root, fmt::format("scatter from rank {}", root));
  if (transport_->rank() != root) {
    return Pending<Bytes>([this, operation, root]() -> std::optional<Bytes> {
      auto received = Receive(operation, {root});
      return received ? std::optional(std::move(received->front())) : std::nullopt;
    });
  }
  Require(parts.size() == group.size(), "{}: there are {} parts for the {} ranks of the group {}",
          operation.name, parts.size(), group.size(), GroupText(group));
  Bytes own;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (group[i] == root) {
      own = parts[i];
    } else {
      Send(operation, group[i], parts[i]);
    }
  }
  return Pending<Bytes>([own = std::move(own)] { return std::optional(own); });
}

Pending<std::vector<Bytes>> Collectives::Gather(const RankGroup& group, int root, Bytes bytes) {
  const Operation operation = Begin(group, root, fmt::format("gather to rank {}", root));
  if (transport_->rank() != root) {
    Send(operation, root, std::move(bytes));
    return Pending<std::vector<Bytes>>([] { return std::optional(std::vector<Bytes>()); });
  }
  return Pending<std::vector<Bytes>>([this, operation, own = std::move(bytes)] {
    return Receive(operation, operation.group, own);
  });
}

Pending<std::vector<Bytes>> Collectives::AllGather(const RankGroup& group, Bytes bytes) {
  const Operation operation = Begin(group, std::nullopt, "all-gather");
  SendToOthers(operation, bytes);
  return Pending<std::vector<Bytes>>([this, operation, own = std::move(bytes)] {
    return Receive(operation, operation.group, own);
  });
}

Pending<Numbers> Collectives::Reduce(const RankGroup& group, int root, Reduction reduction,
                                     const Numbers& numbers) {
  const Operation operation = Begin(
      group, root,
      fmt::format("reduce ({}) to rank {}", NameOf("reduction", reduction, kReductions), root));
  if (transport_->rank() != root) {
    Send(operation, root, BytesOf(numbers));
    return Pending<Numbers>([] { return std::optional(Numbers()); });
  }
  return Pending<Numbers>([this, operation, reduction, own = BytesOf(numbers)] {
    return ReceiveReduced(operation, reduction, own);
  });
}

Pending<Numbers> Collectives::AllReduce(const RankGroup& group, Reduction reduction,
                                        const Numbers& numbers) {
  const Operation operation =
      Begin(group, std::nullopt,
            fmt::format("all-reduce ({})", NameOf("reduction", reduction, kReductions)));
  const int first = group.front();
  if (transport_->rank() != first) {
    Send(operation, first, BytesOf(numbers));
    return Pending<Numbers>([this, operation, first]() -> std::optional<Numbers> {
      const auto received = Receive(operation, {first});
      return received ? std::optional(NumbersOf(received->front())) : std::nullopt;
    });
  }
  return Pending<Numbers>([this, operation, reduction, own = BytesOf(numbers)] {
    try {
      auto reduced = ReceiveReduced(operation, reduction, own);
      if (reduced) SendToOthers(operation, BytesOf(*reduced));
      return reduced;
    } catch (const Error& error) {
      SendToOthers(operation, {}, error.what());
      throw;
    }
  });
}

void Collectives::Take(const Message& message) {
  auto parcel = FromWire<Parcel>(message.bytes);
  arrived_[{parcel.group, parcel.number, message.from}] = std::move(parcel);
}

void Collectives::TakeOwn(const Message& message) {
  Require(message.kind == kind_,
          "rank {} got a message of kind {} from rank {}; its collectives are of kind {}",
          transport_->rank(), message.kind, message.from, kind_);
  Take(message);
}

bool Collectives::Poll() {
  bool any = false;
  while (const std::optional<Message> message = transport_->Poll()) {
    TakeOwn(*message);
    any = true;
  }
  return any;
}

void Collectives::PollUntil(const std::function<bool()>& done) {
  TakeMessagesUntil(
      transport_, [this](const Message& message) { TakeOwn(message); }, done);
}

Collectives::Operation Collectives::Begin(const RankGroup& group, std::optional<int> root,
                                          std::string name) {
  const std::string text = GroupText(group);
  Require(!group.empty() && group.front() >= 0 && group.back() < transport_->size() &&
              std::ranges::adjacent_find(group, std::greater_equal()) == group.end(),
          "{}: the group {} is not a list of different ranks of the {} there are, ascending", name,
          text, transport_->size());
  Require(IsMember(group, transport_->rank()), "{}: rank {} is not in the group {}", name,
          transport_->rank(), text);
  Require(!root || IsMember(group, *root), "{}: rank {} is not in the group {}", name,
          root.value_or(0), text);
  return {.name = std::move(name), .group = group, .number = begun_[group]++};
}

void Collectives::Send(const Operation& operation, int to, Bytes bytes, const std::string& error) {
  transport_->Send(to, kind_,
                   ToWire(Parcel{.group = operation.group,
                                 .number = operation.number,
                                 .operation = operation.name,
                                 .error = error,
                                 .bytes = std::move(bytes)}));
}

void Collectives::SendToOthers(const Operation& operation, const Bytes& bytes,
                               const std::string& error) {
  for (const int member : operation.group) {
    if (member != transport_->rank()) Send(operation, member, bytes, error);
  }
}

std::optional<std::vector<Bytes>> Collectives::Receive(const Operation& operation,
                                                       const std::vector<int>& from,
                                                       const Bytes& own) {
  const auto find = [&](int member) {
    return arrived_.find({operation.group, operation.number, member});
  };
  const bool here = std::ranges::all_of(from, [&](int member) {
    return member == transport_->rank() || find(member) != arrived_.end();
  });
  if (!here) return std::nullopt;
  std::vector<Bytes> parts;
  for (const int member : from) {
    if (member == transport_->rank()) {
      parts.push_back(own);
      continue;
    }
    Parcel parcel = std::move(arrived_.extract(find(member)).mapped());
    Require(parcel.operation == operation.name,
            "operation {} of the group {} is '{}' on rank {} and '{}' on rank {}", operation.number,
            GroupText(operation.group), operation.name, transport_->rank(), parcel.operation,
            member);
    Require(parcel.error.empty(), "{}", parcel.error);
    parts.push_back(std::move(parcel.bytes));
  }
  return parts;
}

std::optional<Numbers> Collectives::ReceiveReduced(const Operation& operation, Reduction reduction,
                                                   const Bytes& own) {
  const auto parts = Receive(operation, operation.group, own);
  if (!parts) return std::nullopt;
  std::vector<double> combined;
  for (size_t i = 0; i < parts->size(); ++i) {
    const Numbers numbers = NumbersOf((*parts)[i]);
    if (i == 0) {
      combined.assign(numbers.begin(), numbers.end());
      continue;
    }
    Require(numbers.size() == combined.size(), "{}: rank {} has {} numbers, rank {} has {}",
            operation.name, operation.group[i], numbers.size(), operation.group[0],
            combined.size());
    for (size_t n = 0; n < numbers.size(); ++n) {
      combined[n] = Combine(reduction, combined[n], numbers[n]);
    }
  }
  return Numbers(combined.begin(), combined.end());
}

}  // namespace lopt
