#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lopt/learner/elastic/frame_parts.h"
#include "tests/error_of.h"

namespace lopt {
namespace {

Frame Tell(int64_t lease, size_t bytes) {
  std::vector<std::byte> body(bytes);
  for (size_t i = 0; i < bytes; ++i) body[i] = static_cast<std::byte>(i % 251);
  return {.type = FrameType::kTell, .lease = lease, .kind = 3, .body = MakeBody(std::move(body))};
}

Frame Pulse(std::byte number) { return {.type = FrameType::kPulse, .body = MakeBody({number})}; }

// The frames that arrive, in order.
std::vector<Frame> Deliver(FrameSplitter* from, FrameJoiner* to, int parts = 1000) {
  std::vector<Frame> frames;
  for (int i = 0; i < parts && !from->Empty(); ++i) {
    const FramePiece part = from->Next();
    CHECK_LE(part.body.size(), kPartBytes);
    if (std::optional<Frame> frame = to->Add(part, 1 << 20)) frames.push_back(std::move(*frame));
  }
  return frames;
}

TEST_CASE("Frames of any size arrive whole, in the order sent") {
  FrameSplitter out;
  FrameJoiner in;
  const std::vector<size_t> sizes = {
      0, 1, kPartBytes - 1, kPartBytes, kPartBytes + 1, kPartBytes * 2, 0, kPartBytes * 5 + 7};
  for (size_t i = 0; i < sizes.size(); ++i) out.Add(Tell(static_cast<int64_t>(i), sizes[i]));
  const std::vector<Frame> frames = Deliver(&out, &in);
  REQUIRE_EQ(frames.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(frames[i].type == FrameType::kTell);
    CHECK_EQ(frames[i].lease, static_cast<int64_t>(i));
    CHECK_EQ(frames[i].kind, 3);
    CHECK(BytesOf(frames[i]) == BytesOf(Tell(0, sizes[i])));
  }
}

TEST_CASE("A sign of life overtakes a long frame under way, and only the last of them is sent") {
  FrameSplitter out;
  FrameJoiner in;
  out.Add(Tell(1, 5 * kPartBytes));
  CHECK(Deliver(&out, &in, 2).empty());
  CHECK_EQ(in.parts(), 2);
  for (const int number : {1, 2, 3}) out.Add(Pulse(std::byte(number)));
  const std::vector<Frame> next = Deliver(&out, &in, 1);
  REQUIRE_EQ(next.size(), 1);
  CHECK(BytesOf(next[0]) == std::vector<std::byte>{std::byte{3}});
  CHECK_EQ(in.parts(), 2);
  const std::vector<Frame> rest = Deliver(&out, &in);
  REQUIRE_EQ(rest.size(), 1);
  CHECK(BytesOf(rest[0]) == BytesOf(Tell(0, 5 * kPartBytes)));
}

TEST_CASE("Last words do not wait for what is under way, and nothing comes behind them") {
  for (const FrameType type : {FrameType::kEnd, FrameType::kRefused, FrameType::kFailed}) {
    FrameSplitter out;
    FrameJoiner in;
    out.Add(Tell(1, 5 * kPartBytes));
    out.Add(Tell(2, 10));
    CHECK(Deliver(&out, &in, 2).empty());
    out.Add(Pulse(std::byte{1}));
    out.Add({.type = type});
    out.Add(Pulse(std::byte{2}));
    out.Add(Tell(3, 10));
    const std::vector<Frame> frames = Deliver(&out, &in);
    REQUIRE_EQ(frames.size(), 1);
    CHECK(frames[0].type == type);
    CHECK(out.Empty());
  }
}

TEST_CASE("A long frame takes memory as its parts come, and never more than it may have") {
  const size_t most = 20 * kPartBytes;
  FrameSplitter out;
  FrameJoiner in;
  out.Add(Tell(1, most));
  for (size_t come = kPartBytes; come < most; come += kPartBytes) {
    CHECK(!in.Add(out.Next(), most));
    CHECK_LE(in.capacity(), std::min(2 * come, most));
  }
  const std::optional<Frame> frame = in.Add(out.Next(), most);
  REQUIRE(frame);
  CHECK(BytesOf(*frame) == BytesOf(Tell(0, most)));
  CHECK_EQ(in.capacity(), 0);
}

TEST_CASE("Frames that are too long, and urgent ones in parts, are errors") {
  FrameJoiner in;
  const std::vector<std::byte> body(60);
  const FramePiece part{.type = FrameType::kAnswer, .body = body, .goes_on = true};
  CHECK(!in.Add(part, 100));
  CHECK_EQ(ErrorOf([&] { in.Add(part, 100); }),
           "it sent a frame that is too long: it may have 100 bytes");
  const FramePiece pulse{.type = FrameType::kPulse, .body = body, .goes_on = true};
  CHECK_EQ(ErrorOf([&] { in.Add(pulse, 100); }), "it sent a frame of type 9 in several parts");
  FrameSplitter out;
  CHECK_EQ(ErrorOf([&] {
             out.Add({.type = FrameType::kFailed,
                      .body = MakeBody(std::vector<std::byte>(kPartBytes + 1))});
           }),
           "a frame of type 11 may have 61440 bytes, got 61441");
}

}  // namespace
}  // namespace lopt
