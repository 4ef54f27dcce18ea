// Gradients averaged over all ranks, and over a group of them.
//   mpiexec -n 4 collectives
#include "lopt/learner/transport/collectives.h"

#include <fmt/ranges.h>

#include "lopt/learner/transport/job.h"

int main() {
  return lopt::RunJob([](lopt::Transport* ranks) {
    lopt::Collectives collectives(ranks);
    const auto mean = [&](const lopt::RankGroup& group, const std::vector<float>& gradient) {
      auto sum = collectives.Await(collectives.AllReduce(group, lopt::Reduction::kSum, gradient));
      for (float& number : sum) number /= static_cast<float>(group.size());
      return sum;
    };
    const auto rank = static_cast<float>(ranks->rank());
    std::vector<float> averaged = mean(lopt::AllRanks(*ranks), {rank, 2 * rank});
    // Ranks 0, 2, ... once more among themselves.
    lopt::RankGroup even;
    for (int member = 0; member < ranks->size(); member += 2) even.push_back(member);
    if (ranks->rank() % 2 == 0) averaged.push_back(mean(even, {rank})[0]);
    fmt::print("rank {}: {}\n", ranks->rank(), fmt::join(averaged, " "));
    const float middle = static_cast<float>(ranks->size() - 1) / 2;
    return averaged[0] == middle && averaged[1] == 2 * middle ? 0 : 1;
  });
}
