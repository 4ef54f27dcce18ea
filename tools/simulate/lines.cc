#include "lopt/tools/simulate/lines.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "lopt/base/wakeup.h"

namespace lopt {

using LineEvent = Connections::Event;

struct Lines::Line {
  struct Arriving {
    SimTime at;
    LineEvent event;
  };
  int64_t number = 0;
  Process* worker = nullptr;
  std::deque<Arriving> to_learner = {};
  std::deque<Arriving> to_worker = {};
  bool closed = false;         // nothing is sent on it any more
  bool learner_knows = false;  // that it is closed
  Wakeup* wakeup = nullptr;    // of the worker
};

class Lines::LearnersEnd final : public Connections {
 public:
  explicit LearnersEnd(Lines* lines) : lines_(lines) {}
  ~LearnersEnd() override { NotifyOnEvent(nullptr); }

  std::string Description() const override { return "simulated connections"; }
  std::optional<Event> Poll() override {
    std::deque<Line::Arriving>* first = nullptr;
    for (const auto& line : lines_->lines_) {
      auto& queue = line->to_learner;
      if (queue.empty() || queue.front().at > lines_->world_->now()) continue;
      if (first == nullptr || queue.front().at < first->front().at) first = &queue;
    }
    if (first == nullptr || !lines_->learner_->Point()) {
      if (lines_->learner_->dead()) lines_->learner_->WaitOrDie(SimTime(0));
      return std::nullopt;
    }
    Event event = std::move(first->front().event);
    first->pop_front();
    if (event.what == Event::What::kClosed) LineOf(event.connection).learner_knows = true;
    return event;
  }
  void Send(int64_t connection, Frame frame) override {
    Line& line = LineOf(connection);
    if (!lines_->learner_->Point()) return;
    lines_->sent_to_the_gone_ += line.learner_knows ? 1 : 0;
    if (!line.closed) {
      lines_->Deliver(&line, false,
                      {.what = Event::What::kFrame, .connection = 1, .frame = std::move(frame)});
    }
  }
  void Trust(int64_t, size_t) override {}
  int64_t Arrived(int64_t) override { return 0; }
  void Close(int64_t connection) override {
    Line& line = LineOf(connection);
    line.learner_knows = true;
    line.to_learner.clear();
    if (std::exchange(line.closed, true)) return;
    lines_->Deliver(&line, false,
                    {.what = Event::What::kClosed, .connection = 1, .text = "the learner closes"});
  }
  bool Idle() const override {
    return std::ranges::all_of(lines_->lines_, [](const auto& line) { return line->closed; });
  }
  void NotifyOnEvent(Wakeup* wakeup) override { lines_->learners_wakeup_ = wakeup; }

 private:
  Line& LineOf(int64_t connection) { return *lines_->lines_[static_cast<size_t>(connection) - 1]; }

  Lines* lines_;
};

class Lines::WorkersEnd final : public Connections {
 public:
  WorkersEnd(Lines* lines, Line* line) : lines_(lines), line_(line) {}
  ~WorkersEnd() override {
    NotifyOnEvent(nullptr);
    Close(1);
  }

  std::string Description() const override { return "a simulated connection"; }
  std::optional<Event> Poll() override {
    auto& queue = line_->to_worker;
    const bool any = !queue.empty() && queue.front().at <= lines_->world_->now();
    if (!any || !line_->worker->Point()) {
      if (line_->worker->dead()) line_->worker->WaitOrDie(SimTime(0));
      return std::nullopt;
    }
    Event event = std::move(queue.front().event);
    queue.pop_front();
    return event;
  }
  void Send(int64_t, Frame frame) override {
    if (!line_->worker->Point() || line_->closed) return;
    lines_->Deliver(
        line_, true,
        {.what = Event::What::kFrame, .connection = line_->number, .frame = std::move(frame)});
  }
  void Trust(int64_t, size_t) override {}
  int64_t Arrived(int64_t) override { return 0; }
  void Close(int64_t) override {
    if (line_->worker->dead() || std::exchange(line_->closed, true)) return;
    lines_->Deliver(
        line_, true,
        {.what = Event::What::kClosed, .connection = line_->number, .text = "it has left"});
  }
  bool Idle() const override { return line_->closed; }
  void NotifyOnEvent(Wakeup* wakeup) override { line_->wakeup = wakeup; }

 private:
  Lines* lines_;
  Line* line_;
};

Lines::Lines(World* world, Process* learner, int delay_bits)
    : world_(world), learner_(learner), delay_bits_(delay_bits) {}

Lines::~Lines() = default;

std::unique_ptr<Connections> Lines::Listen() {
  listens_ = true;
  return std::make_unique<LearnersEnd>(this);
}

std::unique_ptr<Connections> Lines::Join(Process* worker) {
  lines_.push_back(std::make_unique<Line>());
  Line* const line = lines_.back().get();
  line->number = std::ssize(lines_);
  line->worker = worker;
  if (!listens_ || learner_->dead() || learner_->ended()) {
    line->closed = true;
    Deliver(line, false,
            {.what = LineEvent::What::kClosed, .connection = 1, .text = "nobody is there"});
  } else {
    Deliver(line, true,
            {.what = LineEvent::What::kOpened, .connection = line->number, .peer = worker->name()});
  }
  return std::make_unique<WorkersEnd>(this, line);
}

void Lines::Deliver(Line* line, bool to_learner, LineEvent event) {
  auto& queue = to_learner ? line->to_learner : line->to_worker;
  if (to_learner && line->learner_knows) return;
  SimTime at = world_->now() + SimTime(world_->random().AnySize(delay_bits_));
  if (!queue.empty()) at = std::max(at, queue.back().at);
  queue.push_back({.at = at, .event = std::move(event)});
  world_->At(at, [this, line, to_learner] {
    Wakeup* const wakeup = to_learner ? learners_wakeup_ : line->wakeup;
    if (wakeup != nullptr) wakeup->Notify();
  });
}

void Lines::Ended(const Process* process) {
  for (const auto& line : lines_) {
    const bool of_learner = process == learner_;
    if ((!of_learner && line->worker != process) || std::exchange(line->closed, true)) continue;
    Deliver(line.get(), !of_learner,
            {.what = LineEvent::What::kClosed,
             .connection = of_learner ? 1 : line->number,
             .text = "its process has ended"});
  }
}

}  // namespace lopt
