// A checkpoint: its manifest as it is, or (where that is empty) one that fits the two other files,
// which no change gets past otherwise.
#include <fmt/format.h>

#include "lopt/base/file.h"
#include "lopt/base/record.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_files.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/lopt/registry.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

constexpr const char* kStateFiles[] = {"learner.safetensors", "workers-00000-00001.safetensors"};
constexpr const char* kManifestFile = "manifest.json";
constexpr int64_t kStep = 10;

Checkpoint Made() {
  Checkpoint checkpoint;
  checkpoint.config = Config::Parse(R"({"learned_optimizer": {"type": "LearnableAdam"}})", "seed");
  checkpoint.isa = "avx2";
  checkpoint.theta = OptimizerRegistry()
                         .Make(Config::Parse(R"({"type": "LearnableAdam"})", "seed"))
                         ->theta_layout();
  checkpoint.learner.outer_step = kStep;
  checkpoint.learner.theta = Eigen::VectorXf::Constant(checkpoint.theta.size(), 0.5F);
  checkpoint.learner.theta_opt.Set("m", Array(DType::kFloat32, {2}));
  checkpoint.totals = {{.inner_steps = 7, .non_finite = 1, .episodes_ended = 2}};
  checkpoint.ledger = Ledger(2, 1);
  checkpoint.ledger.RollBack(1, 3, 5);
  checkpoint.logs = {.seconds = 0.5, .bytes = {{"metrics.jsonl", 20}}};
  checkpoint.workers.resize(2);
  for (WorkerState& worker : checkpoint.workers) {
    worker.windows = 20;
    worker.estimators.resize(1);
    worker.estimators[0].Set("x", Array(DType::kFloat32, {3}));
  }
  return checkpoint;
}

void ReadCheckpointParts(std::string_view input) {
  const std::vector<std::string> parts = SplitParts(input, 3);
  const std::string path = FreshDirectory() + "/step-00000010";
  MakeDirectories(path);
  std::string files;
  for (size_t i = 0; i < 2; ++i) {
    const CheckpointFile file = WriteCheckpointFile(path, kStateFiles[i], AsBytes(parts[i + 1]));
    files += fmt::format(R"({}"{}": {{"bytes": {}, "crc32": "{:08x}"}})", i == 0 ? "" : ", ",
                         file.name, file.bytes, file.crc32);
  }
  PutFile(path, kManifestFile,
          parts[0].empty()
              ? fmt::format(R"({{"format": "lopt checkpoint 2", "outer_step": {}, "workers": 2, )"
                            R"("logs": {{"seconds": 0, "bytes": {{}}}}, "files": {{{}}}}})",
                            kStep, files)
              : parts[0]);
  ReadCheckpoint(path);
}

std::vector<std::string> CheckpointSeeds() {
  const std::string directory = FreshDirectory();
  const CheckpointStore store(directory, {});
  store.Write(Made());
  const auto text = [&](const char* name) { return ReadTextFile(store.Path(kStep) + "/" + name); };
  return {JoinParts({"", text(kStateFiles[0]), text(kStateFiles[1])}),
          JoinParts({text(kManifestFile), text(kStateFiles[0]), text(kStateFiles[1])})};
}

const AddFuzzTarget checkpoint_target({"learner_checkpoint", ReadCheckpointParts, CheckpointSeeds});

}  // namespace
}  // namespace lopt
