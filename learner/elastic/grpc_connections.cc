#include "lopt/learner/elastic/grpc_connections.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "learner/elastic/elastic.grpc.pb.h"
#include "lopt/base/error.h"
#include "lopt/learner/elastic/frame_parts.h"
#include "lopt/learner/elastic/listener.h"

namespace lopt {
namespace {

using wire::FramePart;
using EventOf = Connections::Event;

constexpr int kMostPartBytes = 64 << 10;
// Of a frame from the learner.
constexpr size_t kMostFrameBytes = size_t{1} << 30;
// Of a connection, frames that nobody has taken, and their bytes: then no more are read.
constexpr int kUntaken = 16;
constexpr size_t kUntakenBytes = 1 << 20;
// What gRPC may take for all connections, and more for each that has shown the token.
constexpr size_t kQuotaBytes = 64 << 20;
constexpr size_t kQuotaBytesOfConnection = 1 << 20;
constexpr int kMostMetadataBytes = 4 << 10;
// A worker sends about 700 bytes until it has shown the token, which has kMostTokenBytes at most,
// and with TLS its certificate and those of who have signed it. A stranger's 16 bytes can begin a
// call, which takes 20 kB for a while.
constexpr StrangerLimits kPlainLimits = {.bytes = 4 << 10};
constexpr StrangerLimits kTlsLimits = {.bytes = 16 << 10};
constexpr std::chrono::seconds kCloseGrace{5};
constexpr int kHandshakeMilliseconds = 10000;
constexpr std::chrono::seconds kCountInterval{10};
// What gRPC and this file start before and while they listen or join: so many threads, and two
// pools with one for each core, but at most so many.
constexpr unsigned kThreads = 8;
constexpr unsigned kMostThreadsOfAPool = 16;

using GrpcClock = std::chrono::steady_clock;

// What has happened, until it is polled.
class EventQueue {
 public:
  void Put(EventOf event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    if (wakeup_ != nullptr) {
      wakeup_->Notify();
    }
  }
  std::optional<EventOf> Take() {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) {
      return std::nullopt;
    }
    EventOf event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void Notify(Wakeup* wakeup) {
    const std::lock_guard lock(mutex_);
    wakeup_ = wakeup;
  }

 private:
  std::mutex mutex_;
  std::deque<EventOf> events_;
  Wakeup* wakeup_ = nullptr;
};

// One end of a stream. What gRPC's threads and the owner's call is guarded by the mutex; gRPC calls
// nothing back from inside an operation that it is asked for.
template <class Reactor>
class Stream : public Reactor {
 public:
  // Frames that come may have so many bytes.
  Stream(int64_t number, size_t most_bytes, EventQueue* events)
      : number_(number), most_bytes_(most_bytes), events_(events) {}

  void Send(const Frame& frame) {
    const std::lock_guard lock(mutex_);
    if (dead_ || closing_) {
      return;
    }
    out_.Add(frame);
    Write();
  }
  void Trust(size_t most_bytes) {
    const std::lock_guard lock(mutex_);
    most_bytes_ = most_bytes;
  }
  int64_t Arrived() {
    const std::lock_guard lock(mutex_);
    return in_.parts();
  }
  // One of its frames was taken.
  void Took(const Frame& frame) {
    const std::lock_guard lock(mutex_);
    --untaken_;
    untaken_bytes_ -= BytesOf(frame).size();
    Read();
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    closing_ = reported_ = true;
    Read();  // whatever comes is dropped, until the other side has closed as well
    EndIfWritten();
  }

  void OnReadDone(bool ok) final {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) {
      Die("");
      return;
    }
    heard_ = true;
    try {
      if (!reported_) {
        TakePart();
      }
    } catch (const std::exception& error) {
      Die(error.what());
      Cancel();
      return;
    }
    Read();
  }
  void OnWriteDone(bool ok) final {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) {
      Die("");
      return;
    }
    Write();
    EndIfWritten();
  }

 protected:
  // What is to be called with the mutex held.
  virtual void Cancel() = 0;
  // All was written, or nothing more can be.
  virtual void EndWriting() = 0;
  bool heard() const { return heard_; }  // something has come
  virtual void Died() {}

  void Read() {
    const bool room = untaken_ < kUntaken && untaken_bytes_ < kUntakenBytes;
    if (!reading_ && !dead_ && !(ended_ && kEndIsAll) && (reported_ || room)) {
      reading_ = true;
      this->StartRead(&part_);
    }
  }
  void TakePart() {
    std::optional<Frame> frame = in_.Add({.type = static_cast<FrameType>(part_.type()),
                                          .lease = part_.lease(),
                                          .kind = part_.kind(),
                                          .body = std::as_bytes(std::span(part_.body())),
                                          .goes_on = part_.goes_on()},
                                         most_bytes_);
    if (frame) {
      ++untaken_;
      untaken_bytes_ += BytesOf(*frame).size();
      events_->Put(
          {.what = EventOf::What::kFrame, .connection = number_, .frame = std::move(*frame)});
    }
  }
  void Write() {
    if (!writing_ && !dead_ && !out_.Empty()) {
      writing_ = true;
      const FramePiece part = out_.Next();
      written_.set_type(static_cast<int>(part.type));
      written_.set_lease(part.lease);
      written_.set_kind(part.kind);
      written_.set_body(part.body.data(), part.body.size());
      written_.set_goes_on(part.goes_on);
      this->StartWrite(&written_);
    }
  }
  void EndIfWritten() {
    if (!ended_ && !writing_ && (dead_ || (closing_ && out_.Empty()))) {
      ended_ = true;
      EndWriting();
    }
  }
  void Report(const std::string& why) {
    if (!std::exchange(reported_, true)) {
      events_->Put({.what = EventOf::What::kClosed, .connection = number_, .text = why});
    }
  }
  // The stream carries nothing more.
  void Die(const std::string& why) {
    if (!std::exchange(dead_, true)) {
      Died();
    }
    if (kEndIsAll || !why.empty()) {
      Report(why);
    }
    EndIfWritten();
  }

  // Whether EndWriting ends the stream, reading included.
  static constexpr bool kEndIsAll =
      std::is_same_v<Reactor, grpc::ServerBidiReactor<FramePart, FramePart>>;

  std::mutex mutex_;
  const int64_t number_;
  size_t most_bytes_;
  bool closing_ = false;   // once all is written
  bool reported_ = false;  // no more events
  bool dead_ = false;
  bool ended_ = false;  // EndWriting was called

 private:
  EventQueue* const events_;
  bool reading_ = false;
  bool writing_ = false;
  bool heard_ = false;
  int untaken_ = 0;  // frames
  size_t untaken_bytes_ = 0;
  FramePart part_;  // that is being read
  FrameJoiner in_;
  FramePart written_;  // that is being written
  FrameSplitter out_;
};

// Why a TLS handshake failed last, in OpenSSL's words. gRPC tells that to its log alone.
class HandshakeFailure {
 public:
  void Note(const char* message) {
    const std::lock_guard lock(mutex_);
    last_ = message;
  }
  // Empty if none has failed since the last call.
  std::string Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(last_, "");
  }

 private:
  std::mutex mutex_;
  std::string last_;
};
HandshakeFailure handshake_failure;

void LogOfGrpc(gpr_log_func_args* args) {
  if (std::strstr(args->message, "SSL_ERROR_SSL") != nullptr) {
    handshake_failure.Note(args->message);
  }
  spdlog::debug("gRPC: {} ({}:{})", args->message, args->file, args->line);
}

void UseLog() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(LogOfGrpc); });
}

// What may be behind an end of the connection that came before the learner had said anything;
// empty: gRPC's words say all.
std::string HintOf(const std::string& why, bool tls) {
  const auto says = [&](const char* text) { return why.find(text) != std::string::npos; };
  const bool closed = says("Socket closed") || says("Connection reset") || says("Broken pipe");
  if (!tls) {
    return closed ? "; it closes connections without TLS, or is no learner" : "";
  }
  if (says("certificate verify failed")) {
    return "; the learner's certificate has expired, or is not signed by those of --tls-ca";
  }
  if (says("wrong version number") || says("WRONG_VERSION_NUMBER")) {
    return "; the learner does not use TLS";
  }
  return closed ? "; the learner does not accept this certificate, which its --tls-ca must have "
                  "signed, or does not use TLS"
                : "";
}

// gRPC waits for ever for threads that it could not start, so whether there are enough is tried
// before. Throws std::system_error as std::thread does if there are not.
void RequireThreads() {
  const unsigned cores = std::thread::hardware_concurrency();
  std::vector<std::jthread> tried(kThreads + 2 * std::min(cores, kMostThreadsOfAPool));
  for (std::jthread& thread : tried) {
    thread = std::jthread([](const std::stop_token& stop) {
      std::condition_variable_any stopped;
      std::mutex mutex;
      std::unique_lock lock(mutex);
      stopped.wait(lock, stop, [] { return false; });
    });
  }
}

bool HasTls(const TlsTexts& tls) { return !tls.certificate.empty(); }

// "ipv4:10.0.0.7:4711" as "10.0.0.7:4711", as the listener names it. The interface of an IPv6
// address, "%252", is left out.
std::string PeerText(std::string uri) {
  uri = uri.substr(uri.find(':') + 1);
  for (size_t at; (at = uri.find("%5B")) != std::string::npos;) uri.replace(at, 3, "[");
  for (size_t at; (at = uri.find("%5D")) != std::string::npos;) uri.replace(at, 3, "]");
  const size_t scope = uri.find('%');
  return scope == std::string::npos ? uri : uri.substr(0, scope) + uri.substr(uri.find(']'));
}

// A call that ends at once.
class RefusedCall final : public grpc::ServerBidiReactor<FramePart, FramePart> {
 public:
  RefusedCall() { Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "")); }
  void OnDone() override { delete this; }
};

class GrpcListening final : public Connections {
 public:
  GrpcListening(const NetAddress& address, const TlsTexts& tls)
      : quota_("workers"),
        listener_(address, HasTls(tls) ? kTlsLimits : kPlainLimits),
        service_(this) {
    UseLog();
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (HasTls(tls)) {
      grpc::SslServerCredentialsOptions options(
          GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
      options.pem_root_certs = tls.authorities;
      options.pem_key_cert_pairs.push_back({tls.key, tls.certificate});
      credentials = grpc::SslServerCredentials(options);
    }
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMostPartBytes);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kHandshakeMilliseconds);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
    builder.SetResourceQuota(quota_.Resize(kQuotaBytes));
    builder.RegisterService(&service_);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    server_ = builder.BuildAndStart();
    Require(server_ != nullptr,
            "gRPC cannot listen on {}: the certificate, its key or the authorities are no good",
            listener_.address().Text());
    listener_.Start([this](int connection, int socket) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
      parameters.listener_fd = socket;
      parameters.fd = connection;
      acceptor_->HandleNewConnection(&parameters);
    });
  }
  ~GrpcListening() override {
    events_.Notify(nullptr);
    listener_.Stop();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_->Wait();
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return streams_.empty(); });
  }

  std::string Description() const override {
    return fmt::format("{} on {}", GrpcLibrary(), listener_.address().Text());
  }
  std::optional<EventOf> Poll() override {
    Tend();
    std::optional<EventOf> event = events_.Take();
    if (event && event->what == EventOf::What::kFrame) {
      With(event->connection, [&](ServerStream* stream) { stream->Took(event->frame); });
    }
    return event;
  }
  void Send(int64_t connection, Frame frame) override {
    With(connection, [&](ServerStream* stream) { stream->Send(frame); });
  }
  void Trust(int64_t connection, size_t most_bytes) override {
    With(connection, [&](ServerStream* stream) {
      if (stream->Trust(most_bytes)) {
        listener_.Trust(stream->from());
        const std::lock_guard lock(mutex_);
        ResizeQuota();
      }
    });
  }
  int64_t Arrived(int64_t connection) override {
    int64_t arrived = 0;
    With(connection, [&](ServerStream* stream) { arrived = stream->Arrived(); });
    return arrived;
  }
  void Close(int64_t connection) override {
    With(connection, [&](ServerStream* stream) {
      stream->Close();
      closing_.emplace_back(GrpcClock::now() + kCloseGrace, connection);
    });
  }
  bool Idle() const override {
    const std::lock_guard lock(mutex_);
    return streams_.empty();
  }
  void NotifyOnEvent(Wakeup* wakeup) override { events_.Notify(wakeup); }

 private:
  class ServerStream final : public Stream<grpc::ServerBidiReactor<FramePart, FramePart>> {
   public:
    ServerStream(int64_t number, GrpcListening* owner, std::string from,
                 grpc::CallbackServerContext* context)
        : Stream(number, kPartBytes, &owner->events_),
          owner_(owner),
          from_(std::move(from)),
          context_(context) {}

    const std::string& from() const { return from_; }
    // Returns whether it was a stranger's.
    bool Trust(size_t most_bytes) {
      Stream::Trust(most_bytes);
      return !trusted_.exchange(true);
    }
    bool trusted() const { return trusted_; }

    void Begin() {
      const std::lock_guard lock(mutex_);
      Read();
    }
    void CancelNow() {
      const std::lock_guard lock(mutex_);
      Cancel();
    }
    void OnCancel() override {
      const std::lock_guard lock(mutex_);
      Die("");
    }
    void OnDone() override {
      {
        const std::lock_guard lock(mutex_);
        done_ = true;
      }
      owner_->Done(number_);
    }

   private:
    void Cancel() override {
      if (!done_) {
        context_->TryCancel();
      }
    }
    void EndWriting() override { this->Finish(grpc::Status::OK); }

    GrpcListening* owner_;
    const std::string from_;
    grpc::CallbackServerContext* context_;
    std::atomic<bool> trusted_ = false;
    bool done_ = false;  // then there is no context
  };

  class Service final : public wire::Learner::CallbackService {
   public:
    explicit Service(GrpcListening* owner) : owner_(owner) {}
    grpc::ServerBidiReactor<FramePart, FramePart>* Work(
        grpc::CallbackServerContext* context) override {
      return owner_->Opened(context);
    }

   private:
    GrpcListening* owner_;
  };

  grpc::ServerBidiReactor<FramePart, FramePart>* Opened(grpc::CallbackServerContext* context) {
    const std::string from = PeerText(context->peer());
    if (!listener_.BeginCall(from)) {
      return new RefusedCall;
    }
    std::shared_ptr<ServerStream> stream;
    {
      const std::lock_guard lock(mutex_);
      stream = std::make_shared<ServerStream>(++opened_, this, from, context);
      streams_[opened_] = stream;
      events_.Put({.what = EventOf::What::kOpened, .connection = opened_, .peer = from});
    }
    stream->Begin();
    return stream.get();
  }
  void Done(int64_t connection) {
    std::shared_ptr<ServerStream> stream;  // ends after the lock
    const std::lock_guard lock(mutex_);
    stream = std::move(streams_.extract(connection).mapped());
    ResizeQuota();
    all_done_.notify_all();
  }
  // With the mutex held.
  void ResizeQuota() {
    const auto trusted =
        std::ranges::count_if(streams_, [](const auto& entry) { return entry.second->trusted(); });
    quota_.Resize(kQuotaBytes + static_cast<size_t>(trusted) * kQuotaBytesOfConnection);
  }
  void With(int64_t connection, const std::function<void(ServerStream*)>& act) {
    std::shared_ptr<ServerStream> stream;
    {
      const std::lock_guard lock(mutex_);
      const auto found = streams_.find(connection);
      if (found == streams_.end()) {
        return;
      }
      stream = found->second;
    }
    act(stream.get());
  }
  void Tend() {
    const GrpcClock::time_point now = GrpcClock::now();
    // Connections that are closing and whose other side does not take what was sent.
    while (!closing_.empty() && closing_.front().first <= now) {
      With(closing_.front().second, [](ServerStream* stream) { stream->CancelNow(); });
      closing_.pop_front();
    }
    if (now - counted_ >= kCountInterval) {
      counted_ = now;
      CountSilent();
    }
  }
  // Connections that have opened no stream since the last count: no workers, or without the
  // certificate.
  void CountSilent() {
    const std::lock_guard lock(mutex_);
    const int64_t silent = accepted_then_ - opened_ - silent_;
    if (silent > 0) {
      silent_ += silent;
      const std::string failure = handshake_failure.Take();
      const std::string ended = listener_.TakeEnded();
      spdlog::warn("{} connections to {} were none of workers{}{}", silent,
                   listener_.address().Text(), ended.empty() ? "" : "; ended were " + ended,
                   failure.empty() ? "" : "; the last failed TLS handshake: " + failure);
    }
    accepted_then_ = listener_.accepted();
  }

  EventQueue events_;
  grpc::ResourceQuota quota_;
  Listener listener_;
  Service service_;
  mutable std::mutex mutex_;
  std::condition_variable all_done_;
  int64_t opened_ = 0;
  std::map<int64_t, std::shared_ptr<ServerStream>> streams_;
  std::deque<std::pair<GrpcClock::time_point, int64_t>> closing_;
  GrpcClock::time_point counted_ = GrpcClock::now();
  int64_t accepted_then_ = 0;  // at the last count
  int64_t silent_ = 0;         // that were counted
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

class GrpcJoining final : public Connections {
 public:
  GrpcJoining(const NetAddress& address, const TlsTexts& tls)
      : text_(address.Text()), stream_(HasTls(tls), &events_, &context_) {
    UseLog();
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (HasTls(tls)) {
      credentials = grpc::SslCredentials({.pem_root_certs = tls.authorities,
                                          .pem_private_key = tls.key,
                                          .pem_cert_chain = tls.certificate});
    }
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMostPartBytes);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = wire::Learner::NewStub(grpc::CreateCustomChannel(text_, credentials, arguments));
    stub_->async()->Work(&context_, &stream_);
    stream_.Begin();
  }
  ~GrpcJoining() override {
    events_.Notify(nullptr);
    stream_.CancelAndWait();
  }

  std::string Description() const override { return fmt::format("{} to {}", GrpcLibrary(), text_); }
  std::optional<EventOf> Poll() override {
    std::optional<EventOf> event = events_.Take();
    if (event && event->what == EventOf::What::kFrame) {
      stream_.Took(event->frame);
    }
    return event;
  }
  void Send(int64_t /*connection*/, Frame frame) override { stream_.Send(frame); }
  void Trust(int64_t /*connection*/, size_t /*most_bytes*/) override {}
  int64_t Arrived(int64_t /*connection*/) override { return stream_.Arrived(); }
  void Close(int64_t /*connection*/) override { stream_.Close(); }
  bool Idle() const override { return stream_.done(); }
  void NotifyOnEvent(Wakeup* wakeup) override { events_.Notify(wakeup); }

 private:
  class ClientStream final : public Stream<grpc::ClientBidiReactor<FramePart, FramePart>> {
   public:
    ClientStream(bool tls, EventQueue* events, grpc::ClientContext* context)
        : Stream(1, kMostFrameBytes, events), tls_(tls), context_(context) {}

    void Begin() {
      const std::lock_guard lock(mutex_);
      this->AddHold();  // until nothing more is started
      Read();
      this->StartCall();
    }
    void OnDone(const grpc::Status& status) override {
      const std::lock_guard lock(mutex_);
      Report(status.error_message() + (heard() ? "" : HintOf(status.error_message(), tls_)));
      done_ = true;
      is_done_.notify_all();
    }
    void CancelAndWait() {
      std::unique_lock lock(mutex_);
      Cancel();
      Die("");  // no operation need be under way that would notice
      is_done_.wait(lock, [this] { return done_; });
    }
    bool done() const {
      const std::lock_guard lock(const_cast<std::mutex&>(mutex_));
      return done_;
    }

   private:
    void Cancel() override { context_->TryCancel(); }
    void EndWriting() override {
      if (!dead_) {
        this->StartWritesDone();
      }
    }
    void Died() override { this->RemoveHold(); }

    const bool tls_;
    grpc::ClientContext* context_;
    std::condition_variable is_done_;
    bool done_ = false;
  };

  std::string text_;
  EventQueue events_;
  grpc::ClientContext context_;
  std::unique_ptr<wire::Learner::Stub> stub_;
  ClientStream stream_;
};

}  // namespace

std::string GrpcLibrary() { return "gRPC " + grpc::Version(); }

std::unique_ptr<Connections> ListenGrpc(const NetAddress& address, const TlsTexts& tls) {
  RequireThreads();
  return std::make_unique<GrpcListening>(address, tls);
}

std::unique_ptr<Connections> JoinGrpc(const NetAddress& address, const TlsTexts& tls) {
  RequireThreads();
  return std::make_unique<GrpcJoining>(address, tls);
}

}  // namespace lopt
