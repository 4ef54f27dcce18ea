// A message of a job, of the kind that its first byte says.
#include <utility>

#include "lopt/learner/elastic/frame.h"
#include "lopt/learner/gradient_learner.h"
#include "lopt/learner/job/hello.h"
#include "lopt/learner/job/messages.h"
#include "lopt/learner/job/wire.h"
#include "tests/fuzz/fuzz.h"

namespace lopt {
namespace {

const Hello& MyHello() {
  static const Hello hello = {.host = "here",
                              .pid = 5,
                              .version = "v",
                              .isa = "avx2",
                              .device = "cpu",
                              .config = R"({"a": {"b": [1, 2]}})"};
  return hello;
}

// A message that was read is written and read again; the bytes need not be the same, since a map
// may come in any order.
template <class T>
void ReadMessage(std::string_view bytes) {
  ToWire(FromWire<T>(ToWire(FromWire<T>(AsBytes(bytes)))));
}

void ReadHello(std::string_view bytes) {
  CompareHellos(MyHello(), "another", FromWire<Hello>(AsBytes(bytes)), true);
}

constexpr void (*kReaders[])(std::string_view) = {ReadHello,
                                                  ReadMessage<Heartbeat>,
                                                  ReadMessage<std::string>,
                                                  ReadMessage<WorkerWeights>,
                                                  ReadMessage<WorkersFile>,
                                                  ReadMessage<std::vector<WorkerGradient>>,
                                                  ReadMessage<SaveRequest>,
                                                  ReadMessage<std::vector<SavedFile>>,
                                                  ReadMessage<JoinRequest>,
                                                  ReadMessage<Welcome>,
                                                  ReadMessage<Equipment>,
                                                  ReadMessage<LeasedBlock>};

void ReadWire(std::string_view input) {
  if (input.empty()) return;
  kReaders[static_cast<unsigned char>(input[0]) % std::size(kReaders)](input.substr(1));
}

std::vector<std::string> WireSeeds() {
  std::vector<std::string> seeds;
  const auto add = [&](const auto& message) {
    seeds.push_back(static_cast<char>(seeds.size()) + AsText(ToWire(message)));
  };
  const std::vector<std::byte> some(5, std::byte{7});
  WorkerGradient gradient{.worker = 3, .first_window = 8, .windows = 2};
  gradient.gradient.gradient = Eigen::VectorXf::LinSpaced(5, -1, 1);
  gradient.gradient.estimators = {{.mean_loss = 0.1, .metrics = {{"a", -0.0}, {{"b", {0, 9}}, 1}}},
                                  {}};
  Hello other = MyHello();
  other.isa = "sse4";
  add(other);
  add(Heartbeat{.host = "h", .updates = 4});
  add(std::string("finished"));
  add(WorkerWeights{.theta = Eigen::VectorXf::Constant(3, 0.5F), .outer = {.outer_step = 9}});
  add(WorkersFile{.first = 2, .count = 4, .bytes = some});
  add(std::vector{gradient, gradient});
  add(SaveRequest{.directory = "d"});
  add(std::vector{SavedFile{.file = {.name = "n", .bytes = 5, .crc32 = 6}, .bytes = some}});
  add(JoinRequest{.version = "v"});
  add(Welcome{.config = "{}", .timeout_seconds = 60});
  add(Equipment{.hello = MyHello(), .threads = 2});
  add(LeasedBlock{.first = 1, .count = 1});
  return seeds;
}

const AddFuzzTarget wire_target({"learner_wire", ReadWire, WireSeeds});

}  // namespace
}  // namespace lopt
