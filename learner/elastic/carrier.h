#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/wakeup.h"
#include "lopt/learner/elastic/connections.h"

namespace lopt {

// One side of connections whose frames something else carries, such as calls of Ray: it takes
// bytes here and hands them in on the other side. For any thread.
class Carrier {
 public:
  // What is to be done for a connection.
  struct Errand {
    int64_t connection = 0;
    // To be handed in on the other side. None: the connection is to be ended.
    std::optional<std::vector<std::byte>> frame = {};
  };

  // `description`: what carries, for the log ("Ray 2.60.0").
  explicit Carrier(std::string description) : description_(std::move(description)) {}
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // Opens a connection to `peer`, as people call it, and returns its number, from 1 on.
  int64_t Open(const std::string& peer);
  // A frame of the connection has come, as Take gave it on the other side. One that is damaged or
  // too long ends the connection. Nothing comes of it if the connection has gone.
  void HandIn(int64_t connection, std::span<const std::byte> frame);
  // The connection has ended, `why` is for the log. Nothing comes of it if it has gone.
  void End(int64_t connection, const std::string& why);
  // Whoever uses the connections gets an Error of this text. Nothing comes of it once a worker was
  // told how the job has ended.
  void Fail(const std::string& why);

  // The errands that have come up, in order; waits for the first. None: no more will come.
  std::vector<Errand> Take();
  // No more errands come up: Take returns.
  void Close();

 private:
  friend class CarriedConnections;

  void Put(Connections::Event event);
  void Forget(int64_t connection);
  void AddErrand(Errand errand);

  const std::string description_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  int64_t opened_ = 0;
  std::map<int64_t, size_t> open_;  // the most bytes of a frame
  std::deque<Connections::Event> events_;
  std::deque<Errand> errands_;
  std::optional<std::string> failure_;
  bool ending_ = false;  // a worker was told how the job has ended
  bool closed_ = false;
  Wakeup* wakeup_ = nullptr;
};

// The connections of workers that the carrier opens. Their end closes it.
std::unique_ptr<Connections> ListenCarried(std::shared_ptr<Carrier> carrier);

// One connection, number 1, to a learner: open from the beginning. Its end closes the carrier.
// Throws Error if the carrier has opened one before.
std::unique_ptr<Connections> JoinCarried(std::shared_ptr<Carrier> carrier);

}  // namespace lopt
