#include <doctest/doctest.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <deque>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lopt/base/file.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/parameter_server/parameter_join.h"
#include "lopt/learner/transport/take_messages.h"
#include "tests/certificates.h"
#include "tests/error_of.h"
#include "tests/lying_connection.h"
#include "tests/mutated_frames.h"
#include "tests/parameter_server_job.h"
#include "tests/say_to_port.h"
#include "tests/skip.h"
#include "tests/temp_directory.h"

// What a parameter server on the network meets, and what its workers do.

namespace lopt {
namespace {

using What = Connections::Event::What;
using TimePoint = std::chrono::steady_clock::time_point;

bool SkippedWithoutGrpc() {
  if (FindModule(kGrpcModule)) return false;
  SkipTest("the grpc module is " + WhyNoModule(kGrpcModule));
  return true;
}

// What a test lets happen, and what is sent and closed then.
struct Script {
  std::deque<Connections::Event> events = {};
  std::vector<std::pair<int64_t, FrameType>> sent = {};
  std::vector<int64_t> closed = {};
};

class ScriptedConnections final : public Connections {
 public:
  explicit ScriptedConnections(Script* script) : script_(script) {}

  std::string Description() const override { return "a script"; }
  std::optional<Event> Poll() override {
    if (script_->events.empty()) return std::nullopt;
    Event event = std::move(script_->events.front());
    script_->events.pop_front();
    return event;
  }
  void Send(int64_t connection, Frame frame) override {
    script_->sent.emplace_back(connection, frame.type);
  }
  void Trust(int64_t, size_t) override {}
  int64_t Arrived(int64_t) override { return 0; }
  void Close(int64_t connection) override { script_->closed.push_back(connection); }
  bool Idle() const override { return true; }
  void NotifyOnEvent(Wakeup*) override {}

 private:
  Script* script_;
};

// A server of a job, on a thread, until it has ended.
class ServerOnNetwork {
 public:
  ServerOnNetwork(const ParameterServerOptions& options, const ParameterLinkOptions& link,
                  int server = 0)
      : options_(options),
        transport_(std::make_unique<ParameterServerTransport>(
            options, server, link, ListenGrpc(ParseNetAddress("127.0.0.1:0"), {}))),
        address_(AddressOf(transport_->Description())),
        thread_([this] {
          error_ = ErrorOf([&] { ServeParameters(options_, transport_.get(), "", false); });
          SayFarewell(transport_.get());
          transport_.reset();
        }) {}
  ~ServerOnNetwork() {
    if (thread_.joinable()) thread_.join();
  }
  ServerOnNetwork(const ServerOnNetwork&) = delete;
  ServerOnNetwork& operator=(const ServerOnNetwork&) = delete;

  const std::string& address() const { return address_; }
  // What it has thrown, once it has ended.
  std::string Ended() {
    thread_.join();
    return error_;
  }

 private:
  ParameterServerOptions options_;
  std::unique_ptr<Transport> transport_;
  std::string address_;
  std::string error_;
  std::thread thread_;
};

ParameterWorkerTransport::Connect ConnectTo(const std::string& address, const Mangle& mangle = {}) {
  return [=]() -> std::unique_ptr<Connections> {
    if (mangle) return std::make_unique<LyingConnection>(address, mangle);
    return JoinGrpc(ParseNetAddress(address), {});
  };
}

// Joins as a worker, does this, and leaves. The Error of that, also of the servers' refusal.
std::string ErrorOfWorker(const ParameterServerOptions& options, const ParameterLinkOptions& link,
                          int worker, const ParameterWorkerTransport::Servers& servers,
                          const std::function<void(ParameterClient&)>& work) {
  return ErrorOf([&] {
    ParameterWorkerTransport transport(options, worker, link, servers);
    ParameterClient client(options, &transport);
    const std::string error = ErrorOf([&] { work(client); });
    client.Leave();
    SayFarewell(&transport);
    Require(error == "no error", "{}", error);
  });
}

void PullAll(ParameterClient& client) { client.PullVariables(); }

TEST_CASE("Who is no worker of the job is refused with the reason, and the others are served") {
  if (SkippedWithoutGrpc()) return;
  const ParameterServerOptions options = SmallModel();
  const ParameterLinkOptions link{.workers = 2, .token = "open sesame"};
  ServerOnNetwork server(options, link);
  const auto refusal = [&](const ParameterServerOptions& own, const ParameterLinkOptions& own_link,
                           int worker, const Mangle& mangle = {}) {
    const std::string error = ErrorOfWorker(
        own, own_link, worker, {{"there", ConnectTo(server.address(), mangle)}}, PullAll);
    const std::string start = "parameter server: server 0 at there refuses this worker: ";
    return error.starts_with(start) ? error.substr(start.size()) : "other: " + error;
  };
  ParameterLinkOptions other = link;
  other.token = "a guess";
  CHECK_EQ(refusal(options, other, 0), "it does not say the token of this job (--token-file)");
  other.token.clear();
  CHECK_EQ(refusal(options, other, 0), "it does not say the token of this job (--token-file)");
  other = link;
  other.workers = 3;
  CHECK_EQ(refusal(options, other, 0),
           "it belongs to a job of 1 servers and 3 workers, this is one of 1 and 2");
  ParameterServerOptions other_options = options;
  other_options.key = KeyFromSeed(8);
  CHECK_MESSAGE(refusal(other_options, link, 0)
                    .starts_with("it was made with other options than the server ("),
                refusal(other_options, link, 0));
  const auto changed = [&](const std::function<void(ParameterJoin*)>& change) {
    return refusal(options, link, 0, ChangeFrames<ParameterJoin>(FrameType::kJoin, change));
  };
  CHECK_EQ(changed([](ParameterJoin* join) { join->worker = 2; }),
           "it says that it is worker 2; there are 0 to 1");
  CHECK_EQ(changed([](ParameterJoin* join) { join->worker = -1; }),
           "it says that it is worker -1; there are 0 to 1");
  CHECK_EQ(changed([](ParameterJoin* join) { join->server = 1; }),
           "it looks for server 1, this is server 0");
  CHECK_EQ(changed([](ParameterJoin* join) { join->protocol = kElasticProtocol; }),
           "it speaks protocol 2, a parameter server protocol 1001");
  CHECK_EQ(refusal(options, link, 0, [](Frame* frame) { frame->type = FrameType::kEquipped; }),
           "a frame of type 3 comes before it has joined");
  CHECK_EQ(ErrorOfWorker(
               options, link, 1, {{"there", ConnectTo(server.address())}},
               [&](ParameterClient& client) {
                 client.PullVariables();
                 CHECK_MESSAGE(
                     refusal(options, link, 1).starts_with("worker 1 is there already: worker 1, "),
                     refusal(options, link, 1));
                 client.PullVariables();
               }),
           "no error");
  CHECK_EQ(refusal(options, link, 1), "worker 1 was there and has gone; it cannot come back");
  CHECK_EQ(ErrorOfWorker(options, link, 0, {{"there", ConnectTo(server.address())}}, PullAll),
           "no error");
  CHECK_EQ(server.Ended(), "no error");
}

TEST_CASE("A port that gets random bytes and half messages goes on serving") {
  if (SkippedWithoutGrpc()) return;
  const ParameterServerOptions options = SmallModel();
  const ParameterLinkOptions link{.workers = 2};
  ServerOnNetwork server(options, link);
  std::mt19937_64 random(1);
  std::vector<int> open;
  const ParameterWorkerTransport::Servers servers = {{"there", ConnectTo(server.address())}};
  CHECK_EQ(ErrorOfWorker(options, link, 0, servers,
                         [&](ParameterClient& client) {
                           for (int i = 0; i < 300; ++i) {
                             open.push_back(Say(server.address(), HalfMessage(i, &random)));
                             if (i % 30 == 0) client.PullVariables();
                           }
                         }),
           "no error");
  CHECK_EQ(ErrorOfWorker(options, link, 1, servers, PullAll), "no error");
  for (const int connection : open) ::close(connection);
  CHECK_EQ(server.Ended(), "no error");
}

// Changes a frame of a worker in its type, its kind, its length or a field of what it holds.
void MutateWorkerFrame(Frame* frame, std::mt19937_64* random) {
  switch (Below(8, random)) {
    case 0:
      frame->kind = kPullVariables - 2 + static_cast<int>(Below(12, random));
      return;
    case 1:
      frame->type = AnyFrameType(random);
      return;
    case 2:
      MutateLength(frame, random);
      return;
    default:
      break;
  }
  if (frame->type == FrameType::kJoin) {
    MutateBody<ParameterJoin>(frame, random);
  } else if (frame->kind == kPullVariables) {
    MutateBody<VariableRequest>(frame, random);
  } else if (frame->kind == kPullVectors) {
    MutateBody<VectorRequest>(frame, random);
  } else if (frame->kind == kPushGradients) {
    MutateBody<PushRequest>(frame, random);
  }
}

TEST_CASE("Mutated frames end their worker, not the server nor a good worker") {
  if (SkippedWithoutGrpc()) return;
  constexpr int kMutants = 60;
  const ParameterServerOptions options = SmallModel();
  // A mutant whose request has become a sign of life waits for an answer until it is cut off.
  const ParameterLinkOptions link{.workers = 1 + kMutants, .wait_seconds = 5};
  ParameterLinkOptions patient = link;
  patient.wait_seconds = 600;
  ServerOnNetwork server(options, patient);
  std::mt19937_64 random(1);
  int refused = 0;
  const auto step = [](ParameterClient& client) {
    const PulledVariables pulled = client.PullVariables();
    client.PullEmbeddingVectors("e", std::vector<int64_t>{1, 2});
    ParameterGradients gradients;
    gradients.dense.Set("w", Array::Of<float>({2, 3}, std::vector<float>(6, 1)));
    gradients.sparse = {{.layer = "e", .ids = {1, 2}, .rows = {1, 2, 3, 4}}};
    CHECK_EQ(client.PushGradients(gradients, pulled.versions).refused, "");
  };
  const Mangle mangle = [&](Frame* frame) {
    const FrameType before = frame->type;
    const int kind = frame->kind;
    if (before == FrameType::kPulse || random() % 3 > 0) return;
    MutateWorkerFrame(frame, &random);
    const bool mute = frame->type == FrameType::kPulse ||
                      (frame->type == FrameType::kAnswer && frame->kind == kLeaveServer);
    if (mute) {  // it would wait for ever for an answer
      frame->type = before;
      frame->kind = kind;
    }
  };
  const ParameterWorkerTransport::Servers servers = {{"there", ConnectTo(server.address())}};
  CHECK_EQ(
      ErrorOfWorker(
          options, link, 0, servers,
          [&](ParameterClient& good) {
            for (int mutant = 1; mutant <= kMutants; ++mutant) {
              CAPTURE(mutant);
              const std::string error = ErrorOfWorker(
                  options, link, mutant, {{"there", ConnectTo(server.address(), mangle)}}, step);
              if (error != "no error") ++refused;
              step(good);
              // Its number is done with, or still free.
              const std::string again = ErrorOfWorker(options, link, mutant, servers, step);
              CHECK_MESSAGE(
                  (again == "no error" || again.ends_with("has gone; it cannot come back")), again);
            }
          }),
      "no error");
  CHECK_GT(refused, kMutants / 2);
  const std::string error = server.Ended();  // it names those that were lost
  CHECK_MESSAGE(error.starts_with("parameter server 0: worker "), error);
}

TEST_CASE("A frame is not longer than the model's messages are, nor a stranger's than a few KiB") {
  if (SkippedWithoutGrpc()) return;
  ParameterServerOptions options = SmallModel();
  options.layers.clear();
  const ParameterLinkOptions link{.workers = 1, .wait_seconds = 0.5};
  ServerOnNetwork server(options, {.workers = 1});
  const auto longer = [](FrameType type, size_t bytes) {
    return [=](Frame* frame) {
      if (frame->type == type) frame->body = MakeBody(std::vector<std::byte>(bytes));
    };
  };
  const auto error_of = [&](const Mangle& mangle) {
    return ErrorOfWorker(options, link, 0, {{"there", ConnectTo(server.address(), mangle)}},
                         PullAll);
  };
  const std::string stranger = error_of(longer(FrameType::kJoin, 70000));
  CHECK_MESSAGE(stranger.starts_with("parameter server: waited 0 s for server 0 at there: "),
                stranger);
  const size_t most = ParameterModel(options).MostMessageBytes(0);
  CHECK_LT(most, 70000);
  const std::string worker = error_of(longer(FrameType::kAnswer, most + 1));
  CHECK_MESSAGE(worker.starts_with("parameter server: server 0 at there has gone: "), worker);
  const std::string error = server.Ended();
  CHECK_MESSAGE(error.find(" has gone: it sent a frame that is too long: it may have " +
                           std::to_string(most) + " bytes") != std::string::npos,
                error);
}

TEST_CASE("A worker that dies while others wait for it ends their wait, and is named at the end") {
  if (SkippedWithoutGrpc()) return;
  ParameterServerOptions options = SmallModel();
  options.grads_to_wait = 2;
  const ParameterLinkOptions link{.workers = 2};
  ServerOnNetwork server(options, link);
  const ParameterWorkerTransport::Servers servers = {{"there", ConnectTo(server.address())}};
  auto dying = std::make_unique<ParameterWorkerTransport>(options, 1, link, servers);
  ParameterClient its_client(options, dying.get());
  its_client.PullVariables();
  std::thread dies;
  const std::string error = ErrorOfWorker(options, link, 0, servers, [&](ParameterClient& client) {
    client.PullVariables();
    dies = std::thread([&] { dying.reset(); });
    client.PushGradients({}, {0});
  });
  dies.join();
  CHECK_MESSAGE(error.starts_with("server 0: parameter server: a step waits for 2 gradients, but "
                                  "of 2 workers 1 are left; worker 1, the process at 127.0.0.1:"),
                error);
  const std::string of_server = server.Ended();
  CHECK_MESSAGE(of_server.starts_with("parameter server 0: worker 1, the process at 127.0.0.1:"),
                of_server);
  CHECK_MESSAGE(of_server.find(", has gone") != std::string::npos, of_server);
}

TEST_CASE("A server that dies is an error of its workers that names it, and the other ends") {
  if (SkippedWithoutGrpc()) return;
  const ParameterServerOptions options = SmallModel(2);
  const ParameterLinkOptions link{.workers = 1};
  ServerOnNetwork server(options, link, 0);
  auto dying = std::make_unique<ParameterServerTransport>(
      options, 1, link, ListenGrpc(ParseNetAddress("127.0.0.1:0"), {}));
  const std::string address = AddressOf(dying->Description());
  ParameterServing serving(options, dying.get(), "", false);
  std::thread dies([&] {  // after its first answers
    WaitUntil("it is asked", [&] { return serving.Poll(); });
    WaitUntil("it is asked again", [&] { return dying->Poll().has_value(); });
    dying.reset();
  });
  const std::string error = ErrorOfWorker(
      options, link, 0, {{"here", ConnectTo(server.address())}, {"there", ConnectTo(address)}},
      [&](ParameterClient& client) {
        while (true) client.PullVariables();  // one look may answer several
      });
  dies.join();
  CHECK_MESSAGE(error.starts_with("parameter server: server 1 at there has gone: "), error);
  CHECK_EQ(server.Ended(), "no error");
}

// A worker's frames by hand.
class RawWorker {
 public:
  RawWorker(const ParameterServerOptions& options, const std::string& address, int64_t workers)
      : connection_(JoinGrpc(ParseNetAddress(address), {})) {
    const ParameterJoin join{.worker = 0,
                             .workers = workers,
                             .server = 0,
                             .servers = options.servers,
                             .digest = ParameterModel(options).digest()};
    connection_->Send(1, {.type = FrameType::kJoin, .body = MakeBody(ToWire(join))});
  }
  // Whether a frame of this type has come.
  bool Heard(FrameType type) {
    while (const auto event = connection_->Poll()) {
      if (event->what == What::kFrame && event->frame.type == type) return true;
    }
    return false;
  }

 private:
  std::unique_ptr<Connections> connection_;
};

TEST_CASE("A worker that is silent is lost, and one that computes is not") {
  if (SkippedWithoutGrpc()) return;
  const ParameterServerOptions options = SmallModel();
  TimePoint now{};
  ParameterLinkOptions link{.workers = 1, .timeout_seconds = 40};
  link.now = [&] { return now; };
  ParameterServerTransport server(options, 0, link, ListenGrpc(ParseNetAddress("127.0.0.1:0"), {}));
  RawWorker silent(options, AddressOf(server.Description()), 1);
  WaitUntil("it has joined", [&] {
    CHECK(!server.Poll());
    return silent.Heard(FrameType::kWelcome);
  });
  now += std::chrono::seconds(1000);  // the server itself was away
  CHECK(!server.Poll());
  for (int i = 0; i < 5; ++i) {
    CHECK(!server.Poll());
    now += std::chrono::seconds(9);
  }
  const std::optional<Message> lost = server.Poll();
  REQUIRE(lost.has_value());
  CHECK_EQ(lost->kind, kWorkerLost);
  const auto why = FromWire<std::string>(lost->bytes);
  CHECK_MESSAGE(why.ends_with(" has gone: it is refused: it has been silent for 45.0 s"), why);
  WaitUntil("it hears that", [&] { return silent.Heard(FrameType::kRefused); });
}

TEST_CASE("Signs of life come from a worker that computes") {
  if (SkippedWithoutGrpc()) return;
  const ParameterServerOptions options = SmallModel();
  const ParameterLinkOptions link{.workers = 1, .timeout_seconds = 0.4};
  ServerOnNetwork server(options, link);
  CHECK_EQ(ErrorOfWorker(options, link, 0, {{"there", ConnectTo(server.address())}},
                         [](ParameterClient& client) {
                           client.PullVariables();
                           const auto end =
                               std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
                           double sum = 0;
                           while (std::chrono::steady_clock::now() < end) sum += 1 / (1 + sum);
                           CHECK_GT(sum, 0);
                           client.PullVariables();
                         }),
           "no error");
  CHECK_EQ(server.Ended(), "no error");
}

TEST_CASE("Who does not say in time who it is has to go") {
  if (SkippedWithoutGrpc()) return;
  TimePoint now{};
  ParameterLinkOptions link{.workers = 1, .wait_seconds = 1e9};
  link.now = [&] { return now; };
  ParameterServerTransport server(SmallModel(), 0, link,
                                  ListenGrpc(ParseNetAddress("127.0.0.1:0"), {}));
  const auto mute = JoinGrpc(ParseNetAddress(AddressOf(server.Description())), {});
  std::string told;
  WaitUntil("it is refused", [&] {
    now += std::chrono::seconds(1);
    CHECK(!server.Poll());
    const auto event = mute->Poll();
    if (event && event->what == What::kFrame) told = FromWire<std::string>(BytesOf(event->frame));
    return !told.empty();
  });
  CHECK_EQ(told, "it has been silent for 11.0 s");
}

TEST_CASE("A server names the workers that it has waited for") {
  if (SkippedWithoutGrpc()) return;
  TimePoint now{};
  ParameterLinkOptions link{.workers = 3, .wait_seconds = 100};
  link.now = [&] { return now; };
  const ParameterServerOptions options = SmallModel();
  ParameterServerTransport server(options, 0, link, ListenGrpc(ParseNetAddress("127.0.0.1:0"), {}));
  RawWorker one(options, AddressOf(server.Description()), 3);
  WaitUntil("it has joined", [&] {
    CHECK(!server.Poll());
    return one.Heard(FrameType::kWelcome);
  });
  now += std::chrono::seconds(101);
  const std::string error = ErrorOf([&] { server.Poll(); });
  CHECK_MESSAGE(error.starts_with("parameter server 0: waited 100 s on gRPC "), error);
  CHECK_MESSAGE(error.ends_with(" for workers; of 3 these have not come: 1, 2"), error);
}

TEST_CASE("A server that is not there, or says nothing, is an error once its time is over") {
  if (SkippedWithoutGrpc()) return;
  TimePoint now{};
  ParameterLinkOptions link{.workers = 1, .wait_seconds = 100};
  link.now = [&] { return now; };
  const auto nobody = ListenGrpc(ParseNetAddress("127.0.0.1:0"), {});
  const auto error_at = [&](const std::string& address) {
    now = TimePoint{};
    ParameterWorkerTransport worker(SmallModel(), 0, link, {{"there", ConnectTo(address)}});
    CHECK(!worker.Poll());
    now += std::chrono::seconds(99);
    CHECK(!worker.Poll());
    now += std::chrono::seconds(1);
    std::string error;
    WaitUntil("it gives up", [&] {
      error = ErrorOf([&] { worker.Poll(); });
      return error != "no error";
    });
    CHECK_EQ(ErrorOf([&] { worker.Poll(); }), error);
    return error;
  };
  CHECK_EQ(error_at(AddressOf(nobody->Description())),
           "parameter server: waited 100 s for server 0 at there: it says nothing");
  const std::string error = error_at("127.0.0.1:1");
  CHECK_MESSAGE(error.starts_with("parameter server: waited 100 s for server 0 at there: "), error);
}

TEST_CASE("A server that is silent is an error of its worker") {
  if (SkippedWithoutGrpc()) return;
  TimePoint now{};
  ParameterLinkOptions link{.workers = 1};
  link.now = [&] { return now; };
  const auto server = ListenGrpc(ParseNetAddress("127.0.0.1:0"), {});
  ParameterWorkerTransport worker(SmallModel(), 0, link,
                                  {{"there", ConnectTo(AddressOf(server->Description()))}});
  worker.Send(0, kPullVariables, {});
  bool asked = false;
  WaitUntil("it has asked", [&] {
    CHECK(!worker.Poll());
    while (const auto event = server->Poll()) {
      if (event->what != What::kFrame) continue;
      if (event->frame.type == FrameType::kJoin) {
        server->Send(event->connection, {.type = FrameType::kWelcome,
                                         .body = MakeBody(ToWire(Welcome{.timeout_seconds = 40}))});
      }
      asked = asked || event->frame.type == FrameType::kAnswer;
    }
    return asked;
  });
  now += std::chrono::seconds(1000);  // the worker itself was away
  for (int i = 0; i < 5; ++i) {
    CHECK(!worker.Poll());
    now += std::chrono::seconds(9);
  }
  CHECK_EQ(ErrorOf([&] { worker.Poll(); }),
           "parameter server: server 0 at there has been silent for 45.0 s");
}

TEST_CASE("A worker that was away gives time to all its servers") {
  TimePoint now{};
  ParameterLinkOptions link{.workers = 1};
  link.now = [&] { return now; };
  std::array<Script, 2> scripts;
  ParameterWorkerTransport::Servers servers;
  for (Script& script : scripts) {
    servers.emplace_back("there", [&] { return std::make_unique<ScriptedConnections>(&script); });
    script.events.push_back({.connection = 1,
                             .frame = {.type = FrameType::kWelcome,
                                       .body = MakeBody(ToWire(Welcome{.timeout_seconds = 40}))}});
  }
  ParameterWorkerTransport worker(SmallModel(2), 0, link, servers);
  CHECK(!worker.Poll());
  // Whichever server is looked at first, the other is looked at in the next call.
  for (Script& script : scripts) {
    script.events.push_back({.connection = 1, .frame = {.type = FrameType::kTell}});
    now += std::chrono::seconds(1000);
    CHECK(worker.Poll());
    CHECK(!worker.Poll());
  }
}

TEST_CASE("Of too many who have not said who they are the first has to go") {
  Script script;
  ParameterServerTransport server(SmallModel(), 0, {.workers = 1},
                                  std::make_unique<ScriptedConnections>(&script));
  for (int64_t connection = 1; connection <= kStrangers + 2; ++connection) {
    script.events.push_back({.what = What::kOpened, .connection = connection, .peer = "there"});
  }
  CHECK(!server.Poll());
  CHECK_EQ(script.closed, std::vector<int64_t>{1, 2});
  CHECK_EQ(script.sent, std::vector<std::pair<int64_t, FrameType>>{{1, FrameType::kRefused},
                                                                   {2, FrameType::kRefused}});
}

TEST_CASE("With TLS and a token a job runs, and who has no certificate does not get in") {
  if (SkippedWithoutGrpc()) return;
  if (!std::filesystem::exists("/usr/bin/openssl")) {
    SkipTest("there is no /usr/bin/openssl");
    return;
  }
  const TempDirectory directory;
  MakeCertificates(directory.path());
  WriteTextFile(directory / "token", "open sesame\n");
  ::chmod((directory / "token").c_str(), 0600);
  const auto network = [&](const std::string& name) {
    return ParameterNetwork{.files = {.token = directory / "token",
                                      .certificate = directory / (name + ".pem"),
                                      .key = directory / (name + ".key"),
                                      .authorities = directory / "ca.pem"},
                            .wait_seconds = 1};
  };
  std::promise<std::string> listening;
  std::string error_of_server;
  std::thread server([&] {
    ParameterNetwork own = network("learner");
    own.server = 0;
    own.listen = "127.0.0.1:0";
    own.wait_seconds = 600;
    own.on_listening = [&](const std::string& address) { listening.set_value(address); };
    error_of_server = ErrorOf([&] { RunParameterJob(SmallModel(), {.network = own}, PullAll); });
  });
  const std::string address = listening.get_future().get();
  const auto error_of = [&](ParameterNetwork own) {
    own.worker = 0;
    own.servers = {address};
    return ErrorOf([&] { RunParameterJob(SmallModel(), {.network = own}, PullAll); });
  };
  const std::string stranger = error_of(network("stranger"));
  CHECK_MESSAGE(stranger.find("it does not accept this certificate") != std::string::npos,
                stranger);
  const std::string plain = error_of({.files = {.insecure = true}, .wait_seconds = 1});
  CHECK_MESSAGE(plain.find("it closes connections without TLS") != std::string::npos, plain);
  CHECK_EQ(error_of(network("worker")), "no error");
  server.join();
  CHECK_EQ(error_of_server, "no error");
}

TEST_CASE("Networks that could not be or are not safe are errors") {
  const auto error_of = [](const ParameterNetwork& network, bool in_one_process = false) {
    return ErrorOf([&] {
      RunParameterJob(SmallModel(2), {.in_one_process = in_one_process, .network = network},
                      PullAll);
    });
  };
  CHECK_EQ(error_of({}),
           "parameter server: a process on the network is one server or one worker, got neither");
  CHECK_EQ(error_of({.server = 0, .worker = 0}),
           "parameter server: a process on the network is one server or one worker, got both");
  CHECK_EQ(error_of({.server = 0}, true),
           "parameter server: a job runs in one process or on a network, not both");
  CHECK_EQ(error_of({.server = 0, .listen = "0.0.0.0:0"}),
           "parameter server: 0.0.0.0:0 is not this machine alone, so it wants --tls-cert, "
           "--tls-key, --tls-ca and --token-file; or say --insecure");
  CHECK_EQ(error_of({.worker = 0,
                     .servers = {"127.0.0.1:1"},
                     .files = {.authorities = "x", .insecure = true}}),
           "parameter server: TLS wants all of --tls-cert, --tls-key and --tls-ca");
  // Not a file of a server that there is not.
  const TempDirectory directory;
  CHECK_EQ(ErrorOf([&] {
             RunParameterJob(
                 SmallModel(2),
                 {.directory = directory.path(),
                  .resume = true,
                  .network = ParameterNetwork{.server = 2, .files = {.insecure = true}}},
                 PullAll);
           }),
           "parameter server: there is no server 2; there are 0 to 1");
  if (SkippedWithoutGrpc()) return;
  CHECK_EQ(error_of({.server = 2, .listen = "127.0.0.1:0", .files = {.insecure = true}}),
           "parameter server: there is no server 2; there are 0 to 1");
  CHECK_EQ(error_of({.worker = 0, .servers = {"127.0.0.1:1"}, .files = {.insecure = true}}),
           "parameter server: wanted the addresses of 2 servers, got 1");
  CHECK_EQ(
      error_of(
          {.worker = 1, .servers = {"127.0.0.1:1", "127.0.0.1:2"}, .files = {.insecure = true}}),
      "parameter server: there is no worker 1; there are 0 to 0");
}

}  // namespace
}  // namespace lopt
