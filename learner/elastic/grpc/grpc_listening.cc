#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "lopt/base/error.h"
#include "lopt/learner/elastic/grpc/grpc_stream.h"
#include "lopt/learner/elastic/listener.h"

namespace lopt {
namespace {

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

using GrpcClock = std::chrono::steady_clock;

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
    UseGrpcLog();
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
    return fmt::format("{} on {}", grpc_module::Library(), listener_.address().Text());
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
      const std::string failure = TakeHandshakeFailure();
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

}  // namespace

std::unique_ptr<Connections> grpc_module::Listen(const NetAddress& address, const TlsTexts& tls) {
  RequireThreads();
  return std::make_unique<GrpcListening>(address, tls);
}

}  // namespace lopt
