#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lopt/base/metrics.h"
#include "lopt/evaluation/held_out.h"
#include "lopt/learner/experiment.h"
#include "lopt/learner/job/background.h"
#include "lopt/learner/job/message_loop.h"
#include "lopt/learner/job/meta_trainer.h"
#include "lopt/learner/job/ranks.h"
#include "lopt/learner/job/run_state.h"
#include "lopt/learner/job/run_writer.h"
#include "lopt/learner/job/updates.h"

namespace lopt {

// The learner of a job, on rank 0: begins or resumes the run, gives theta out and updates it until
// the run ends, and judges, reports and saves it on the way.
class LearnerRole {
 public:
  // Theta is judged in `background`, checkpoints are completed in `files`.
  LearnerRole(const Experiment* experiment, const MetaTrainerOptions& options, Ranks* ranks,
              MessageLoop* loop, Background* background, Background* files);

  // To be called once, when the ranks have met. Returns when they were told that the run has ended.
  MetaTrainResult Run();

 private:
  bool StopAsked() const;
  // Takes messages until the work is done.
  void InBackground(const std::function<void()>& work);

  void Begin();
  // Has the run go on with the device that it had, where nobody had come yet who runs windows.
  void AgreeOnDevice(const Checkpoint& checkpoint);
  // Warns if updates remain and change nothing.
  void WarnOfEndedSchedule() const;
  // Sends the states of the workers to ranks that do not see the run's directory.
  void SendStates();
  LearnerState InitialState() const;
  MetaTrainResult Loop();
  // Begins a checkpoint, and where the mode is reproducible waits for it.
  void Save();
  void AwaitSave();
  // Judges theta if that is due.
  void EvaluateTheta();
  // Writes the pictures of the judgement of theta after so many updates, if it was judged, and
  // returns the metrics, to be written now: a checkpoint has both of them or neither.
  Metrics TakeEvaluation(int64_t step);
  void WriteMetrics(int64_t step, const Metrics& metrics);
  void Report(const UpdateSummary& summary, const MetaTrainResult& result, int64_t inner_steps);
  void Finish(MetaTrainResult* result);

  const Experiment* experiment_;
  MetaTrainerOptions options_;
  Ranks* ranks_;
  MessageLoop* loop_;
  Background* background_;
  bool reproducible_;  // if not, workers may still compute when an update has been made
  RunState state_;
  std::unique_ptr<Updates> updates_;
  std::optional<RunWriter> writer_;            // if there is an output directory
  std::optional<HeldOutEvaluation> held_out_;  // if eval_every is set
  HeldOutResult evaluation_;  // of the present theta; without metrics if it was not judged
};

}  // namespace lopt
