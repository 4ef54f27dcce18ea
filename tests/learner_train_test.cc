#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/eigen.h"
#include "lopt/base/file.h"
#include "lopt/base/safetensors.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/evaluation/inner_training.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/learner/train/trainer.h"
#include "lopt/learner/transport/local_transport.h"
#include "lopt/lopt/registry.h"
#include "lopt/lopt/theta_file.h"
#include "lopt/tasks/augment/augmentation.h"
#include "lopt/tasks/registry.h"
#include "tests/csv_digits.h"
#include "tests/error_of.h"
#include "tests/farthest.h"
#include "tests/file_size_limit.h"
#include "tests/known_lopt.h"
#include "tests/learner_child.h"
#include "tests/learner_local_training.h"
#include "tests/logged_lines.h"
#include "tests/temp_directory.h"
#include "tests/text_parts.h"

namespace lopt {
namespace {

constexpr const char* kMlp =
    R"({"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 20, "data": "glyphs"})";
constexpr const char* kConv =
    R"({"type": "ImageConv", "image_size": 8, "channels": [3, 4], "batch_size": 20,
        "data": "glyphs", "sampling": "epoch"})";
constexpr const char* kAugmented =
    R"({"type": "ImageMLP", "image_size": 8, "hidden": [4], "batch_size": 20, "data": "glyphs",
        "augment": {"type": "CTAugment", "probes": 12}})";
constexpr const char* kTable =
    R"({"type": "TableMLP", "rows": 100, "categories": [3], "outputs": 2, "hidden": [4],
        "batch_size": 20, "noise": 0.1, "sampling": "epoch"})";
constexpr const char* kAdam = R"({"type": "Adam", "learning_rate": 0.01})";
constexpr const char* kLearned = R"({"type": "MLPLOpt", "hidden_size": 8})";
constexpr const char* kSgd = R"({"type": "SGD", "learning_rate": 0.1})";

TrainConfig ConfigOf(const std::string& task, const std::string& optimizer, int64_t workers,
                     int64_t steps = 12) {
  TrainConfig config;
  config.task = Config::Parse(task, "the task");
  config.optimizer = Config::Parse(optimizer, "the optimizer");
  config.workers = workers;
  config.steps = steps;
  config.seed = 3;
  config.checkpoint_seconds = 0;
  config.checkpoint_steps = 5;
  config.eval_every = 4;
  return config;
}

// The optimizer of a theta file that is written there.
std::string LearnedTheta(const TempDirectory& directory, const TrainedRange& range = {},
                         const std::string& learned_optimizer = kLearned) {
  const Config config = Config::Parse(learned_optimizer, "the optimizer");
  const auto optimizer = OptimizerRegistry().Make(config);
  const std::vector<float> theta = KnownTheta(optimizer->theta_layout());
  const std::string path = directory / "theta.safetensors";
  WriteThetaFile(path, {.learned_optimizer = config,
                        .theta = Eigen::Map<const Eigen::VectorXf>(theta.data(), std::ssize(theta)),
                        .trained_horizon = range.longest_training,
                        .trained_range = range});
  return R"({"type": "Theta", "file": ")" + path + "\"}";
}

std::string Over(const std::string& wrapper, const std::string& task) {
  return R"({"type": ")" + wrapper + R"(", "task": )" + task + "}";
}
std::string Mixed(const std::string& first, const std::string& second) {
  return R"({"type": "SampledFamily", "tasks": [)" + first + ", " + second + "]}";
}

std::vector<std::byte> Model(const std::string& run) {
  return ReadFile(run + "/model.safetensors");
}
std::string MetricsOfRun(const std::string& run) { return ReadTextFile(run + "/metrics.jsonl"); }

void CheckSame(const std::string& run, const std::string& undisturbed) {
  CHECK_EQ(Model(run), Model(undisturbed));
  CHECK_EQ(MetricsOfRun(run), MetricsOfRun(undisturbed));
  CHECK_EQ(RunDirectory(run).ReadManifest().status, "finished");
  CHECK_EQ(CheckpointStore(run + "/checkpoints", {}).Steps(),
           CheckpointStore(undisturbed + "/checkpoints", {}).Steps());
}

}  // namespace

// The first: it forks, so this process must not have had threads.
TEST_CASE("A hand-designed optimizer that averages trains, and its average is the model") {
  const TempDirectory directory;
  const std::string out = directory / "run";
  const std::string averaging =
      R"({"type": "Initial", "learned_optimizer": {"type": "ScheduleFreeAdamW", "learning_rate": 0.01}})";
  const TrainResult result =
      RunTraining(ConfigOf(kMlp, averaging, 2), {.out_dir = out, .threads = 2});
  const ArrayFile model = ReadArrayFile(result.model_path);
  size_t at = 0;  // the average comes first in the optimizer's state
  double apart = 0;
  const auto& state = result.state;
  const auto task = TaskRegistry().Make(Config::Parse(kMlp, "the task"), TaskResources(""));
  for (const LayoutEntry& entry : task->params_layout().entries()) {
    const auto kept = model.arrays.At("params/" + entry.name).As<float>();
    for (int64_t i = 0; i < entry.size; ++i, ++at) {
      CHECK(kept[i] == state.optimizer[static_cast<Eigen::Index>(at)]);
      apart += std::abs(kept[i] - state.params[static_cast<Eigen::Index>(at)]);
    }
  }
  CHECK(apart > 0);
}

TEST_CASE("Judged on the split train, batches keep their metrics") {
  const TempDirectory directory;
  std::map<std::string, std::vector<double>> losses;
  for (const int64_t eval_every : {0, 1}) {
    TrainConfig config = ConfigOf(kMlp, kAdam, 1);
    config.eval_every = eval_every;
    config.eval_split = Split::kTrain;
    const std::string out = directory / std::to_string(eval_every);
    RunTraining(config, {.out_dir = out});
    std::istringstream lines(MetricsOfRun(out));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      for (const std::string metric : {"loss/train", "loss/whole_train"}) {
        if (!record.contains(metric)) continue;
        losses[metric + std::to_string(eval_every)].push_back(record[metric].get<double>());
      }
    }
  }
  CHECK(losses["loss/train0"].size() > 3);
  CHECK(losses["loss/train1"] == losses["loss/train0"]);
  CHECK(losses["loss/whole_train0"].empty());
  CHECK(losses["loss/whole_train1"].size() >= losses["loss/train0"].size());
}

TEST_CASE("A training unlike all that its optimizer was trained on is warned of as it starts") {
  const TempDirectory directory;
  const auto logged = [&](const TrainedRange& range) {
    const LoggedLines lines;
    RunTraining(ConfigOf(kMlp, LearnedTheta(directory, range), 1), {});
    return lines.text();
  };
  const std::string begin =
      "optimizer: this training is unlike all that the optimizer was trained on: ";
  const std::string end = ". Try a smaller and a larger lr, and compare with Adam";
  CHECK_EQ(logged({.shortest_training = 24, .smallest_batch = 40, .largest_batch = 40}).find(begin),
           std::string::npos);
  for (const auto& [range, what] :
       {std::pair(TrainedRange{.shortest_training = 25}, "num_steps 12 (there at least 25)"),
        std::pair(TrainedRange{.longest_training = 11, .smallest_batch = 41, .largest_batch = 128},
                  "num_steps 12 (there at most 11), batches of 20 (there at least 41)")}) {
    CHECK_EQ(Count(logged(range), begin + what + end), 1);
  }

  // A file that knows its longest training alone.
  const std::string path = directory / "theta.safetensors";
  ThetaFile file = ReadThetaFile(path);
  file.trained_range = {};
  WriteThetaFile(path, file);
  const LoggedLines lines;
  RunTraining(ConfigOf(kMlp, R"({"type": "Theta", "file": ")" + path + "\"}", 1), {});
  CHECK_EQ(Count(lines.text(), begin + "num_steps 12 (there at most 11)" + end), 1);
}

TEST_CASE("lr multiplies the steps of a theta, and the average of a length that is not told") {
  const TempDirectory directory;
  const std::string whole = LearnedTheta(directory);
  const auto with = [](const std::string& optimizer, const char* more) {
    return optimizer.substr(0, optimizer.size() - 1) + ", " + more + "}";
  };
  const auto model = [&](const std::string& optimizer, int64_t steps) {
    const std::string out = directory / "run";
    const std::string model_path =
        RunTraining(ConfigOf(kMlp, optimizer, 1, steps), {.out_dir = out, .overwrite = true})
            .model_path;
    const NamedArrays arrays = ReadArrayFile(model_path).arrays;
    const auto values = arrays.At("params/mlp/linear_0/w").As<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  CHECK_EQ(model(with(whole, R"("lr": 1, "unknown_length": false)"), 5), model(whole, 5));
  const std::vector<float> one = model(whole, 1);
  const std::vector<float> scaled = model(with(whole, R"("lr": 0.25)"), 1);
  const Training training(ConfigOf(kMlp, whole, 1));
  const TrainState start = training.Start();
  const int64_t offset = training.task().params_layout().Find("mlp/linear_0/w").offset;
  int64_t moved = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    const float before = start.params[offset + static_cast<Eigen::Index>(i)];
    CHECK_EQ(scaled[i], before + (one[i] - before) * 0.25f);
    if (one[i] != before) ++moved;
  }
  CHECK_GT(moved, 0);

  // As an optimizer that was trained so.
  const TempDirectory averaging;
  const std::string averages = LearnedTheta(
      averaging, {}, R"({"type": "UnknownLength", "optimizer": )" + std::string(kLearned) + "}");
  for (const char* lr : {R"("lr": 1)", R"("lr": 0.25)"}) {
    CAPTURE(lr);
    const std::vector<float> average = model(with(averages, lr), 9);
    CHECK_EQ(model(with(with(whole, lr), R"("unknown_length": true)"), 9), average);
    CHECK_EQ(model(with(with(averages, lr), R"("unknown_length": true)"), 9), average);
    CHECK_NE(model(with(whole, lr), 9), average);
  }
  CHECK_NE(model(with(averages, R"("lr": 0.25)"), 9), model(averages, 9));
}

TEST_CASE("A training goes on with the data that it began with alone") {
  const TempDirectory data;
  const TempDirectory other;
  WriteCsvDigits(data.path(), 1);
  WriteCsvDigits(other.path(), 2);
  TrainConfig config = ConfigOf(
      R"({"type": "ImageMLP", "data": "csv", "image_size": 0, "hidden": [2], "batch_size": 4})",
      R"({"type": "Adam", "learning_rate": 0.01})", 1, 4);
  config.data_dir = data.path();
  const TempDirectory run;
  RunTraining(config, {.out_dir = run.path()});
  config.steps = 6;
  config.data_dir = other.path();
  const auto resume = [&] { RunTraining(config, {.out_dir = run.path(), .resume = true}); };
  CHECK(ErrorOf(resume).find("step-00000004: it was computed on csv ") != std::string::npos);
  config.data_dir = data.path();
  CHECK(ErrorOf(resume) == "no error");
}

TEST_CASE("A training that is killed anywhere and resumed has the bits of one that was not") {
  for (const char* task : {kMlp, kAugmented}) {
    CAPTURE(task);
    const TempDirectory scratch;
    const TrainConfig config = ConfigOf(task, kAdam, 2);
    const auto train = [&](const std::string& out, bool resume, const std::string& killed_at) {
      return RunInChild([&] {
        RunTraining(config, {.out_dir = out,
                             .threads = 2,
                             .resume = resume,
                             .on_event = [&](std::string_view event) {
                               if (event == killed_at) ::raise(SIGKILL);
                             }});
      });
    };
    REQUIRE_EQ(train(scratch / "undisturbed", false, "").exit_code, 0);
    for (const char* where :
         {"checkpoint:0:rename", "step:1", "step:4", "checkpoint:5:state", "checkpoint:5:manifest",
          "checkpoint:5:retention", "step:9", "step:12", "checkpoint:12:end"}) {
      CAPTURE(where);
      const std::string out = scratch / "killed";
      CHECK_EQ(train(out, false, where).signal, SIGKILL);
      CHECK_EQ(train(out, true, "").exit_code, 0);
      CheckSame(out, scratch / "undisturbed");
      std::filesystem::remove_all(out);
    }
  }
}

TEST_CASE("With one worker a training is that of evaluations, bit for bit") {
  for (const char* task_text : {kMlp, kConv, kAugmented}) {
    CAPTURE(task_text);
    const TrainConfig config = ConfigOf(task_text, kAdam, 1);
    const TrainResult result = RunTraining(config, {});
    const auto task = TaskRegistry().Make(config.task, TaskResources(""));
    const auto optimizer = BaselinesNamed("Adam")[0].Make(std::vector<double>{0.01});
    const auto rule =
        optimizer->Bind(task->params_layout(), AsSpan(optimizer->InitTheta(Key{}).eval()));
    const int64_t judge_at[] = {config.steps};
    Workspace workspace;
    const TrainingCurve curve =
        TrainTask(*task, *rule, judge_at, Split::kOuterValid, {.key = KeyFromSeed(3)}, workspace);
    CHECK_EQ(std::vector<float>(result.state.params.begin(), result.state.params.end()),
             curve.params);
    CHECK_EQ(static_cast<float>(result.loss), curve.train_loss.back());
    CHECK_EQ(static_cast<float>(result.judged.at("loss/outer_valid")), curve.judged[0].loss);
    CHECK_EQ(static_cast<float>(result.judged.at("accuracy/outer_valid")),
             curve.judged[0].accuracy);
  }
}

TEST_CASE("Workers that share a batch evenly make the update of one that has it all, to rounding") {
  for (const char* task : {kMlp, kConv, kTable}) {
    CAPTURE(task);
    const Eigen::VectorXf one = RunTraining(ConfigOf(task, kSgd, 1), {}).state.params;
    for (const int64_t workers : {2, 5, 20}) {
      CAPTURE(workers);
      const Eigen::VectorXf shared = RunTraining(ConfigOf(task, kSgd, workers), {}).state.params;
      CHECK_LT(Farthest(shared, one), 2e-6);
    }
  }
}

TEST_CASE("A model has the same bytes from one rank and from 2 and 5, with theta and with Adam") {
  const TempDirectory scratch;
  const std::string learned = LearnedTheta(scratch);
  for (const char* task : {kMlp, kConv, kAugmented}) {
    for (const std::string& optimizer : {learned, std::string(kAdam)}) {
      CAPTURE(task);
      CAPTURE(optimizer);
      const TrainConfig config = ConfigOf(task, optimizer, 4);
      RunTraining(config, {.out_dir = scratch / "one", .threads = 3, .overwrite = true});
      for (const int ranks : {2, 5}) {
        CAPTURE(ranks);
        const auto errors =
            TrainOnRanks(config, ranks, {.out_dir = scratch / "several", .overwrite = true});
        for (const std::string& error : errors) CHECK_EQ(error, "no error");
        CheckSame(scratch / "several", scratch / "one");
      }
    }
  }
}

TEST_CASE("Workers that share CTAugment's probes make the training of one that has them all") {
  const std::string mix =
      Mixed(kAugmented, Config::Parse(kAugmented, "test").With("augment.decay", "0.9").Dump());
  const std::string perturbed = Over("ESTask", kAugmented);
  for (const std::string& task :
       {std::string(kAugmented), mix, Over("DelayedGradients", kAugmented), perturbed}) {
    CAPTURE(task);
    const auto train = [&](int64_t workers, int64_t steps) {
      return RunTraining(ConfigOf(task, kSgd, workers, steps), {}).state;
    };
    const TrainState one = train(1, 12);
    CHECK_GT((one.model_state - train(1, 1).model_state).cwiseAbs().maxCoeff(), 1e-2);
    for (const int64_t workers : {2, 4}) {
      CAPTURE(workers);
      CHECK_EQ(train(workers, 1).model_state, train(1, 1).model_state);
      if (task == perturbed) continue;               // in other directions by each worker
      const TrainState shared = train(workers, 12);  // of params that differ by rounding
      CHECK_LT(Farthest(shared.model_state, one.model_state), 1e-5);
      CHECK_LT(Farthest(shared.params, one.params), 2e-6);
    }
  }
}

// Notes the keys that it is given.
class NotesKeys : public Augmentation {
 public:
  static inline std::vector<Key> of_rows;
  static inline std::vector<Key> of_batches;
  NotesKeys() : Augmentation({}) {}
  bool Changes(const AugmentedRow& row) const override {
    of_rows.push_back(row.key.value());
    of_batches.push_back(row.part.key);
    return false;
  }
  void Augment(const AugmentedRow&, const ImageBatch&, float*, Workspace&) const override {}
};

struct NoOptions {
  void Visit(FieldVisitor&) {}
};

TEST_CASE("What an augmentation draws is each worker's own, but for what it draws for the batch") {
  AugmentationRegistry().Add<NoOptions>(
      "NotesKeys", "For this test.",
      [](const NoOptions&, const ImageExtent&) { return std::make_shared<NotesKeys>(); });
  const Training training(ConfigOf(
      Config::Parse(kMlp, "test").With("augment", R"({"type": "NotesKeys"})").Dump(), kSgd, 4));
  const TrainState start = training.Start();
  Workspace scratch;
  for (int64_t worker = 0; worker < 4; ++worker) {
    training.Evaluate(worker, 7, start.params, start.model_state, scratch);
  }
  REQUIRE_EQ(NotesKeys::of_rows.size(), 4);
  for (size_t w = 0; w < 4; ++w) {
    CHECK(NotesKeys::of_batches[w] == NotesKeys::of_rows[0]);
    for (size_t other = 0; other < w; ++other) {
      CHECK(!(NotesKeys::of_rows[w] == NotesKeys::of_rows[other]));
    }
  }
}

TEST_CASE("A training that is told to stop goes on from there, on other ranks too") {
  const TempDirectory scratch;
  const TrainConfig config = ConfigOf(kMlp, kAdam, 4);
  RunTraining(config, {.out_dir = scratch / "undisturbed"});
  std::atomic<bool> stop = false;
  const TrainResult stopped =
      RunTraining(config, {.out_dir = scratch / "stopped",
                           .stop = &stop,
                           .on_step = [&](const TrainProgress& p) { stop = p.step == 7; }});
  CHECK(stopped.interrupted);
  CHECK_EQ(stopped.state.step, 7);
  CHECK_EQ(RunDirectory(scratch / "stopped").ReadManifest().status, "interrupted");
  for (const std::string& error :
       TrainOnRanks(config, 3, {.out_dir = scratch / "stopped", .resume = true})) {
    CHECK_EQ(error, "no error");
  }
  CHECK_EQ(Model(scratch / "stopped"), Model(scratch / "undisturbed"));
  CHECK_EQ(MetricsOfRun(scratch / "stopped"), MetricsOfRun(scratch / "undisturbed"));
}

TEST_CASE("A training goes on that was begun by a version with fewer keys") {
  const TempDirectory scratch;
  const TrainConfig config =
      ConfigOf(kMlp, R"({"type": "Initial", "learned_optimizer": {"type": "LearnableAdam"}})", 2);
  RunTraining(config, {.out_dir = scratch / "undisturbed"});
  std::atomic<bool> stop = false;
  RunTraining(config, {.out_dir = scratch / "stopped",
                       .stop = &stop,
                       .on_step = [&](const TrainProgress& p) { stop = p.step == 7; }});
  using Json = nlohmann::ordered_json;
  const auto edit = [&](const std::string& part, const std::function<void(Json*)>& change) {
    CheckpointStore store(scratch / "stopped/checkpoints", {});
    ArraysCheckpoint checkpoint = store.ReadNewestArrays().value();
    std::string& text = checkpoint.file.metadata.at("config");
    Json json = Json::parse(text);
    change(&json.at(Json::json_pointer(part)));
    text = json.dump();
    RemoveAll(store.Path(checkpoint.step));
    store.Write(checkpoint);
  };
  const auto without = [&](const std::string& part, const std::string& key) {
    edit(part, [&](Json* json) { REQUIRE_EQ(json->erase(key), 1); });
  };
  const auto resume = [&] {
    RunTraining(config, {.out_dir = scratch / "stopped", .resume = true});
  };
  without("/task", "norm");
  without("/optimizer/learned_optimizer", "schedule");
  without("", "batches");
  resume();
  CHECK_EQ(Model(scratch / "stopped"), Model(scratch / "undisturbed"));
  // What differs, or is not known, is still an error.
  without("/task", "hidden");
  CHECK(ErrorOf(resume).find("has changed: task.hidden[0]: 32 in the checkpoint, 4 now") !=
        std::string::npos);
  edit("/task", [](Json* json) { (*json)["wings"] = 2; });
  const std::string error = ErrorOf(resume);
  CHECK(error.starts_with("cannot resume from " + (scratch / "stopped/checkpoints/step-00000012")));
  CHECK(error.find("wings") != std::string::npos);
}

TEST_CASE("A training starts from the model of a file, with a fresh optimizer") {
  const TempDirectory scratch;
  const std::string task = Config::Parse(kAugmented, "test").With("norm", "batch").Dump();
  TrainConfig config = ConfigOf(task, kAdam, 2);
  config.keep_last = 9;
  RunTraining(config, {.out_dir = scratch / "whole"});
  const auto state = [&](const char* run, const char* step) {
    return (scratch / run) + "/checkpoints/step-000000" + step + "/state.safetensors";
  };
  const NamedArrays drawn = ReadArrayFile(state("whole", "00")).arrays;
  const NamedArrays trained = ReadArrayFile(state("whole", "12")).arrays;
  for (const std::string& file :
       {(scratch / "whole") + "/model.safetensors", state("whole", "12")}) {
    CAPTURE(file);
    config.init_model = file;
    RunTraining(config, {.out_dir = scratch / "tuned", .overwrite = true});
    for (const auto& [name, array] : ReadArrayFile(state("tuned", "00")).arrays) {
      const std::string tensor = name;
      CAPTURE(tensor);
      const bool of_model = tensor.starts_with("params/") || tensor.starts_with("model_state/");
      CHECK(array == (of_model ? trained : drawn).At(tensor));
    }
    CHECK(drawn.At("params/mlp/linear_0/w") != trained.At("params/mlp/linear_0/w"));
    CHECK_NE(Model(scratch / "tuned"), Model(scratch / "whole"));
  }

  // The file is wanted at the start alone, of rank 0.
  std::atomic<bool> stop = false;
  const TrainResult stopped = RunTraining(
      config, {.out_dir = scratch / "parts", .stop = &stop, .on_step = [&](const TrainProgress& p) {
                 stop = p.step == 7;
               }});
  CHECK(stopped.interrupted);
  std::filesystem::rename(scratch / "whole", scratch / "moved");
  for (const std::string& error :
       TrainOnRanks(config, 2, {.out_dir = scratch / "parts", .resume = true})) {
    CHECK_EQ(error, "no error");
  }
  CHECK_EQ(Model(scratch / "parts"), Model(scratch / "tuned"));

  const auto error = [&] {
    return ErrorOf([&] { RunTraining(config, {.out_dir = scratch / "none"}); });
  };
  CHECK_EQ(error(), "cannot read " + config.init_model + ": No such file or directory");
  config.init_model = (scratch / "moved") + "/model.safetensors";
  config.task = Config::Parse(task, "test").With("hidden", "[5]");
  CHECK(error().starts_with(config.init_model +
                            ": the file is of another model than that of ImageMLP: "));
  CHECK_FALSE(std::filesystem::exists(scratch / "none"));
}

TEST_CASE("A finished training goes on where its optimizer does not follow its length") {
  const TempDirectory scratch;
  const std::string learned = LearnedTheta(scratch);
  RunTraining(ConfigOf(kMlp, learned, 2, 15), {.out_dir = scratch / "whole"});
  RunTraining(ConfigOf(kMlp, learned, 2, 7), {.out_dir = scratch / "parts"});
  RunTraining(ConfigOf(kMlp, learned, 2, 15), {.out_dir = scratch / "parts", .resume = true});
  const auto params = [&](const char* run) {
    return ReadArrayFile((scratch / run) + "/model.safetensors").arrays;
  };
  CHECK(params("parts") == params("whole"));
}

TEST_CASE("Errors of trainings name what was wanted and what was got") {
  const TempDirectory scratch;
  CHECK_EQ(ErrorOf([] { RunTraining(ConfigOf(kMlp, kAdam, 3), {}); }),
           "3 workers cannot share batches of 20 examples evenly; wanted a number of workers that "
           "divides the task's batch_size");
  CHECK_EQ(ErrorOf([] { RunTraining(ConfigOf(kAugmented, kAdam, 5), {}); }),
           "5 workers cannot share 12 probes evenly; wanted a number of workers that divides the "
           "augmentation's probes");
  const std::string mix = Mixed(kAugmented, kMlp);
  CHECK_EQ(ErrorOf([&] { RunTraining(ConfigOf(mix, kSgd, 2, 1), {}); }),
           "2 workers cannot share the probes of families that differ in them; wanted 1 worker, or "
           "families whose augmentations have the same probes and depth");
  RunTraining(ConfigOf(mix, kSgd, 1, 1), {});
  const std::string out = scratch / "run";
  const std::string learned = LearnedTheta(scratch);
  RunTraining(ConfigOf(kMlp, learned, 2), {.out_dir = out});
  CHECK_NE(ErrorOf([&] {
             RunTraining(ConfigOf(kMlp, learned, 2), {.out_dir = out});
           }).find("holds a run already"),
           std::string::npos);
  CHECK_NE(ErrorOf([&] {
             RunTraining(ConfigOf(kMlp, learned, 4), {.out_dir = out, .resume = true});
           }).find("workers: 2 in the checkpoint, 4 now"),
           std::string::npos);
  CHECK_EQ(RunDirectory(out).ReadManifest().status, "finished");  // an error leaves it as it was
  const std::string cosine = R"({"type": "SGD-cosine", "learning_rate": 0.1})";
  RunTraining(ConfigOf(kMlp, cosine, 2), {.out_dir = scratch / "cosine"});
  CHECK_NE(ErrorOf([&] {
             RunTraining(ConfigOf(kMlp, cosine, 2, 13),
                         {.out_dir = scratch / "cosine", .resume = true});
           }).find("steps: 12 in the checkpoint, 13 now"),
           std::string::npos);
  CHECK_NE(ErrorOf([&] {
             RunTraining(ConfigOf(kMlp, learned, 2, 11), {.out_dir = out, .resume = true});
           }).find("it has 12 updates, more than steps = 11"),
           std::string::npos);
  ThetaFile other = ReadThetaFile(scratch / "theta.safetensors");
  other.theta[0] += 1;
  WriteThetaFile(scratch / "theta.safetensors", other);
  CHECK_NE(ErrorOf([&] {
             RunTraining(ConfigOf(kMlp, learned, 2), {.out_dir = out, .resume = true});
           }).find("the weights of the optimizer have changed"),
           std::string::npos);
}

TEST_CASE("A first checkpoint that cannot be written is a training that has failed") {
  const TempDirectory directory;
  const TrainConfig config = ConfigOf(kMlp, kAdam, 2);
  std::optional<FileSizeLimit> limit;
  const std::string error = ErrorOf([&] {
    RunTraining(config, {.out_dir = directory.path(), .on_event = [&](std::string_view event) {
                           CHECK_EQ(RunDirectory(directory.path()).ReadManifest().status,
                                    "starting");
                           if (event == "checkpoint:0:state") limit.emplace(2000);
                         }});
  });
  limit.reset();
  CHECK(error.ends_with("/state.safetensors: File too large"));
  const RunManifest manifest = RunDirectory(directory.path()).ReadManifest();
  CHECK_EQ(manifest.status, "failed");
  CHECK_EQ(manifest.error.value_or(""), error);
  CHECK_EQ(manifest.updates, 0);
  CHECK_EQ(RunTraining(config, {.out_dir = directory.path(), .resume = true}).updates, 12);
}

TEST_CASE("Ranks with different configs end the training with an error on all of them") {
  const auto transports = MakeLocalTransports(2);
  std::string errors[2];
  std::thread other([&] {
    TrainConfig config = ConfigOf(kMlp, kAdam, 2);
    config.seed = 4;
    errors[1] = ErrorOf([&] { RunTraining(config, {.transport = transports[1].get()}); });
  });
  errors[0] =
      ErrorOf([&] { RunTraining(ConfigOf(kMlp, kAdam, 2), {.transport = transports[0].get()}); });
  other.join();
  CHECK_NE(errors[0].find("seed: 3 on rank 0, 4 on rank 1"), std::string::npos);
  CHECK_EQ(errors[1], "the job has ended because rank 0 failed");
}

TEST_CASE("A family without a data set is trained, each worker on data of its own") {
  const std::string task = R"({"type": "FixedDimQuadraticFamily", "dim": 4})";
  const Eigen::VectorXf one = RunTraining(ConfigOf(task, kSgd, 1), {}).state.params;
  const Eigen::VectorXf several = RunTraining(ConfigOf(task, kSgd, 3), {}).state.params;
  CHECK_LT(Farthest(several, one), 1e-6);  // its losses are not random
}

}  // namespace lopt
