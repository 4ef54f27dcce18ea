#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/file.h"
#include "lopt/base/wakeup.h"
#include "lopt/learner/elastic/grpc_connections.h"
#include "lopt/learner/elastic/worker_process.h"
#include "lopt/learner/run/checkpoint.h"
#include "lopt/learner/run/checkpoint_store.h"
#include "lopt/learner/run/run_directory.h"
#include "lopt/tools/build_info.h"
#include "lopt/tools/shell.h"
#include "tests/certificates.h"
#include "tests/csv_digits.h"
#include "tests/elastic_lies.h"
#include "tests/error_of.h"
#include "tests/learner_runs.h"
#include "tests/lying_connection.h"
#include "tests/mutated_frames.h"
#include "tests/paths.h"
#include "tests/process.h"
#include "tests/say_to_port.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"
#include "tests/wait_until.h"

// A learner and workers that come and go, each a process of its own.

namespace lopt {
namespace {

using Words = std::vector<std::string>;

const std::string kLopt = BuildPath("lopt");

// A process that writes to a file; killed at the end. While a test waits for something else, only
// those that were sent a signal may end.
class Child {
 public:
  Child(const Words& words, std::string output) : output_(std::move(output)) {
    const std::vector<char*> arguments = Arguments(words);
    const int file = ::open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      Execute(arguments);
    }
    ::close(file);
    children_.insert(this);
  }
  ~Child() {
    children_.erase(this);
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t process() const { return process_; }
  void Kill(int signal) {
    told_ = true;
    ::kill(process_, signal);
  }
  // 128 + the signal if one ended it.
  int Wait() {
    int status = 0;
    lopt::WaitUntil("a process ended", [&] { return ::waitpid(process_, &status, WNOHANG) != 0; });
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string Output() const { return ReadTextFile(output_); }
  bool Said(const std::string& text) const { return Output().find(text) != std::string::npos; }

  static void WaitUntil(const std::string& what, const std::function<bool()>& done) {
    lopt::WaitUntil(what, done, [] {
      for (const Child* child : children_) {
        const std::string end = child->told_ ? "" : EndOf(child->process_);
        if (!end.empty())
          return "a process has ended with " + end + "; it wrote: " + child->Output();
      }
      return std::string();
    });
  }

 private:
  static inline std::set<const Child*> children_;
  std::string output_;
  pid_t process_ = -1;
  bool told_ = false;
};

// A run in the directory "run" of a scratch directory, whose workers are elsewhere. The directory
// also has the token of this user's learners and workers, as long as there is no other job.
class Job {
 public:
  explicit Job(const MetaTrainConfig& config) {
    WriteTextFile(scratch_ / "config.json", WriteOptions("", config).Dump());
    ::setenv("XDG_CONFIG_HOME", scratch_.path().c_str(), 1);
  }

  const std::string& directory() const { return scratch_.path(); }
  std::string run() const { return scratch_ / "run"; }
  std::string operator/(const std::string& file) const { return scratch_ / file; }
  std::string address() const { return "127.0.0.1:" + port_; }
  Child& learner() { return *learner_; }
  std::string token_file() const { return scratch_ / "lopt/token"; }
  // What a worker in this process is to know.
  ElasticWorkerOptions WorkerOptions() const {
    const std::string token = ReadTextFile(token_file());
    return {.version = VersionAndCommit(GetBuildInfo()),
            .token = token.substr(0, token.find('\n')),
            .patience_seconds = 0};
  }

  // Starts the learner, where it was if it was somewhere.
  void Listen(const Words& more) {
    Words words = {kLopt,      "meta-train", scratch_ / "config.json", "--out", run(),
                   "--listen", address()};
    words.insert(words.end(), more.begin(), more.end());
    learner_ = std::make_unique<Child>(words, scratch_ / "learner.txt");
    const std::string mark = "on 127.0.0.1:";
    Child::WaitUntil("the learner listens", [&] { return learner_->Said(mark); });
    const std::string text = learner_->Output();
    const size_t at = text.find(mark) + mark.size();
    port_ = text.substr(at, text.find_first_not_of("0123456789", at) - at);
  }
  std::unique_ptr<Child> Worker(const Words& more = {}) { return WorkerAt(address(), more); }
  std::unique_ptr<Child> WorkerAt(const std::string& at, const Words& more = {}) {
    Words words = {kLopt, "worker", "--join", at, "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return std::make_unique<Child>(words, scratch_ / ("w" + std::to_string(++workers_) + ".txt"));
  }
  int64_t updates() const {
    const std::string path = run() + "/metrics.jsonl";
    if (!std::filesystem::exists(path)) return 0;
    const std::string text = ReadTextFile(path);
    return std::count(text.begin(), text.end(), '\n');
  }
  // Reads only what is new: an endless run makes a hundred megabytes in minutes.
  void WaitForMore(int64_t more) const {
    const std::string path = run() + "/metrics.jsonl";
    const auto from = std::filesystem::exists(path) ? std::filesystem::file_size(path) : 0;
    Child::WaitUntil("there are more updates", [&] {
      std::ifstream file(path);
      file.seekg(static_cast<std::streamoff>(from));
      return std::count(std::istreambuf_iterator<char>(file), {}, '\n') >= more;
    });
  }

 private:
  TempDirectory scratch_;
  std::string port_ = "0";
  int workers_ = 0;
  std::unique_ptr<Child> learner_;
};

MetaTrainConfig Endless(MetaTrainConfig config) {
  config.meta_steps = 1000000000;
  config.checkpoint_steps = 0;
  return config;
}

TEST_CASE("Three processes, then one, then five, a stop and a resume: the bits of one process") {
  const MetaTrainConfig config = Endless(SmallExperiment(5));
  Job job(config);
  job.Listen({"--wait-for", "3"});
  std::vector<std::unique_ptr<Child>> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(job.Worker());
  job.WaitForMore(5);
  CHECK(job.learner().Said("; 3 are there"));
  for (int i = 0; i < 2; ++i) workers[static_cast<size_t>(i)]->Kill(SIGKILL);
  Child::WaitUntil("they have gone", [&] { return job.learner().Said(", 1 processes are left"); });
  job.WaitForMore(5);
  for (int i = 0; i < 4; ++i) workers.push_back(job.Worker());
  Child::WaitUntil("five are there", [&] { return job.learner().Said("; 5 are there"); });
  job.WaitForMore(5);
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  CHECK(job.learner().Said("--listen 127.0.0.1:0"));

  const int64_t steps = RunDirectory(job.run()).ReadManifest().updates + 8;
  job.Listen({"--resume", "--steps", std::to_string(steps)});
  CHECK_EQ(job.learner().Wait(), 0);
  for (size_t i = 2; i < workers.size(); ++i) CHECK_EQ(workers[i]->Wait(), 0);

  const TempDirectory one;
  RunMetaTraining(SmallExperiment(5, steps), {.out_dir = one.path()});
  CHECK_EQ(FinalTheta(job.run()), FinalTheta(one.path()));
}

TEST_CASE("Asynchronous updates take what comes from processes that are killed") {
  MetaTrainConfig config = Endless(SmallExperiment(4));
  config.estimators.resize(1);
  config.mode = Config::Parse(R"({"type": "Async", "batch_size": 2})", "the test");
  Job job(config);
  job.Listen({});
  auto first = job.Worker();
  auto second = job.Worker();
  job.WaitForMore(5);
  first->Kill(SIGKILL);
  job.WaitForMore(5);
  auto third = job.Worker();
  job.WaitForMore(5);
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  const auto checkpoint = CheckpointStore(job.run() + "/checkpoints", {}).ReadNewest();
  int64_t windows = 0;
  for (const WorkerState& worker : checkpoint->workers) windows += worker.windows;
  CHECK_EQ(checkpoint->ledger.Total().Total(), windows * 60);
}

TEST_CASE("A port that gets random bytes and half messages goes on serving its workers") {
  const MetaTrainConfig config = Endless(SmallExperiment(2));
  Job job(config);
  job.Listen({});
  const auto worker = job.Worker();
  job.WaitForMore(2);
  std::mt19937_64 random(1);
  std::vector<int> open;
  for (int i = 0; i < 300; ++i) {
    open.push_back(Say(job.address(), HalfMessage(i, &random)));
  }
  job.WaitForMore(5);
  const auto late = job.Worker();
  Child::WaitUntil("another worker is there", [&] { return job.learner().Said("; 2 are there"); });
  job.WaitForMore(5);
  for (const int connection : open) ::close(connection);
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  const int64_t steps = RunDirectory(job.run()).ReadManifest().updates;
  const auto checkpoint = CheckpointStore(job.run() + "/checkpoints", {}).ReadNewest();
  CHECK_EQ(checkpoint->learner.theta, RunMetaTraining(SmallExperiment(2, steps), {}).learner.theta);
}

// An HTTP/2 frame.
std::string Http2Frame(int type, int flags, uint32_t stream, const std::string& body) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(body.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + body;
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// The most memory that a process has held, in MB.
double PeakMegabytes(pid_t process) {
  const std::string status = ReadTextFile(
      "/pr"
      "oc/" +
      std::to_string(process) + "/status");
  return std::stod(status.substr(status.find("VmHWM:") + 6)) / 1024;
}

TEST_CASE("Floods of a stranger neither fill the learner's memory nor disturb a good worker") {
  const MetaTrainConfig config = Endless(SmallExperiment(2));
  Job job(config);
  job.Listen({});
  const auto good = job.Worker();
  job.WaitForMore(2);
  const std::string opening = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Http2Frame(4, 0, 0, "");
  const auto text = [](const std::string& words) {
    return static_cast<char>(words.size()) + words;
  };
  // The first call has its headers kept, so that the others need few bytes.
  const std::string first_call = "\x83\x86\x44" + text("/lopt.wire.Learner/Work") + "\x41" +
                                 text("x") + "\x5f" + text("application/grpc") + "\x40" +
                                 text("te") + text("trailers");
  const std::string call = "\x83\x86\xc1\xc0\xbf\xbe";
  std::string calls;
  for (uint32_t stream = 1; stream < 60000; stream += 2) {
    calls += Http2Frame(1, 4, stream, stream == 1 ? first_call : call) +
             Http2Frame(3, 0, stream, std::string("\0\0\0\x08", 4));
  }
  const std::string header =
      std::string(1, '\0') + text(std::string(100, 'n')) + text(std::string(100, 'v'));
  const std::string headers = Http2Frame(9, 0, 1, Repeated(header, 75));
  const std::vector<std::string> floods = {calls,
                                           Http2Frame(1, 0, 1, first_call) + Repeated(headers, 500),
                                           Repeated(Http2Frame(6, 0, 0, "12345678"), 200000)};
  const double before = PeakMegabytes(job.learner().process());
  std::vector<std::thread> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.emplace_back([&] {
      for (const std::string& flood : floods) {
        const int connection = Say(job.address(), opening);
        char first = 0;  // that the learner says: gRPC has the connection
        CHECK_EQ(::recv(connection, &first, 1, 0), 1);
        [[maybe_unused]] const ssize_t sent =
            ::send(connection, flood.data(), flood.size(), MSG_NOSIGNAL);
        ::close(connection);
      }
    });
  }
  for (std::thread& stranger : strangers) stranger.join();
  job.WaitForMore(2);
  // Without limits it is 160 more.
  CHECK_LT(PeakMegabytes(job.learner().process()), before + 80);
  const auto late = job.Worker();
  Child::WaitUntil("another worker is there", [&] { return job.learner().Said("; 2 are there"); });
  job.WaitForMore(2);
  CHECK(!job.learner().Said(", 0 processes are left"));
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  const int64_t steps = RunDirectory(job.run()).ReadManifest().updates;
  const auto checkpoint = CheckpointStore(job.run() + "/checkpoints", {}).ReadNewest();
  CHECK_EQ(checkpoint->learner.theta, RunMetaTraining(SmallExperiment(2, steps), {}).learner.theta);
}

// Tells every `every`-th of the lies.
void RefuseLies(size_t every) {
  Job job(Endless(SmallExperiment(2)));
  job.Listen({});
  const auto honest = job.Worker();
  job.WaitForMore(2);
  const auto error_of_worker = [&](const Mangle& mangle) {
    const ElasticWorkerOptions options = job.WorkerOptions();
    return ErrorOf([&] {
      RunElasticWorker(options,
                       [&] { return std::make_unique<LyingConnection>(job.address(), mangle); });
    });
  };
  const std::vector<ElasticLie> lies = ElasticLies();
  for (size_t i = 0; i < lies.size(); i += every) {
    const ElasticLie& lie = lies[i];
    CAPTURE(lie.name);
    const std::string error = error_of_worker(lie.mangle);
    const std::string refused = "the learner refuses this process: ";
    CHECK_MESSAGE(error.starts_with(refused), error);
    CHECK_MESSAGE(error.find(lie.why) != std::string::npos, error);
    CHECK(job.learner().Said(" is refused: " + error.substr(refused.size())));
  }
  // A stranger is not read beyond 4 KiB, so there is no answer to it.
  const auto long_token = ChangeFrames<JoinRequest>(
      FrameType::kJoin, [](JoinRequest* request) { request->token.assign(70000, 'x'); });
  CHECK(error_of_worker(long_token).starts_with("there is no learner any more: "));
  job.WaitForMore(5);
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  const int64_t steps = RunDirectory(job.run()).ReadManifest().updates;
  const auto checkpoint = CheckpointStore(job.run() + "/checkpoints", {}).ReadNewest();
  CHECK_EQ(checkpoint->learner.theta, RunMetaTraining(SmallExperiment(2, steps), {}).learner.theta);
}

TEST_CASE("A worker that lies over gRPC is refused with a line in the log: every fourth lie") {
  RefuseLies(4);
}

TEST_CASE("A worker that lies over gRPC is refused with a line in the log, the job goes on" *
          doctest::test_suite("nightly")) {
  RefuseLies(1);
}

// A worker in this process whose frames are changed before they leave, until the end.
class ChangedWorker {
 public:
  ChangedWorker(const Job& job, Mangle mangle) {
    ElasticWorkerOptions options = job.WorkerOptions();
    options.stop = &stop_;
    thread_ = std::thread([this, options, address = job.address(), mangle = std::move(mangle)] {
      try {
        RunElasticWorker(options,
                         [&] { return std::make_unique<LyingConnection>(address, mangle); });
      } catch (const std::exception&) {
      }
    });
  }
  ~ChangedWorker() {
    stop_ = true;
    thread_.join();
  }
  ChangedWorker(const ChangedWorker&) = delete;
  ChangedWorker& operator=(const ChangedWorker&) = delete;

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

void SayNoGradients(Frame* frame) {
  if (frame->type == FrameType::kAnswer && frame->kind == kGradients) {
    *frame = {.type = FrameType::kPulse};
  }
}

TEST_CASE("A worker that only says that it is there loses its leases, and the log names it" *
          doctest::test_suite("nightly")) {
  MetaTrainConfig config = Endless(SmallExperiment(2));
  config.progress_timeout_seconds = 3;
  Job job(config);
  job.Listen({"--wait-for", "2"});
  const ChangedWorker mute(job, SayNoGradients);
  const auto good = job.Worker();
  job.WaitForMore(5);
  const std::string log = job.learner().Output();
  const std::string mine = "worker process " + std::to_string(::getpid()) + " (";
  const size_t line = log.find(mine, log.find("is dropped: it owes the answer of worker ") - 200);
  CHECK_MESSAGE(line != std::string::npos, log);
}

TEST_CASE("The first SIGTERM ends a learner whose only worker never answers" *
          doctest::test_suite("nightly")) {
  MetaTrainConfig config = Endless(SmallExperiment(2));
  config.progress_timeout_seconds = 3;
  Job job(config);
  job.Listen({});
  std::atomic<int> gradients = 0;
  const ChangedWorker mute(job, [&](Frame* frame) {
    if (frame->kind == kGradients && ++gradients > 6) SayNoGradients(frame);
  });
  Child::WaitUntil("it is mute", [&] { return gradients > 6; });
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  CHECK_MESSAGE(job.learner().Said("is dropped: it owes the answer of worker "),
                job.learner().Output());
  CHECK(job.learner().Said("stopped while no worker is there to finish the update"));
}

// A real learner with a good worker beside which others, one after the other, send frames of which
// some field is changed: the learner and the good worker go on with the bits of one process.
void MeetMutants(uint64_t seed, int sessions) {
  Job job(Endless(SmallExperiment(2)));
  job.Listen({});
  const auto good = job.Worker();
  job.WaitForMore(2);
  std::mt19937_64 random(seed);
  int refused = 0;
  for (int i = 0; i < sessions; ++i) {
    CAPTURE(i);
    const ElasticWorkerOptions options = job.WorkerOptions();
    const Mangle mangle = MutateSome(&random, 0.15, false);
    const std::string error = ErrorOf([&] {
      RunElasticWorker(options,
                       [&] { return std::make_unique<LyingConnection>(job.address(), mangle); });
    });
    CHECK_MESSAGE(error != "no error", "a worker left without being refused");
    if (error.starts_with("the learner refuses this process: ")) ++refused;
    job.WaitForMore(1);
  }
  CHECK_GT(refused, sessions / 2);
  CHECK_EQ(good->Output(), "");
  job.learner().Kill(SIGTERM);
  CHECK_EQ(job.learner().Wait(), 75);
  const int64_t steps = RunDirectory(job.run()).ReadManifest().updates;
  const auto checkpoint = CheckpointStore(job.run() + "/checkpoints", {}).ReadNewest();
  CHECK_EQ(checkpoint->learner.theta, RunMetaTraining(SmallExperiment(2, steps), {}).learner.theta);
}

TEST_CASE("Mutated frames over gRPC end their worker, not the learner nor a good worker") {
  MeetMutants(1, 12);
}

TEST_CASE("Many mutated frames over gRPC end their worker, not the learner nor a good worker" *
          doctest::test_suite("nightly")) {
  for (uint64_t seed = 1; seed <= 4; ++seed) MeetMutants(seed, 200);
}

TEST_CASE("A connection ends that has as many frames untaken as it reads ahead") {
  const auto learner = ListenGrpc(ParseNetAddress("127.0.0.1:0"), {});
  const std::string description = learner->Description();
  auto worker = JoinGrpc(ParseNetAddress(description.substr(description.rfind(' ') + 1)), {});
  std::optional<Connections::Event> opened;
  WaitUntil("the connection is open", [&] { return (opened = learner->Poll()).has_value(); });
  Wakeup arrived;
  worker->NotifyOnEvent(&arrived);
  for (int i = 0; i < 16; ++i) {
    learner->Send(opened->connection, {.type = FrameType::kPulse});
    arrived.WaitFor(std::chrono::minutes(1));  // it is there
  }
  worker.reset();
  std::optional<Connections::Event> event;
  WaitUntil("the learner knows", [&] {
    event = learner->Poll();
    return event && event->what == Connections::Event::What::kClosed;
  });
  CHECK_EQ(event->connection, opened->connection);
}

TEST_CASE("On this machine a token is made and wanted that only its user may read") {
  Job job(Endless(SmallExperiment(2)));
  job.Listen({});
  struct stat status = {};
  REQUIRE_EQ(::stat(job.token_file().c_str(), &status), 0);
  CHECK_EQ(status.st_mode & 07777, 0600);
  CHECK(job.learner().Said("Workers join with the token in " + job.token_file() + "\n"));
  const std::string token = ReadTextFile(job.token_file());
  CHECK_EQ(token.size(), 65);
  const auto ends_with_1 = [&](const std::unique_ptr<Child>& worker, const std::string& why) {
    CHECK_EQ(worker->Wait(), 1);
    CHECK_MESSAGE(worker->Said(why), worker->Output());
  };
  const auto first = job.Worker();
  job.WaitForMore(2);
  ends_with_1(job.Worker({"--insecure"}),
              "the learner refuses this process: it does not say the token of this job "
              "(--token-file)\n");
  // Another user, who has a token, too.
  ::setenv("XDG_CONFIG_HOME", (job / "other").c_str(), 1);
  ends_with_1(job.Worker(), "it does not say the token of this job");
  CHECK_NE(ReadTextFile(job / "other/lopt/token"), token);
  const auto told = job.Worker({"--token-file", job.token_file()});
  Child::WaitUntil("who was told the file is there",
                   [&] { return job.learner().Said("; 2 are there"); });
  ::setenv("XDG_CONFIG_HOME", job.directory().c_str(), 1);

  ::chmod(job.token_file().c_str(), 0644);
  ends_with_1(job.Worker(), job.token_file() +
                                " is to be a secret, but others may read or write it (mode 644); "
                                "say: chmod 600 " +
                                job.token_file());
  ::chmod(job.token_file().c_str(), 0600);
  job.WaitForMore(2);
  job.learner().Kill(SIGKILL);
  job.learner().Wait();
  // The workers that are there find the next learner, whose token is the same.
  job.Listen({"--resume"});
  CHECK_EQ(ReadTextFile(job.token_file()), token);
  job.WaitForMore(2);
}

TEST_CASE("A learner that is insecure wants no token, and whoever says so joins it") {
  Job job(Endless(SmallExperiment(1)));
  job.Listen({"--insecure"});
  CHECK(!std::filesystem::exists(job.token_file()));
  CHECK(!job.learner().Said("token"));
  const auto worker = job.Worker({"--insecure"});
  job.WaitForMore(2);
  const auto wary = job.Worker();
  CHECK_EQ(wary->Wait(), 1);
  CHECK(wary->Said("it says a token, and this job has none (--insecure)"));
}

TEST_CASE("A worker that reads other data than the learner is refused") {
  const TempDirectory data;
  const TempDirectory other;
  WriteCsvDigits(data.path(), 1);
  WriteCsvDigits(other.path(), 2);
  MetaTrainConfig config = Endless(SmallExperiment(1));
  config.estimators = {config.estimators[1].With("task.data", "csv").With("task.image_size", "0")};
  config.data_dir = data.path();
  Job job(config);
  job.Listen({});
  const auto wrong = job.Worker({"--data-dir", other.path()});
  CHECK_EQ(wrong->Wait(), 1);
  CHECK_MESSAGE(wrong->Said("the learner refuses this process: it computes on csv "),
                wrong->Output());
  const auto right = job.Worker();
  job.WaitForMore(2);
}

TEST_CASE("With TLS and a token nobody gets in without the certificate and the token") {
  if (!std::filesystem::exists("/usr/bin/openssl")) {
    SkipTest("there is no /usr/bin/openssl");
    return;
  }
  Job job(Endless(SmallExperiment(2)));
  MakeCertificates(job / ".");
  const auto write_secret = [&](const std::string& name, const std::string& text) {
    WriteTextFile(job / name, text);
    ::chmod((job / name).c_str(), 0600);
  };
  write_secret("token", "open sesame\n");
  write_secret("guess", "open wheat\n");
  const auto as = [&](const std::string& name, const std::string& token) {
    return Words{"--tls-cert", job / (name + ".pem"), "--tls-key",    job / (name + ".key"),
                 "--tls-ca",   job / "ca.pem",        "--token-file", job / token};
  };
  job.Listen(as("learner", "token"));
  const auto turned_away = [&](Words words, const std::string& why) {
    words.insert(words.end(), {"--patience", "0"});
    const auto worker = job.Worker(words);
    CHECK_EQ(worker->Wait(), 1);
    CHECK_MESSAGE(worker->Said(why), worker->Output());
  };
  turned_away(as("worker", "guess"), "it does not say the token of this job");
  CHECK(job.learner().Said("is refused: it does not say the token of this job"));
  ::chmod((job / "worker.key").c_str(), 0644);
  turned_away(as("worker", "token"),
              "worker.key is to be a secret, but others may read or write "
              "it (mode 644); say: chmod 600 ");
  ::chmod((job / "worker.key").c_str(), 0600);
  turned_away(as("stranger", "token"),
              "; it does not accept this certificate, which its --tls-ca must have signed");
  turned_away({}, "; it closes connections without TLS, or speaks another protocol");
  Words words = as("worker", "token");
  words[5] = job / "stranger.pem";
  turned_away(words, "; its certificate has expired, or is not signed by those of --tls-ca");
  const auto worker = job.Worker(as("worker", "token"));
  job.WaitForMore(3);
  CHECK(job.learner().Said("; 1 are there"));
}

TEST_CASE("Certificates and keys that cannot work are errors that name the file and the cause") {
  if (!std::filesystem::exists("/usr/bin/openssl")) {
    SkipTest("there is no /usr/bin/openssl");
    return;
  }
  Job job(SmallExperiment(2));
  MakeCertificates(job / ".");
  WriteTextFile(job / "half.pem", ReadTextFile(job / "worker.pem").substr(0, 200));
  const auto error = [&](const Words& command, const std::string& certificate,
                         const std::string& key, const std::string& authorities) {
    Words words = command;
    words.insert(words.begin(), kLopt);
    words.insert(words.end(), {"--tls-cert", job / certificate, "--tls-key", job / key, "--tls-ca",
                               job / authorities});
    const FinishedProcess finished = RunProcess(words);
    CHECK_EQ(finished.exit_code, 1);
    return finished.errors;
  };
  const std::string wrong_key =
      "lopt: the key in " + (job / "ca.key") + " belongs to another certificate than that in ";
  const std::string here = job.directory() + "/";
  const Words join = {"worker", "--join", "127.0.0.1:1"};
  const Words listen = {"meta-train", job / "config.json", "--out",
                        job.run(),    "--listen",          "127.0.0.1:0"};
  for (const auto& [command, name] : {std::pair(join, "worker"), std::pair(listen, "learner")}) {
    const std::string mine = name;
    const std::string pem = mine + ".pem";
    const std::string key = mine + ".key";
    CHECK_EQ(error(command, pem, "ca.key", "ca.pem"), wrong_key + here + pem + "\n");
    const std::string old = error(command, mine + "-old.pem", key, "ca.pem");
    CHECK_MESSAGE(
        old.starts_with("lopt: the certificate in " + here + mine + "-old.pem expired on "), old);
    const std::string old_authority = error(command, pem, key, mine + "-old.pem");
    CHECK_MESSAGE(old_authority.find("-old.pem expired on ") != std::string::npos, old_authority);
    CHECK_EQ(error(command, "names", key, "ca.pem"),
             "lopt: " + here + "names holds no certificate (PEM)\n");
    CHECK_EQ(error(command, pem, key, "names"),
             "lopt: " + here + "names holds no certificate (PEM)\n");
    CHECK_EQ(error(command, "half.pem", key, "ca.pem"),
             "lopt: " + here + "half.pem holds no certificate (PEM)\n");
  }
  ::chmod((job / "worker.pem").c_str(), 0600);
  CHECK_EQ(error(join, "worker.pem", "worker.pem", "ca.pem"),
           "lopt: " + here + "worker.pem holds no private key without a password (PEM)\n");
}

// Passes on what comes to a port of its own, at most so many bytes a second and connection in each
// direction.
class SlowLink {
 public:
  SlowLink(const std::string& to, double bytes_per_second) : to_(to), rate_(bytes_per_second) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SetBuffers(listener_);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    CHECK_EQ(::listen(listener_, 16), 0);
    CHECK_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    accepting_ = std::thread([this] { Accept(); });
  }
  ~SlowLink() {
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int end : ends_) ::shutdown(end, SHUT_RDWR);
    for (std::thread& pump : pumps_) pump.join();
    for (const int end : ends_) ::close(end);
    ::close(listener_);
  }
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  const std::string& address() const { return address_; }

 private:
  static void SetBuffers(int end) {
    const int bytes = 32 << 10;
    ::setsockopt(end, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  }
  void Accept() {
    for (;;) {
      const int from = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (from < 0) return;
      const int to = Say(to_, "");
      SetBuffers(to);
      ends_.insert(ends_.end(), {from, to});
      pumps_.emplace_back([this, from, to] { Pump(from, to); });
      pumps_.emplace_back([this, from, to] { Pump(to, from); });
    }
  }
  void Pump(int from, int to) const {
    std::vector<char> bytes(8 << 10);
    for (;;) {
      const ssize_t got = ::recv(from, bytes.data(), bytes.size(), 0);
      if (got <= 0) break;
      std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(got) / rate_));
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t now =
            ::send(to, bytes.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += now;
      }
    }
    ::shutdown(to, SHUT_WR);
  }

  std::string to_;
  double rate_;
  int listener_ = -1;
  std::string address_;
  std::vector<int> ends_;
  std::vector<std::thread> pumps_;
  std::thread accepting_;
};

TEST_CASE("A link that is slower than states and timeout makes progress" *
          doctest::test_suite("nightly")) {
  MetaTrainConfig config = Endless(SmallExperiment(1));
  config.estimators = {config.estimators[0].With("task.dim", "3000").With("num_tasks", "4")};
  config.worker_timeout_seconds = 0.5;
  config.progress_timeout_seconds = 1;
  Job job(config);
  job.Listen({});
  const SlowLink link(job.address(), 400e3);
  auto first = job.WorkerAt(link.address());
  job.WaitForMore(10);  // with states to the learner
  first->Kill(SIGKILL);
  first->Wait();
  const auto second = job.WorkerAt(link.address());
  job.WaitForMore(10);  // with states to the worker
  CHECK_MESSAGE(!job.learner().Said(" is dropped"), job.learner().Output());
  CHECK_MESSAGE(!second->Said("no learner"), second->Output());
}

TEST_CASE(
    "Without a learner a worker ends with 75 after one that was stopped, with 1 after a kill") {
  for (const bool stopped : {true, false}) {
    CAPTURE(stopped);
    Job job(Endless(SmallExperiment(1)));
    job.Listen({});
    const auto worker = job.Worker({"--patience", "0"});
    job.WaitForMore(1);
    job.learner().Kill(stopped ? SIGTERM : SIGKILL);
    CHECK_EQ(job.learner().Wait(), stopped ? 75 : 128 + SIGKILL);
    CHECK_EQ(worker->Wait(), stopped ? 75 : 1);
    CHECK_EQ(worker->Said("lopt: there is no learner any more: "), !stopped);
  }
}

// Killed and late ones have others in their place all the time, until the learner has ended.
TEST_CASE("Workers end with 0 when the run has finished, those that come just then, too" *
          doctest::test_suite("nightly")) {
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    Job job(SmallExperiment(6, 60));
    job.Listen({});
    std::vector<std::unique_ptr<Child>> killed;
    std::vector<std::unique_ptr<Child>> workers;
    while (job.updates() < 59) {
      if (workers.size() > 3) {
        workers[0]->Kill(SIGKILL);
        killed.push_back(std::move(workers[0]));
        workers.erase(workers.begin());
      }
      workers.push_back(job.Worker({"--patience", "0.3"}));
      const int64_t from = job.updates();
      Child::WaitUntil("there are more updates",
                       [&] { return job.updates() >= std::min<int64_t>(from + 3, 59); });
    }
    CHECK_EQ(job.learner().Wait(), 0);
    for (const auto& worker : workers) CHECK_MESSAGE(worker->Wait() == 0, worker->Output());
  }
}

TEST_CASE("A second learner in the directory or at the port is refused, the first goes on") {
  Job job(Endless(SmallExperiment(1)));
  job.Listen({});
  const auto worker = job.Worker();
  job.WaitForMore(2);
  const auto refused = [&](const std::string& out, const std::string& address) {
    return RunProcess(
        {kLopt, "meta-train", job / "config.json", "--resume", "--out", out, "--listen", address});
  };
  const FinishedProcess same_port = refused(job.run(), job.address());
  CHECK_EQ(same_port.exit_code, 1);
  CHECK(same_port.errors.find("cannot listen on " + job.address()) != std::string::npos);
  const FinishedProcess same_directory = refused(job.run(), "127.0.0.1:0");
  CHECK_EQ(same_directory.exit_code, 1);
  CHECK(same_directory.errors.find(job.run() + " is in use") != std::string::npos);
  job.WaitForMore(2);
}

// With --init-method, as a launcher of three processes would start them.
TEST_CASE("Ranks that meet at an address give the bits of one process, and stop together") {
  const MetaTrainConfig config = SmallExperiment(3, 12);
  for (const bool stop : {false, true}) {
    CAPTURE(stop);
    Job job(stop ? Endless(config) : config);
    // A port that is free: of a learner that has ended.
    job.Listen({});
    const std::string address = job.address();
    job.learner().Kill(SIGKILL);
    job.learner().Wait();
    std::vector<std::unique_ptr<Child>> ranks;
    for (const std::string rank : {"2", "0", "1"}) {
      ranks.push_back(std::make_unique<Child>(
          Words{"/usr/bin/env", "WORLD_SIZE=3", "RANK=" + rank, "LOCAL_WORLD_SIZE=3", kLopt,
                "meta-train", job / "config.json", "--overwrite", "--out", job.run(),
                "--init-method", "tcp://" + address},
          job / ("rank" + rank + ".txt")));
    }
    if (stop) {
      job.WaitForMore(3);
      ranks[0]->Kill(SIGTERM);  // not rank 0
    }
    for (auto& rank : ranks) CHECK_EQ(rank->Wait(), stop ? 75 : 0);
    if (stop) {
      CHECK(ReadTextFile(job / "rank0.txt")
                .find("To go on, with the same launcher:\n  lopt meta-train --resume --out " +
                      ShellQuoted(job.run()) + " --init-method tcp://" + address + "\n") !=
            std::string::npos);
      continue;
    }
    const TempDirectory one;
    RunMetaTraining(config, {.out_dir = one.path()});
    CHECK_EQ(FinalTheta(job.run()), FinalTheta(one.path()));
  }
}

TEST_CASE("torchrun starts a job") {
  const std::string torchrun = "/usr/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) {
    SkipTest("there is no " + torchrun);
    return;
  }
  Job job(SmallExperiment(3, 6));
  job.Listen({});
  const std::string port = job.address().substr(job.address().find(':') + 1);
  job.learner().Kill(SIGKILL);
  job.learner().Wait();
  // torchrun listens at the port itself, the learner at the next one.
  const auto launch = [&](const Words& command) {
    Words words = {torchrun,        "--nproc_per_node=2",         "--nnodes=1",
                   "--redirects=2", "--master_port=" + port,      "--master_addr=127.0.0.1",
                   "--tee=1",       "--log_dir=" + (job / "log"), "--no_python"};
    words.insert(words.end(), command.begin(), command.end());
    return RunProcess(words);
  };
  if (launch({"/bin/true"}).errors.find("without libuv support") != std::string::npos) {
    SkipTest("the torchrun of Debian 13 starts nothing: it wants libuv, which its PyTorch lacks");
    return;
  }
  const FinishedProcess finished = launch({kLopt, "meta-train", job / "config.json", "--overwrite",
                                           "--out", job.run(), "--init-method", "env://"});
  CHECK_EQ(finished.exit_code, 0);
  const TempDirectory one;
  RunMetaTraining(SmallExperiment(3, 6), {.out_dir = one.path()});
  CHECK_EQ(FinalTheta(job.run()), FinalTheta(one.path()));
}

TEST_CASE("What a command line says of other machines is refused unless it is safe or said") {
  const auto error = [](const Words& more) {
    Words words = {kLopt};
    words.insert(words.end(), more.begin(), more.end());
    const FinishedProcess finished = RunProcess(words);
    CHECK_EQ(finished.exit_code, 2);
    return finished.errors;
  };
  CHECK_EQ(error({"worker"}),
           "lopt: --join says where the learner is; usage: lopt worker --join HOST:PORT "
           "[OPTIONS]\n");
  CHECK_EQ(error({"worker", "--join", "0.0.0.0:1"}),
           "lopt: 0.0.0.0:1 is not this machine alone, so it wants --tls-cert, --tls-key, --tls-ca "
           "and --token-file; or say --insecure\n");
  CHECK_EQ(error({"meta-train", "--preset", "smoke", "--listen", "0.0.0.0:1"}),
           "lopt: 0.0.0.0:1 is not this machine alone, so it wants --tls-cert, --tls-key, --tls-ca "
           "and --token-file; or say --insecure\n");
  CHECK_EQ(error({"worker", "--join", "127.0.0.1:1", "--tls-ca", "x"}),
           "lopt: TLS wants all of --tls-cert, --tls-key and --tls-ca\n");
  CHECK_EQ(error({"meta-train", "--preset", "smoke", "--init-method", "file:///x"}),
           "lopt: --init-method wants env:// or tcp://HOST:PORT, not 'file:///x'\n");
  CHECK_EQ(error({"meta-train", "--preset", "smoke", "--init-method", "tcp://127.0.0.1:1"}),
           "lopt: --init-method tcp://127.0.0.1:1 wants WORLD_SIZE in the environment\n");
  CHECK_EQ(error({"meta-train", "--preset", "smoke", "--token-file", "x"}),
           "lopt: --token-file is about workers elsewhere; it wants --listen or --init-method\n");
  const FinishedProcess misplaced =
      RunProcess({"/usr/bin/env", "WORLD_SIZE=4", "RANK=3", "LOCAL_WORLD_SIZE=2", "LOCAL_RANK=2",
                  kLopt, "meta-train", "--preset", "smoke", "--init-method", "tcp://127.0.0.1:1"});
  CHECK_EQ(misplaced.exit_code, 2);
  CHECK_EQ(misplaced.errors,
           "lopt: LOCAL_RANK in the environment is '2'; wanted is a number from 0 to 1\n");
}

}  // namespace
}  // namespace lopt
