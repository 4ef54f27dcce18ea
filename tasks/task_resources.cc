#include "lopt/tasks/task_resources.h"

#include <fmt/core.h>

namespace lopt {

const std::string& TaskResources::UseDataDir() const {
  const std::lock_guard lock(mutex_);
  data_dir_used_ = !data_dir_.empty();
  return data_dir_;
}

bool TaskResources::data_dir_used() const {
  const std::lock_guard lock(mutex_);
  return data_dir_used_;
}

void TaskResources::NoteData(const std::string& what, uint32_t checksum) const {
  const std::lock_guard lock(mutex_);
  data_.emplace(what, checksum);
}

std::string TaskResources::DataChecksums() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [what, checksum] : data_) {
    text += fmt::format("{}{} {:08x}", text.empty() ? "" : ", ", what, checksum);
  }
  return text;
}

const Device* TaskResources::UseDevice() const {
  device_used_ = device_ != nullptr;
  return device_;
}

TaskResources::Slot& TaskResources::SlotOf(std::type_index type, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return slots_[{type, name}];
}

}  // namespace lopt
