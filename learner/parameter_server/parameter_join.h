#pragma once

#include <cstdint>
#include <string>

namespace lopt {

// The transports of servers and workers that are connected to each other by frames, as an elastic
// learner and its workers are (learner/elastic/frame.h), but with other contents:
//   kJoin     worker to server, first: ParameterJoin
//   kWelcome  server to worker: Welcome, whose config is empty
//   kAnswer   worker to server: a message of this kind
//   kTell     server to worker: the same
//   kPulse, kRefused

// Changes with anything below or in parameter_messages.h; none of kElasticProtocol.
inline constexpr int64_t kParameterProtocol = 1001;

// A protocol that another program may speak comes first.
struct ParameterJoin {
  int64_t protocol = kParameterProtocol;
  std::string token = {};
  int64_t worker = 0;
  int64_t workers = 0;  // how many there are, as this one knows it; servers likewise
  int64_t server = 0;   // whom it takes the other side for
  int64_t servers = 0;
  uint64_t digest = 0;  // ParameterModel::digest

  template <class Visitor>
  void VisitMembers(Visitor& visit) {
    visit("protocol", protocol);
    visit("token", token);
    visit("worker", worker);
    visit("workers", workers);
    visit("server", server);
    visit("servers", servers);
    visit("digest", digest);
  }
};

}  // namespace lopt
