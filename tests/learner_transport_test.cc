#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/placement.h"
#include "lopt/learner/job/wire.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/transport/job.h"
#include "lopt/learner/transport/local_transport.h"
#include "tests/learner_local_job.h"
#include "tests/learner_runs.h"
#include "tests/like_system_environment.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

std::vector<std::byte> Bytes(size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

TEST_CASE("Messages between ranks of one process arrive complete and in the order sent") {
  const auto ranks = MakeLocalTransports(3);
  CHECK(ranks[2]->rank() == 2);
  CHECK(ranks[2]->size() == 3);
  CHECK_FALSE(ranks[1]->Poll().has_value());
  for (int i = 0; i < 10; ++i) {
    ranks[0]->Send(1, i, Bytes(static_cast<size_t>(i), i));
    ranks[1]->Send(1, 100 + i, {});
  }
  int from_zero = 0;
  int from_self = 0;
  while (const auto message = ranks[1]->Poll()) {
    if (message->from == 0) {
      CHECK(message->kind == from_zero);
      CHECK(message->bytes == Bytes(static_cast<size_t>(from_zero), from_zero));
      ++from_zero;
    } else {
      CHECK(message->from == 1);
      CHECK(message->kind == 100 + from_self++);
    }
  }
  CHECK(from_zero == 10);
  CHECK(from_self == 10);
  CHECK_THROWS_WITH_AS(ranks[0]->Send(3, 0, {}), "there is no rank 3 among 3", Error);
  CHECK_THROWS_WITH_AS(MakeLocalTransports(0), "a job needs at least one rank, got 0", Error);
}

class Heard : public LikeSystemEnvironment {
 public:
  void Say(std::string_view line) override { said = line; }
  std::string said;
};

TEST_CASE(
    "A job of one rank returns the program's exit code, and 1 for an error, which it prints") {
  CHECK_EQ(RunJob([](Transport* rank) { return rank->rank() + 10 * rank->size(); }), 10);
  Heard heard;
  const InEnvironment inside(&heard);
  CHECK_EQ(RunJob([](Transport*) -> int { throw Error("no such file"); }), 1);
  CHECK_EQ(heard.said, "no such file");
}

TEST_CASE("The farewell is done when every rank has begun it") {
  const auto ranks = MakeLocalTransports(2);
  ranks[0]->BeginFarewell();
  CHECK_FALSE(ranks[0]->FarewellDone());
  ranks[1]->BeginFarewell();
  CHECK(ranks[0]->FarewellDone());
  CHECK(ranks[1]->FarewellDone());
}

TEST_CASE("Gradients come out of a message as they went in, NaN and infinities too") {
  WorkerGradient sent{.worker = 3, .first_window = 8, .windows = 2, .gradient = {}};
  sent.gradient.outer_step = 4;
  sent.gradient.gradient = Eigen::VectorXf::LinSpaced(5, -1, 1);
  sent.gradient.gradient[1] = std::numeric_limits<float>::infinity();
  sent.gradient.mean_loss = std::nan("");
  sent.gradient.counts = {.inner_steps = 7, .non_finite = 1, .episodes_ended = 2};
  sent.gradient.estimators = {{.mean_loss = 0.1,
                               .gradient_norm = 2,
                               .counts = {.inner_steps = 7},
                               .metrics = {{"a", -0.0}, {{"b", {0, 9}}, 1}}},
                              {}};
  const std::vector<WorkerGradient> both = {sent, sent};
  const std::vector<std::byte> wire = ToWire(both);
  const std::vector<WorkerGradient> got = FromWire<std::vector<WorkerGradient>>(wire);
  REQUIRE(got.size() == 2);
  CHECK(got[1].worker == 3);
  CHECK(got[1].first_window == 8);
  CHECK(got[1].windows == 2);
  CHECK(got[1].gradient.outer_step == 4);
  CHECK(got[1].gradient.gradient == sent.gradient.gradient);
  CHECK(std::isnan(got[1].gradient.mean_loss));
  CHECK(got[1].gradient.counts == sent.gradient.counts);
  REQUIRE(got[1].gradient.estimators.size() == 2);
  CHECK(got[1].gradient.estimators[0].metrics == sent.gradient.estimators[0].metrics);
  CHECK(ToWire(got) == wire);
  for (size_t size = 0; size < wire.size(); ++size) {
    CHECK_THROWS_AS(FromWire<std::vector<WorkerGradient>>(std::span(wire).first(size)), Error);
  }
}

TEST_CASE("Every other message comes out as it went in") {
  const Hello hello = FromWire<Hello>(
      ToWire(Hello{.host = "h", .pid = 5, .version = "v", .isa = "avx2", .config = "{}"}));
  CHECK(hello.host + hello.version + hello.isa + hello.config == "hvavx2{}");
  CHECK(hello.pid == 5);
  const WorkerWeights weights = FromWire<WorkerWeights>(ToWire(
      WorkerWeights{.theta = Eigen::VectorXf::Constant(3, 0.5F), .outer = {.outer_step = 9}}));
  CHECK(weights.theta == Eigen::VectorXf::Constant(3, 0.5F));
  CHECK(weights.outer.outer_step == 9);
  const WorkersFile file =
      FromWire<WorkersFile>(ToWire(WorkersFile{.first = 2, .count = 4, .bytes = Bytes(3, 7)}));
  CHECK(file.first == 2);
  CHECK(file.count == 4);
  CHECK(file.bytes == Bytes(3, 7));
  const SaveRequest request = FromWire<SaveRequest>(
      ToWire(SaveRequest{.what = SaveRequest::What::kSend, .outer_step = 6, .directory = "/d"}));
  CHECK(request.what == SaveRequest::What::kSend);
  CHECK(request.outer_step == 6);
  CHECK(request.directory == "/d");
  std::vector<SavedFile> saved(2);
  saved[0].file = {.name = "f", .bytes = 3, .crc32 = 4};
  saved[1].bytes = Bytes(2, 1);
  const std::vector<SavedFile> got = FromWire<std::vector<SavedFile>>(ToWire(saved));
  REQUIRE(got.size() == 2);
  CHECK(got[0].file.name == "f");
  CHECK(got[0].file.crc32 == 4);
  CHECK(got[1].bytes == Bytes(2, 1));
}

TEST_CASE("A damaged message is an Error that names the member where it shows") {
  std::vector<std::byte> wire = ToWire(Heartbeat{.host = "abc", .updates = 5});
  REQUIRE(wire.size() == 8 + 3 + 8);
  const auto error_of = [&](size_t size) -> std::string {
    try {
      FromWire<Heartbeat>(std::span(wire).first(size));
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  };
  const std::string damaged = "a message from another rank is damaged: ";
  CHECK(error_of(18) == damaged + "it ends in 'updates'");
  CHECK(error_of(10) == damaged + "'host' is to have 3 elements, 2 bytes follow");
  wire.push_back(std::byte{0});
  CHECK(error_of(20) == damaged + "1 bytes follow its end");
  const std::vector<std::byte> two = {std::byte{2}};
  CHECK_THROWS_WITH_AS(FromWire<bool>(two), (damaged + "'message' is 2").c_str(), Error);
}

TEST_CASE("Workers are dealt to ranks in blocks without a gap, as equal as can be") {
  for (const int64_t workers : {1, 4, 7, 64}) {
    for (const int ranks : {1, 2, 3, 5, 16}) {
      for (const bool learner_only : {false, true}) {
        if (learner_only && ranks == 1) continue;
        int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const WorkerBlock block = WorkersOfRank(workers, rank, ranks, learner_only);
          if (learner_only && rank == 0) {
            CHECK(block.count == 0);
            continue;
          }
          CHECK(block.first == next);
          const int working = learner_only ? ranks - 1 : ranks;
          CHECK(block.count >= workers / working);
          CHECK(block.count <= workers / working + 1);
          next += block.count;
        }
        CHECK(next == workers);
      }
    }
  }
}

TEST_CASE("theta has the same bits on 1, 2, 3 and 5 ranks, with any threads") {
  const MetaTrainConfig config = SmallExperiment(4, 6);
  const MetaTrainResult alone = RunMetaTraining(config, {});
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    const LocalJob job = RunLocalJob(
        config, ranks, [](int rank) { return MetaTrainerOptions{.threads = 1 + rank % 2}; });
    CHECK(job.errors == std::vector<std::string>(static_cast<size_t>(ranks)));
    CHECK(job.result.learner.theta == alone.learner.theta);
    CHECK(job.result.learner.theta_opt == alone.learner.theta_opt);
    CHECK(job.result.totals == alone.totals);
    CHECK(job.result.ledger == alone.ledger);
  }
  const LocalJob reserved = RunLocalJob(config, 3, MetaTrainerOptions{.learner_only = true});
  CHECK(reserved.result.learner.theta == alone.learner.theta);
}

TEST_CASE("A run goes on, on another number of ranks, to the same end") {
  const TempDirectory whole;
  const TempDirectory parts;
  RunMetaTraining(SmallExperiment(4, 9), {.out_dir = whole.path()});
  for (const auto& [ranks, steps, gather] : {std::tuple{3, 4, false}, std::tuple{2, 6, true},
                                             std::tuple{1, 8, false}, std::tuple{5, 9, false}}) {
    MetaTrainConfig config = SmallExperiment(4, steps);
    config.gather_checkpoints = gather;
    const LocalJob job = RunLocalJob(
        config, ranks, MetaTrainerOptions{.out_dir = parts.path(), .resume = ranks != 3});
    CHECK(job.errors == std::vector<std::string>(static_cast<size_t>(ranks)));
  }
  CHECK(FinalTheta(parts.path()) == FinalTheta(whole.path()));
  CHECK(MetricsLines(parts.path()) == MetricsLines(whole.path()));
  const auto last = [](const TempDirectory& directory) {
    return CheckpointStore(directory / "checkpoints", {}).ReadNewest();
  };
  CHECK(last(parts)->workers == last(whole)->workers);
}

TEST_CASE("Ranks that disagree end the job with an error that names the difference") {
  const MetaTrainConfig config = SmallExperiment(2, 3);
  const LocalJob job = RunLocalJob(
      config, 3, [](int rank) { return MetaTrainerOptions{.version = rank == 2 ? "2.0" : "1.0"}; });
  CHECK(job.errors[0].find("rank 2 (") == 0);
  CHECK(job.errors[0].find("runs version '2.0' of the program, rank 0") != std::string::npos);
  CHECK(job.errors[1] == "the job has ended because the learner failed");
}

TEST_CASE("A rank that cannot write its part of a checkpoint is named") {
  const TempDirectory directory;
  const LocalJob job = RunLocalJob(SmallExperiment(2, 3), 2, [&](int rank) {
    MetaTrainerOptions options{.out_dir = directory.path()};
    if (rank == 1) {
      options.on_event = [](std::string_view event) {
        if (event == "checkpoint:3:workers:1") throw Error("the disk is full");
      };
    }
    return options;
  });
  CHECK(job.errors[0].find("rank 1 (") == 0);
  CHECK(job.errors[0].find("): the disk is full") != std::string::npos);
  CHECK(CheckpointStore(directory / "checkpoints", {}).Steps() == std::vector<int64_t>{0});
}

TEST_CASE("learner_only needs other ranks") {
  CHECK_THROWS_WITH_AS(RunMetaTraining(SmallExperiment(1, 1), {.learner_only = true}),
                       "learner_only needs other ranks to compute the workers; this job has one",
                       Error);
}

}  // namespace
}  // namespace lopt
