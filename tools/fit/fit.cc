#include "lopt/tools/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "lopt/base/config.h"
#include "lopt/base/eigen.h"
#include "lopt/base/environment.h"
#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/isa.h"
#include "lopt/base/option_words.h"
#include "lopt/base/output_directory.h"
#include "lopt/base/record.h"
#include "lopt/base/run_lock.h"
#include "lopt/evaluation/baselines.h"
#include "lopt/evaluation/evaluated_optimizers.h"
#include "lopt/evaluation/evaluation_run.h"
#include "lopt/evaluation/results_file.h"
#include "lopt/evaluation/trials.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/lopt/registry.h"
#include "lopt/tasks/registry.h"
#include "lopt/tools/fit/fit_trainings.h"

namespace lopt {
namespace {

constexpr int64_t kFewestSteps = 20;
constexpr int64_t kFewestFitSeeds = 3;
constexpr double kSecondsPerMinute = 60;

// Multipliers of the start's steps.
constexpr int64_t kMultiplierRounds = 2;
constexpr int64_t kMultiplierSeeds = 2;
constexpr int64_t kMultiplierPart = 4;  // of the steps
// Meta-training.
constexpr int64_t kPairs = 24;         // of an update
constexpr int64_t kMeasuredPairs = 4;  // of one that is measured
constexpr int64_t kShortestPart = 8;   // of the steps
constexpr int64_t kFewestUpdates = 10;
constexpr int64_t kMostUpdates = 10000;
// Candidates.
constexpr int64_t kCandidateSeeds = 8;
constexpr int64_t kCandidates = 3;
// The comparison.
constexpr int64_t kFewestTrials = 2;
constexpr int64_t kMostTrials = 10000;
constexpr int64_t kMostTuningSeeds = 1000;

// What the fit's key is folded with, for each purpose. The key is the seed's, folded with a number
// that neither meta-training nor evaluations fold it with.
constexpr uint64_t kFitDomain = std::numeric_limits<uint64_t>::max() - 1;
enum FitDraw : uint64_t { kMeasureDraw = 0, kMultiplierDraw = 1, kCandidateDraw = 2 };

// Entries of the output directory.
constexpr const char* kFitFile = "fit.json";
constexpr const char* kStartFile = "start.safetensors";
constexpr const char* kBaseFile = "base.safetensors";
constexpr const char* kFitThetaFile = "theta.safetensors";
constexpr const char* kReportFile = "report.txt";
constexpr const char* kMetaDirectory = "meta";
constexpr const char* kCompareDirectory = "compare";
constexpr std::string_view kFitFiles[] = {
    kFitFile, kStartFile, kBaseFile, kFitThetaFile, kReportFile, kMetaDirectory, kCompareDirectory};

// Names of candidates beside the start's.
constexpr const char* kMultiplied = "multiplied";
constexpr const char* kMetaTrained = "meta-trained";

double FitSecondsSince(SteadyClock::time_point start) {
  return SecondsBetween(start, SteadyClock::now());
}

// Who is tuned with as much time as fitting took.
const std::vector<Baseline>& Rivals() {
  static const std::vector<Baseline> rivals = [] {
    std::vector<Baseline> all = BaselinesNamed("AdamW-cosine-decay,Muon-cosine");
    all.push_back({.name = "random-search",
                   .optimizer = Config::Parse(
                       R"({"type": "LearnableAdam", "epsilon_root": 0, "schedule": "cosine"})",
                       "random-search"),
                   .tuned = {{.name = kLearningRate, .lowest = 1e-4, .highest = 1},
                             {.name = "weight_decay", .lowest = 1e-3, .highest = 1},
                             {.name = "beta1", .lowest = 0.02, .highest = 0.5, .one_minus = true},
                             {.name = "beta2", .lowest = 1e-3, .highest = 0.2, .one_minus = true}},
                   .random_search = true});
    return all;
  }();
  return rivals;
}

// The optimizer with all its steps, weight decay included, times `multiplier`: the biases of the
// network that says how large they are take its logarithm.
ThetaFile WithMultiplier(const ThetaFile& start, double multiplier) {
  const auto optimizer = OptimizerRegistry().Make(start.learned_optimizer);
  const auto& entries = optimizer->theta_layout().entries();
  const auto bias = std::ranges::find(entries, "scheduler/out/b", &LayoutEntry::name);
  Require(start.learned_optimizer.Type() == "LearnedScheduler" && bias != entries.end(),
          "fit: wanted to start from a LearnedScheduler, such as recommended or fast, got {}",
          start.learned_optimizer.Type());
  ThetaFile multiplied = start;
  multiplied.chosen_on = "inner_valid";
  const auto log = static_cast<float>(std::log(multiplier));
  multiplied.theta[bias->offset] += log;
  multiplied.theta[bias->offset + 1] += log / 2;  // doubled where the decay is formed
  return multiplied;
}

int64_t ShortestLength(int64_t steps) { return steps / kShortestPart; }

// Of the lengths of LogUniformLengthSchedule.
double MeanLength(int64_t steps) {
  const auto shortest = static_cast<double>(ShortestLength(steps));
  const auto longest = static_cast<double>(steps);
  return (longest - shortest) / std::log(longest / shortest);
}

MetaTrainConfig FitMetaConfig(const FitRequest& request, const ThetaFile& start, bool log_loss,
                              int64_t updates, int64_t pairs, const std::string& init_theta) {
  MetaTrainConfig config;
  config.name = "fit";
  config.learned_optimizer = start.learned_optimizer;
  config.init_theta = init_theta;
  config.theta_opt = Config::Parse(
      R"({"type": "AdamW", "learning_rate": 0.003, "weight_decay": 0, "clip_by_global_norm": 1,
          "schedule": {"type": "WarmupCosine", "warmup_fraction": 0, "final_scale": 0.03}})",
      "fit");
  config.estimators = {Config::Parse(
      fmt::format(R"({{"type": "FullES", "task": {}, "num_tasks": {}, "std": 0.05,
                      "loss_type": "last_recompute", "meta_loss": "outer_valid"{},
                      "lengths": {{"type": "LogUniformLengthSchedule", "min_length": {},
                                   "max_length": {}}}}})",
                  request.task.Dump(-1), pairs, log_loss ? R"(, "meta_loss_log": 1e-20)" : "",
                  ShortestLength(request.steps), request.steps),
      "fit")};
  config.meta_steps = updates;
  config.seed = request.seed;
  config.data_dir = request.data_dir;
  return config;
}

void CheckFitRequest(const FitRequest& request) {
  Require(request.steps >= kFewestSteps, "fit: wanted at least {} steps, got {}", kFewestSteps,
          request.steps);
  Require(request.seeds >= kFewestFitSeeds, "fit: wanted at least {} seeds, got {}",
          kFewestFitSeeds, request.seeds);
  Require(request.minutes || (request.updates && request.trials),
          "fit: wanted minutes, or both updates and trials, to know when to end");
  Require(!request.minutes || (*request.minutes > 0 && std::isfinite(*request.minutes)),
          "fit: minutes must be above 0, got {}", request.minutes.value_or(0));
  Require(request.updates.value_or(0) >= 0, "fit: updates must be at least 0, got {}",
          request.updates.value_or(0));
  const int64_t trials = request.trials.value_or(kFewestTrials);
  Require(trials >= kFewestTrials && trials <= kMostTrials,
          "fit: trials must be between {} and {}, got {}", kFewestTrials, kMostTrials, trials);
}

class FitRun {
 public:
  FitRun(FitRequest request, ThetaFile start, FitOptions options)
      : options_(std::move(options)), start_(std::move(start)) {
    record_.request = std::move(request);
    OpenDirectory();
    trainings_ = std::make_unique<FitTrainings>(task_, options_.threads, options_.stop);
    key_ = FoldIn(KeyFromSeed(static_cast<uint64_t>(record_.request.seed)), kFitDomain);
  }

  FitResult Run() {
    SetStatus("running");
    const bool ended =
        Measure() && TryMultipliers() && TryBases() && MetaTrain() && TryMetaTrained() && Compare();
    FitResult result{.interrupted = !ended};
    if (ended) {
      result.judged = ReadJudged();
      const FitVerdict verdict = JudgeFit(result.judged);
      record_.take = verdict.take;
      record_.verdict = verdict.text;
      result.report = FitTable(result.judged) + "\n" + verdict.text + "\n";
      WriteTextFile(PathOf(kReportFile), result.report);
    }
    SetStatus(ended ? "finished" : "interrupted");
    result.record = record_;
    result.theta = ReadThetaFile(PathOf(kFitThetaFile));
    return result;
  }

 private:
  const FitRequest& request() const { return record_.request; }
  std::string PathOf(const std::string& name) const { return options_.out_dir + "/" + name; }
  bool stopped() const { return options_.stop != nullptr && *options_.stop; }

  void OpenDirectory() {
    const std::string& out = options_.out_dir;
    const bool resume = options_.existing == ExistingFit::kResume;
    if (resume) {
      record_.request = ReadFitRequest(out);
    } else {
      CheckFitRequest(request());
      WithMultiplier(start_, 1);
    }
    task_ = TaskRegistry().Make(request().task, TaskResources(request().data_dir));
    MakeOutputDirectory(out);
    lock_ = std::make_unique<RunLock>(out, "fit");
    if (resume) {
      record_ = ReadRecordFile<FitRecord>(PathOf(kFitFile));
      start_ = ReadThetaFile(PathOf(kStartFile));
      Require(record_.isa == CurrentIsa(),
              "cannot resume {}: it was computed on instruction set {}, this process uses {}; pin "
              "it ({})",
              out, record_.isa, CurrentIsa(), OptionWords("isa"));
      return;
    }
    const bool holds_one = options_.existing != ExistingFit::kReplace && Exists(PathOf(kFitFile)) &&
                           ReadRecordFile<FitRecord>(PathOf(kFitFile)).measured.has_value();
    Require(!holds_one,
            "{} holds a fit already: resume it ({}), replace it ({}) or choose another directory "
            "({})",
            out, FlagWords("resume"), FlagWords("overwrite"), OptionWords("out"));
    RemoveMatching(out, [](std::string_view name) {
      return std::ranges::find(kFitFiles, name) != std::end(kFitFiles);
    });
    record_.version = options_.version;
    record_.isa = CurrentIsa();
    WriteThetaFile(PathOf(kStartFile), start_);
    WriteThetaFile(PathOf(kFitThetaFile), start_);
    Save();  // last: with it there is a fit to resume
  }

  void Save() const { WriteRecordFile(PathOf(kFitFile), record_); }

  void SetStatus(const char* status) {
    record_.status = status;
    Save();
  }

  // --- Time
  // ---------------------------------------------------------------------------------------

  double TrainingSeconds(const std::string& name) const {
    return record_.measured->training.at(name);
  }

  // The seconds that fitting takes by what was measured, without measuring and meta-training.
  double SearchSeconds() const {
    const double training = TrainingSeconds(request().start);
    return training * (static_cast<double>(kMultiplierRounds * kTrialsPerRound * kMultiplierSeeds) /
                           kMultiplierPart +
                       kCandidates * kCandidateSeeds);
  }

  // Of a trial in a round, in which threads are idle where the round's trials do not keep them
  // busy.
  double TrialSeconds(const std::string& rival) const {
    const int64_t turns = (kTrialsPerRound + options_.threads - 1) / options_.threads;
    return TrainingSeconds(rival) * static_cast<double>(turns * options_.threads) / kTrialsPerRound;
  }

  // How a rival is tuned: the most trials there can be have several seeds each where that is
  // quicker than fitting.
  struct Tuning {
    int64_t trials = 0;
    int64_t seeds = 1;
  };
  Tuning TuningOf(const std::string& rival, double fitting_seconds) const {
    if (request().trials) return {.trials = *request().trials};
    const double trainings = std::ceil(fitting_seconds / TrainingSeconds(rival));
    const double seeds =
        std::clamp(std::ceil(trainings / kMostTrials), 1.0, static_cast<double>(kMostTuningSeeds));
    const double trials =
        std::clamp(std::ceil(trainings / seeds), static_cast<double>(kFewestTrials),
                   static_cast<double>(kMostTrials));
    return {.trials = static_cast<int64_t>(trials), .seeds = static_cast<int64_t>(seeds)};
  }

  // The phases after measuring with their expected seconds, in their order.
  std::vector<std::pair<std::string, double>> Phases() const {
    const double training = TrainingSeconds(request().start);
    const auto updates = static_cast<double>(record_.measured->updates);
    const double update = record_.measured->update_seconds > 0
                              ? record_.measured->update_seconds
                              : training * 2 * kPairs * MeanLength(request().steps) /
                                    static_cast<double>(request().steps);
    const double candidate = training * kCandidateSeeds;
    std::vector<std::pair<std::string, double>> phases = {
        {"step sizes", SearchSeconds() - kCandidates * candidate},
        {"whole trainings", 2 * candidate},
        {"meta-training", updates * update},
        {"its whole trainings", candidate}};
    const double fitting = record_.measured->seconds + SearchSeconds() + updates * update;
    const auto seeds = static_cast<double>(request().seeds);
    for (const char* name : {kFitted, request().start.c_str()}) {
      phases.emplace_back(fmt::format("judging {}", name), seeds * training);
    }
    for (const Baseline& rival : Rivals()) {
      const Tuning tuning = TuningOf(rival.name, fitting);
      const auto trials = static_cast<double>(tuning.trials * tuning.seeds);
      phases.emplace_back(fmt::format("judging {}", rival.name),
                          trials * TrialSeconds(rival.name) + seeds * TrainingSeconds(rival.name));
    }
    return phases;
  }

  // Tells that this share of a phase is done.
  void Tell(const std::string& phase, double share) const {
    if (!options_.on_progress) return;
    if (!record_.measured) {
      options_.on_progress({.phase = phase});
      return;
    }
    double done = 0;
    double left = 0;
    bool before = true;
    for (const auto& [name, seconds] : Phases()) {
      const double part = name == phase ? share : before ? 1 : 0;
      if (name == phase) before = false;
      done += part * seconds;
      left += (1 - part) * seconds;
    }
    options_.on_progress({.phase = phase, .done = done / (done + left), .seconds_left = left});
  }

  // --- Fitting
  // ------------------------------------------------------------------------------------

  bool Measure() {
    if (record_.measured) return true;
    Tell("measuring", 0);
    const auto start = SteadyClock::now();
    const auto rule = BindStart(start_);
    const Key key = FoldIn(key_, kMeasureDraw);
    trainings_->Measure(*rule, 1, key);  // what is slow once only
    FitMeasurement found;
    const FitTrainings::Speed speed = trainings_->Measure(*rule, request().steps, key);
    found.training[request().start] = speed.seconds;
    found.log_loss = speed.positive_loss;
    for (const Baseline& rival : Rivals()) {
      if (stopped()) return false;
      const auto optimizer = rival.Make(NextTrials(rival.tuned, {}).front());
      const Eigen::VectorXf theta = optimizer->InitTheta(Key{});
      found.training[rival.name] =
          trainings_
              ->Measure(*optimizer->Bind(task_->params_layout(), AsSpan(theta)), request().steps,
                        key)
              .seconds;
    }
    if (!request().updates) found.update_seconds = MeasureUpdate(found.log_loss);
    if (stopped()) return false;
    found.seconds = FitSecondsSince(start);
    record_.measured = found;
    record_.measured->updates = request().updates ? *request().updates : UpdatesInTime();
    Save();
    return true;
  }

  // The expected seconds of an update, by one that is not kept.
  double MeasureUpdate(bool log_loss) const {
    const MetaTrainResult result = RunMetaTraining(
        FitMetaConfig(request(), start_, log_loss, 1, kMeasuredPairs, PathOf(kStartFile)),
        {.threads = options_.threads, .version = options_.version, .stop = options_.stop});
    int64_t inner_steps = 0;
    for (const StepCounts& counts : result.totals) inner_steps += counts.inner_steps;
    return result.seconds / static_cast<double>(std::max<int64_t>(inner_steps, 1)) * 2 * kPairs *
           MeanLength(request().steps);
  }

  int64_t UpdatesInTime() const {
    const auto seeds = static_cast<double>(request().seeds);
    double judging = 2 * seeds * TrainingSeconds(request().start);
    double shares = 1;  // of all, where a rival's trainings are worth one of fitting
    for (const Baseline& rival : Rivals()) {
      judging += seeds * TrainingSeconds(rival.name);
      shares += TrialSeconds(rival.name) / TrainingSeconds(rival.name);
    }
    const double seconds = *request().minutes * kSecondsPerMinute;
    const double least = record_.measured->seconds + SearchSeconds();
    const double fitting = (seconds - judging) / shares;
    Require(fitting >= least,
            "fit: a training of {} steps takes {:.3g} s here, so that {} minutes are too few: give "
            "at least {}, or fewer steps ({})",
            request().steps, TrainingSeconds(request().start), *request().minutes,
            std::ceil((least * shares + judging) / kSecondsPerMinute), OptionWords("steps"));
    const double updates = (fitting - least) / record_.measured->update_seconds;
    return updates < kFewestUpdates
               ? 0
               : static_cast<int64_t>(std::min(updates, static_cast<double>(kMostUpdates)));
  }

  std::unique_ptr<UpdateRule> BindStart(const ThetaFile& file) const {
    return OptimizerRegistry()
        .Make(file.learned_optimizer)
        ->Bind(task_->params_layout(), AsSpan(file.theta));
  }

  // Tries rules and notes what they gave; nothing if it was stopped.
  std::optional<FitSearch> Search(const std::string& phase, std::vector<FitTrial> trials,
                                  const FitTrainings::Rules& rules, int64_t steps, int64_t seeds,
                                  FitDraw draw, double share_before, double share) const {
    const auto start = SteadyClock::now();
    const std::vector<double> losses =
        trainings_->Losses(rules, steps, seeds, FoldIn(key_, draw),
                           [&](double done) { Tell(phase, share_before + share * done); });
    if (losses.empty()) return std::nullopt;
    for (size_t i = 0; i < trials.size(); ++i) {
      if (std::isfinite(losses[i])) trials[i].loss = losses[i];
    }
    const auto best = std::ranges::min_element(losses) - losses.begin();
    return FitSearch{.seconds = FitSecondsSince(start), .trials = std::move(trials), .best = best};
  }

  bool TryMultipliers() {
    if (record_.steps) return true;
    Tell("step sizes", 0);
    const std::vector<TunedHyperparameter> tuned = {
        {.name = kStepMultiplier, .lowest = 1. / 32, .highest = 32}};
    FitSearch all;
    std::vector<TunedTrial> tried;
    for (int64_t round = 0; round < kMultiplierRounds; ++round) {
      std::vector<FitTrial> trials;
      FitTrainings::Rules rules;
      for (const std::vector<double>& values : NextTrials(tuned, tried)) {
        trials.push_back({.multiplier = values.front()});
        rules.push_back(BindStart(WithMultiplier(start_, values.front())));
      }
      const double share = 1.0 / kMultiplierRounds;
      const auto found =
          Search("step sizes", trials, rules, request().steps / kMultiplierPart, kMultiplierSeeds,
                 kMultiplierDraw, static_cast<double>(round) * share, share);
      if (!found) return false;
      all.seconds += found->seconds;
      for (const FitTrial& trial : found->trials) {
        all.trials.push_back(trial);
        tried.push_back({.values = {trial.multiplier},
                         .loss = trial.loss.value_or(std::numeric_limits<double>::infinity())});
      }
    }
    all.best = static_cast<int64_t>(BestTrial(tried));
    record_.steps = std::move(all);
    Save();
    return true;
  }

  // The start, and what its best multiplier makes of it, in whole trainings.
  bool TryBases() {
    if (record_.bases) return true;
    Tell("whole trainings", 0);
    const double multiplier = Best(*record_.steps).multiplier;
    std::vector<FitTrial> trials = {{.name = request().start}};
    std::vector<ThetaFile> files = {start_};
    if (multiplier != 1) {
      trials.push_back({.name = kMultiplied, .multiplier = multiplier});
      files.push_back(WithMultiplier(start_, multiplier));
    }
    const auto found = TryFiles("whole trainings", trials, files);
    if (!found) return false;
    const ThetaFile& best = files[static_cast<size_t>(found->best)];
    WriteThetaFile(PathOf(kBaseFile), best);
    WriteThetaFile(PathOf(kFitThetaFile), best);
    record_.bases = found;
    Save();
    return true;
  }

  std::optional<FitSearch> TryFiles(const std::string& phase, const std::vector<FitTrial>& trials,
                                    const std::vector<ThetaFile>& files) const {
    FitTrainings::Rules rules;
    for (const ThetaFile& file : files) rules.push_back(BindStart(file));
    return Search(phase, trials, rules, request().steps, kCandidateSeeds, kCandidateDraw, 0, 1);
  }

  static const FitTrial& Best(const FitSearch& search) {
    return search.trials[static_cast<size_t>(search.best)];
  }

  bool MetaTrain() {
    if (record_.meta_ended) return true;
    const int64_t updates = record_.measured->updates;
    if (updates > 0) {
      Tell("meta-training", 0);
      MetaTrainConfig config = FitMetaConfig(request(), start_, record_.measured->log_loss, updates,
                                             kPairs, PathOf(kBaseFile));
      const std::string directory = PathOf(kMetaDirectory);
      const bool resume = Exists(directory + "/manifest.json");
      // Its path may have been another then.
      if (resume) {
        config.init_theta =
            ReadOptions<MetaTrainConfig>(Config::Load(directory + "/config.json")).init_theta;
      }
      MetaTrainerOptions options{.out_dir = directory, .threads = options_.threads};
      options.resume = resume;
      options.version = options_.version;
      options.stop = options_.stop;
      options.on_step = [&](const MetaTrainProgress& step) {
        Tell("meta-training",
             static_cast<double>(step.updates) / static_cast<double>(step.meta_steps));
      };
      const MetaTrainResult result = RunMetaTraining(config, options);
      record_.meta_seconds += result.seconds;
      Save();
      if (result.interrupted) return false;
    }
    record_.meta_ended = true;
    Save();
    return true;
  }

  bool TryMetaTrained() {
    if (record_.candidates) return true;
    FitSearch all = *record_.bases;
    all.seconds = 0;
    if (record_.measured->updates > 0) {
      Tell("its whole trainings", 0);
      ThetaFile trained = ReadThetaFile(PathOf(kMetaDirectory) + "/theta.safetensors");
      trained.chosen_on = "inner_valid";
      const double multiplier = Best(all).multiplier;
      const auto found = TryFiles("its whole trainings",
                                  {{.name = kMetaTrained, .multiplier = multiplier}}, {trained});
      if (!found) return false;
      const FitTrial& trial = found->trials.front();
      const double base = Best(all).loss.value_or(std::numeric_limits<double>::infinity());
      all.seconds = found->seconds;
      all.trials.push_back(trial);
      if (trial.loss && *trial.loss < base) {
        all.best = std::ssize(all.trials) - 1;
        WriteThetaFile(PathOf(kFitThetaFile), trained);
      }
    }
    record_.candidates = std::move(all);
    Save();
    return true;
  }

  // --- The comparison
  // -----------------------------------------------------------------------------

  bool Compare() {
    // The first candidate is the start.
    if (record_.candidates->best > 0 &&
        !Judge(kFitted, {.learned = {Named(kFitted, kFitThetaFile)}}, {},
               record_.FittingSeconds())) {
      return false;
    }
    const std::string& start = request().start;
    if (!Judge(start, {.learned = {Named(start, kStartFile)}}, {}, 0)) return false;
    return std::ranges::all_of(Rivals(), [&](const Baseline& rival) {
      return Judge(rival.name, {.baselines = {rival}},
                   TuningOf(rival.name, record_.FittingSeconds()), 0);
    });
  }

  NamedLearnedOptimizer Named(const std::string& name, const char* file) const {
    return NamedLearnedOptimizerOf(name, ReadThetaFile(PathOf(file)), PathOf(file));
  }

  std::string DirectoryOf(const std::string& name) const {
    return PathOf(kCompareDirectory) + "/" + name;
  }

  // Tunes it if there are trials, and judges it with every seed. False if it was stopped.
  bool Judge(const std::string& name, const EvaluatedOptimizers& optimizer, const Tuning& tuning,
             double seconds_before) {
    if (std::ranges::find(record_.contenders, name, &FitContender::name) !=
        record_.contenders.end()) {
      return true;
    }
    const std::string phase = fmt::format("judging {}", name);
    Tell(phase, 0);
    const EvaluationConfig config{.name = name,
                                  .steps = {request().steps},
                                  .seeds = request().seeds,
                                  .trials = std::max(tuning.trials, kFewestTrials),
                                  .tuning_seeds = tuning.seeds,
                                  .seed = request().seed,
                                  .data_dir = request().data_dir,
                                  .tasks = {{.name = "task", .task = request().task}}};
    const EvaluationRunResult result = RunEvaluation(
        config, optimizer,
        {.out_dir = DirectoryOf(name),
         .threads = options_.threads,
         .existing = ExistingEvaluation::kReplace,
         .command = "lopt fit",
         .version = options_.version,
         .on_progress = [&](const EvaluationProgress& progress) { Tell(phase, progress.done); },
         .stop = options_.stop});
    if (result.tasks_ended < result.tasks) return false;
    FitContender contender{.name = name,
                           .trials = tuning.trials,
                           .tuning_seeds = tuning.seeds,
                           .seconds = seconds_before + result.seconds};
    const double loss = FitJudged{.test_loss = TestLosses(name)}.Mean();
    if (std::isfinite(loss)) contender.test_loss = loss;
    record_.contenders.push_back(std::move(contender));
    Save();
    return true;
  }

  std::vector<double> TestLosses(const std::string& name) const {
    std::vector<double> losses;
    for (const RunResult& run : ReadResults(DirectoryOf(name) + "/results.jsonl").runs) {
      losses.push_back(run.test_loss.front());
    }
    return losses;
  }

  std::vector<FitJudged> ReadJudged() const {
    std::vector<FitJudged> judged;
    for (const FitContender& contender : record_.contenders) {
      judged.push_back({.contender = contender, .test_loss = TestLosses(contender.name)});
    }
    return judged;
  }

  const FitOptions options_;
  ThetaFile start_;
  FitRecord record_;
  std::unique_ptr<RunLock> lock_;
  std::shared_ptr<const TaskFamily> task_;
  std::unique_ptr<FitTrainings> trainings_;
  Key key_ = {};
};

}  // namespace

double FitRecord::FittingSeconds() const {
  return measured.value_or(FitMeasurement()).seconds + steps.value_or(FitSearch()).seconds +
         bases.value_or(FitSearch()).seconds + meta_seconds +
         candidates.value_or(FitSearch()).seconds;
}

FitRequest ReadFitRequest(const std::string& out_dir) {
  const std::string path = out_dir + "/" + kFitFile;
  Require(Exists(path), "cannot resume: {} holds no fit (there is no {})", out_dir, path);
  return ReadRecordFile<FitRecord>(path).request;
}

FitResult RunFit(const FitRequest& request, const ThetaFile& start, const FitOptions& options) {
  return FitRun(request, start, options).Run();
}

}  // namespace lopt
