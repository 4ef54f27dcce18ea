#include "lopt/tools/simulate/world.h"

#include <algorithm>
#include <utility>

#include "lopt/tools/simulate/process.h"

namespace lopt {

World::Task* World::Start(Process* process, std::function<void()> body) {
  tasks_.push_back(std::unique_ptr<Task>(new Task(process, std::move(body))));
  tasks_.back()->wakes_ = now_;
  return tasks_.back().get();
}

void World::WaitUntil(SimTime time) {
  running_->wakes_ = time;
  running_->fiber_.Wait();
}

void World::WakeAt(Task* task, SimTime time) { task->wakes_ = std::min(task->wakes_, time); }

void World::Run(Task* task) {
  Task* const outer = std::exchange(running_, task);
  task->runs_ = true;
  {
    const InEnvironment inside(task->process_);
    task->fiber_.Resume();
  }
  task->runs_ = false;
  running_ = outer;
}

void World::Unwind(const Process* process) {
  for (size_t i = tasks_.size(); i-- > 0;) {
    Task* const task = tasks_[i].get();
    while (task->process_ == process && !task->runs_ && !task->finished()) Run(task);
  }
}

void World::At(SimTime time, std::function<void()> event) {
  events_.emplace(time, std::move(event));
}

bool World::Step() {
  ++steps_;
  std::erase_if(tasks_, [](const auto& task) { return task->finished(); });
  while (!events_.empty() && events_.begin()->first <= now_) {
    const std::function<void()> event = std::move(events_.extract(events_.begin()).mapped());
    event();
  }
  std::optional<SimTime> next;
  if (!events_.empty()) next = events_.begin()->first;
  int64_t ready = 0;
  for (const auto& task : tasks_) {
    ready += task->wakes_ <= now_ ? 1 : 0;
    next = std::min(next.value_or(task->wakes_), task->wakes_);
  }
  if (ready == 0) {
    if (!next) return false;
    now_ = *next;
    return true;
  }
  int64_t chosen = random_.Between(0, ready - 1);
  for (const auto& task : tasks_) {
    if (task->wakes_ <= now_ && chosen-- == 0) {
      Run(task.get());
      break;
    }
  }
  return true;
}

void World::Note(const std::string& line) {
  trace_ += fmt::format("{:14.6f}  {}\n", static_cast<double>(now_.count()) * 1e-6, line);
}

}  // namespace lopt
