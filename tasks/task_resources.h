#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <typeindex>
#include <utility>

namespace lopt {

class Device;

// What tasks and estimators are made from besides their config: the data sets of a run, of any
// type, each loaded once and shared, the directory of data files, and the device that windows run
// on. Thread-safe.
class TaskResources {
 public:
  // `data_dir` may be empty: no files were given. Windows run on `device`; null: on the processor.
  explicit TaskResources(std::string data_dir, const Device* device = nullptr)
      : data_dir_(std::move(data_dir)), device_(device) {}

  // The data set of type Data called `name`, which must say all that `load` depends on. The first
  // call makes it, load() -> std::shared_ptr<const Data> (or what converts to it), and keeps it;
  // what load throws is passed on, and the next call loads again. Data sets of different types may
  // have one name. load may itself ask for other data sets. The torch module gets the caller's
  // object, and types are compared by their names, so what the program loaded the module finds, and
  // the reverse.
  template <class Data, class Load>
  std::shared_ptr<const Data> Get(const std::string& name, const Load& load) const {
    Slot& slot = SlotOf(typeid(Data), name);
    const std::lock_guard lock(slot.mutex);
    if (slot.data == nullptr) slot.data = std::shared_ptr<const Data>(load());
    return std::static_pointer_cast<const Data>(slot.data);
  }

  // The directory of data files, for a task that reads from it; empty: there is none.
  const std::string& UseDataDir() const;
  // Whether there is such a directory and a task has asked for it.
  bool data_dir_used() const;
  // Notes that a data set has been read from files: which one, such as "idx", and the CRC-32 of its
  // content, so that a run does not go on with other data in silence.
  void NoteData(const std::string& what, uint32_t checksum) const;
  // The sets that were noted, in the order of their names: "csv 0a1b2c3d, idx 4e5f6071"; empty: no
  // data come from files.
  std::string DataChecksums() const;

  // The device, for what runs windows on it; null: there is none.
  const Device* UseDevice() const;
  // Whether there is a device and something has asked for it.
  bool device_used() const { return device_used_; }

 private:
  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const void> data;
  };
  Slot& SlotOf(std::type_index type, const std::string& name) const;

  std::string data_dir_;
  const Device* device_;
  mutable std::mutex mutex_;  // of what follows; a slot's data has the slot's own
  mutable std::map<std::pair<std::type_index, std::string>, Slot> slots_;
  mutable bool data_dir_used_ = false;
  mutable std::set<std::pair<std::string, uint32_t>> data_;
  mutable std::atomic<bool> device_used_ = false;
};

}  // namespace lopt
