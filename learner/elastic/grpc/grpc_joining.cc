#include <fmt/format.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "lopt/learner/elastic/grpc/grpc_stream.h"

namespace lopt {
namespace {

// Of a frame from the other side, until it is trusted with another length.
constexpr size_t kMostFrameBytes = size_t{1} << 30;

// What may be behind an end of the connection that came before the other side had said anything;
// empty: gRPC's words say all.
std::string HintOf(const std::string& why, bool tls) {
  const auto says = [&](const char* text) { return why.find(text) != std::string::npos; };
  const bool closed = says("Socket closed") || says("Connection reset") || says("Broken pipe");
  if (!tls) {
    return closed ? "; it closes connections without TLS, or speaks another protocol" : "";
  }
  if (says("certificate verify failed")) {
    return "; its certificate has expired, or is not signed by those of --tls-ca";
  }
  if (says("wrong version number") || says("WRONG_VERSION_NUMBER")) {
    return "; it does not use TLS";
  }
  return closed ? "; it does not accept this certificate, which its --tls-ca must have signed, or "
                  "does not use TLS"
                : "";
}

class GrpcJoining final : public Connections {
 public:
  GrpcJoining(const NetAddress& address, const TlsTexts& tls)
      : text_(address.Text()), stream_(HasTls(tls), &events_, &context_) {
    UseGrpcLog();
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

  std::string Description() const override {
    return fmt::format("{} to {}", grpc_module::Library(), text_);
  }
  std::optional<EventOf> Poll() override {
    std::optional<EventOf> event = events_.Take();
    if (event && event->what == EventOf::What::kFrame) {
      stream_.Took(event->frame);
    }
    return event;
  }
  void Send(int64_t /*connection*/, Frame frame) override { stream_.Send(frame); }
  void Trust(int64_t /*connection*/, size_t most_bytes) override { stream_.Trust(most_bytes); }
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

std::unique_ptr<Connections> grpc_module::Join(const NetAddress& address, const TlsTexts& tls) {
  RequireThreads();
  return std::make_unique<GrpcJoining>(address, tls);
}

}  // namespace lopt
