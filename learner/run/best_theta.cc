#include "lopt/learner/run/best_theta.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/every_key.h"
#include "lopt/base/file.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/record.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

// Whether the tasks are the same with every key of this version: an earlier one did not have all of
// them. One that this version does not know is another.
bool SameTasks(const std::vector<Config>& then, const std::vector<Config>& now) {
  const auto same = [](const Config& a, const Config& b) {
    const auto text = [](const Config& task) {
      return WithEveryKey("eval_tasks", task, TaskRegistry().table()).Dump();
    };
    return text(a) == text(b);
  };
  try {
    return std::ranges::equal(then, now, same);
  } catch (const Error&) {
    return false;
  }
}

// What best.json says.
struct Best {
  int64_t updates = 0;
  double eval_loss = 0;
  std::vector<Config> eval_tasks = {};
  int64_t eval_steps = 0;
  int64_t eval_seeds = 0;

  bool JudgedOn(const HeldOutOptions& options) const {
    return SameTasks(eval_tasks, options.tasks) && eval_steps == options.steps &&
           eval_seeds == options.seeds;
  }

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("updates", updates);
    visit("eval_loss", eval_loss);
    visit("eval_tasks", eval_tasks);
    visit("eval_steps", eval_steps);
    visit("eval_seeds", eval_seeds);
  }
};

constexpr std::string_view kBestRecord = "best.json";
constexpr std::string_view kBestFile = "theta_best.safetensors";

std::string BestPath(const std::string& directory, std::string_view file) {
  return fmt::format("{}/{}", directory, file);
}

void RemoveBest(const std::string& directory) {
  RemoveMatching(directory,
                 [](std::string_view name) { return name == kBestRecord || name == kBestFile; });
}

// What the directory holds. A process that dies after it has written the theta file and before the
// record leaves a theta that nobody has noted, over the one that is noted: both are removed.
std::optional<Best> ReadBest(const std::string& directory) {
  const std::string record = BestPath(directory, kBestRecord);
  const std::string file = BestPath(directory, kBestFile);
  if (!Exists(record) && !Exists(file)) {
    return std::nullopt;
  }
  // What cannot be read now may be good.
  for (const std::string& path : {record, file}) {
    if (!Exists(path)) continue;
    const OpenFile readable(path, OpenFor::kRead, "cannot read");
  }
  try {
    Best best = ReadRecordFile<Best>(record);
    // Where its golden steps come out otherwise it is still the best.
    const int64_t updates = ReadThetaFile(file, {}, FailedCheck::kWarn).meta_steps;
    Require(best.updates == updates, "{} tells of a theta of {} updates, {} is of {}", record,
            best.updates, file, updates);
    return best;
  } catch (const Error& error) {
    spdlog::warn("{}; both files are removed, and the best theta is chosen anew", error.what());
    RemoveBest(directory);
    return std::nullopt;
  }
}

}  // namespace

BestTheta::BestTheta(const std::string& directory, HeldOutOptions judged_on)
    : directory_(directory), judged_on_(std::move(judged_on)) {
  const std::optional<Best> best = ReadBest(directory_);
  if (!best) {
    return;
  }
  if (best->JudgedOn(judged_on_)) {
    loss_ = best->eval_loss;
  } else {
    spdlog::info(
        "{}: eval_tasks, eval_steps or eval_seeds have changed, so the best theta is chosen anew",
        BestPath(directory_, kBestRecord));
  }
}

void BestTheta::Offer(int64_t updates, double loss,
                      const std::function<void(const std::string&)>& write) {
  if (!(loss < loss_)) {
    return;
  }
  loss_ = loss;
  write(BestPath(directory_, kBestFile));
  WriteRecordFile(BestPath(directory_, kBestRecord), Best{.updates = updates,
                                                          .eval_loss = loss,
                                                          .eval_tasks = judged_on_.tasks,
                                                          .eval_steps = judged_on_.steps,
                                                          .eval_seeds = judged_on_.seeds});
}

void RemoveBestThetaAfter(const std::string& directory, int64_t updates) {
  const std::optional<Best> best = ReadBest(directory);
  if (!best || best->updates <= updates) {
    return;
  }
  RemoveBest(directory);
  spdlog::info("{}: it was of later updates and is removed; the best theta is chosen anew",
               BestPath(directory, kBestRecord));
}

}  // namespace lopt
