#include "lopt/learner/elastic/peer_log.h"

#include <spdlog/spdlog.h>

#include "lopt/base/utf8.h"

namespace lopt {
namespace {

// What is written in a second about processes that have not said the token, and about the others.
constexpr size_t kStrangersLogBytes = 4 << 10;
constexpr size_t kPeersLogBytes = 64 << 10;
constexpr size_t kMostLineBytes = 600;
constexpr size_t kMostShownNameBytes = 80;

}  // namespace

void PeerLog::Write(bool stranger, Tone tone, const std::string& line) {
  Share& share = stranger ? strangers_ : others_;
  const std::string plain = PeerLine(line);
  if (share.bytes + plain.size() > (stranger ? kStrangersLogBytes : kPeersLogBytes)) {
    ++share.left_out;
    return;
  }
  share.bytes += plain.size();
  tone == Tone::kInfo ? spdlog::info("{}", plain) : spdlog::warn("{}", plain);
}

void PeerLog::Tend(TimePoint now) {
  if (now - second_ < std::chrono::seconds(1)) {
    return;
  }
  second_ = now;
  const int64_t left_out = strangers_.left_out + others_.left_out;
  if (left_out > 0) {
    spdlog::warn("{} more lines like these are left out", left_out);
  }
  strangers_ = others_ = {};
}

std::string PeerLine(const std::string& text) { return PlainText(text, kMostLineBytes); }

std::string PeerName(const std::string& text) { return PlainText(text, kMostShownNameBytes); }

}  // namespace lopt
