// A language model of bytes whose parameters are on servers, of which each has a part of the table
// of embeddings:
//   mpiexec -n 4 parameter_server      2 servers and 2 workers
//   mpiexec -n 3 parameter_server 1    1 server and 2 workers
//   parameter_server                   2 servers and 2 workers in one process
// Over gRPC each process is started by itself, here or elsewhere:
//   parameter_server server 0 127.0.0.1:4711
//   parameter_server server 1 127.0.0.1:4712
//   parameter_server worker 0 127.0.0.1:4711 127.0.0.1:4712
//   parameter_server worker 1 127.0.0.1:4711 127.0.0.1:4712
// The bits are the same.
#include "lopt/learner/parameter_server/parameter_server.h"

#include <fmt/core.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lopt/base/error.h"
#include "lopt/base/key.h"

namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::string_view kText =
    "A server keeps a part of the model and a worker keeps none of it. The worker asks for the "
    "rows that its batch needs, computes how the loss would change with them, and sends that back "
    "to where the rows came from. The server adds up what the workers send, makes one step, and "
    "tells them that it has. No process ever holds the whole table, so the table may be larger "
    "than the memory of any of them. A row that nobody has asked for does not exist, and when it "
    "is first asked for it begins as it would have begun on any other server. ";
constexpr int kContext = 3;  // the bytes before the one to be guessed
constexpr int kBytes = 256;
constexpr int kWidth = 8;
constexpr int kInputs = kContext * kWidth;
constexpr int kWorkers = 2;
constexpr int kBatch = 32;  // of a worker
constexpr int kSteps = 60;

lopt::ParameterServerOptions Options(int64_t servers) {
  return {.variables = {{.name = "logits/w", .shape = {kInputs, kBytes}},
                        {.name = "logits/b", .shape = {kBytes}}},
          // A byte has a vector for each of its places in the context.
          .layers = {{.name = "bytes", .width = kWidth, .ids = kContext * kBytes}},
          .optimizer = lopt::Config::Parse(R"({"type": "Adam", "learning_rate": 0.03})", "example"),
          .key = lopt::KeyFromSeed(1),
          .servers = servers,
          .grads_to_wait = kWorkers,
          .staleness = 0};
}

// The rows of the table for the bytes before each of these places in the text.
std::vector<int64_t> IdsBefore(std::span<const int32_t> places) {
  std::vector<int64_t> ids;
  for (const int32_t place : places) {
    for (int i = 0; i < kContext; ++i) {
      const auto byte =
          static_cast<unsigned char>(kText[static_cast<size_t>(place + i - kContext)]);
      ids.push_back(i * kBytes + byte);
    }
  }
  return ids;
}

// The mean loss of guessing the bytes at these places, in nats, and its gradients.
double Loss(std::span<const int32_t> places, const lopt::NamedArrays& variables,
            const lopt::Array& vectors, lopt::ParameterGradients* gradients) {
  const auto n = static_cast<Eigen::Index>(places.size());
  const Eigen::Map<const Matrix> inputs(vectors.As<float>().data(), n, kInputs);
  const Eigen::Map<const Matrix> w(variables.At("logits/w").As<float>().data(), kInputs, kBytes);
  const Eigen::Map<const Eigen::RowVectorXf> b(variables.At("logits/b").As<float>().data(), kBytes);
  Matrix slopes = (inputs * w).rowwise() + b;  // logits, then d loss / d logits
  double loss = 0;
  for (Eigen::Index i = 0; i < n; ++i) {
    auto row = slopes.row(i);
    const auto target = static_cast<unsigned char>(kText[static_cast<size_t>(places[i])]);
    row = (row.array() - row.maxCoeff()).exp();
    row /= row.sum();
    loss -= std::log(row[target]) / static_cast<double>(n);
    row[target] -= 1;
  }
  slopes /= static_cast<float>(n);
  const Matrix by_w = inputs.transpose() * slopes;
  const Eigen::RowVectorXf by_b = slopes.colwise().sum();
  const Matrix by_inputs = slopes * w.transpose();
  gradients->dense.Set(
      "logits/w",
      lopt::Array::Of<float>({kInputs, kBytes}, {by_w.data(), by_w.data() + by_w.size()}));
  gradients->dense.Set("logits/b",
                       lopt::Array::Of<float>({kBytes}, {by_b.data(), by_b.data() + by_b.size()}));
  gradients->sparse = {{.layer = "bytes",
                        .ids = IdsBefore(places),
                        .rows = {by_inputs.data(), by_inputs.data() + by_inputs.size()}}};
  return loss;
}

double LossOfText(lopt::ParameterClient& client) {
  std::vector<int32_t> places(kText.size() - kContext);
  std::iota(places.begin(), places.end(), kContext);
  lopt::ParameterGradients unused;
  return Loss(places, client.PullVariables().values,
              client.PullEmbeddingVectors("bytes", IdsBefore(places)), &unused);
}

void Train(lopt::ParameterClient& client, bool report) {
  const lopt::Key key = lopt::FoldIn(lopt::KeyFromSeed(2), static_cast<uint64_t>(client.worker()));
  for (uint64_t step = 0; step < kSteps; ++step) {
    std::vector<int32_t> places(kBatch);
    lopt::Randint(lopt::FoldIn(key, step), kContext, static_cast<int32_t>(kText.size()), places);
    const lopt::PulledVariables pulled = client.PullVariables();
    const lopt::Array vectors = client.PullEmbeddingVectors("bytes", IdsBefore(places));
    lopt::ParameterGradients gradients;
    const double loss = Loss(places, pulled.values, vectors, &gradients);
    const lopt::PushResult pushed = client.PushGradients(gradients, pulled.versions);
    lopt::Require(pushed.refused.empty(), "{}", pushed.refused);
    if (report && client.worker() == 0 && step % 20 == 0) {
      fmt::print("step {:2}: loss of the batch {:.3f}\n", step, loss);
    }
  }
}

// The whole model, as the workers left it.
lopt::NamedArrays Model(lopt::ParameterClient& client) {
  lopt::NamedArrays model = client.PullVariables().values;
  std::vector<int64_t> ids(kContext * kBytes);
  std::iota(ids.begin(), ids.end(), 0);
  model.Set("bytes", client.PullEmbeddingVectors("bytes", ids));
  return model;
}

// The same training with one server, in this process.
lopt::NamedArrays ModelOfOneProcess() {
  lopt::NamedArrays model;
  lopt::RunParameterJob(Options(1), {.workers = kWorkers, .in_one_process = true},
                        [&](lopt::ParameterClient& client) {
                          Train(client, false);
                          if (client.worker() == 0) model = Model(client);
                        });
  return model;
}

// What the words after the program's name say of gRPC; none: nothing.
std::optional<lopt::ParameterNetwork> NetworkOf(const std::vector<std::string>& words) {
  if (words.size() < 2) return std::nullopt;
  lopt::Require(words.size() >= 3, "wanted server N ADDRESS, or worker N ADDRESS...");
  const int number = std::atoi(words[1].c_str());
  if (words[0] == "worker") {
    return lopt::ParameterNetwork{.worker = number, .servers = {words.begin() + 2, words.end()}};
  }
  lopt::Require(words[0] == "server", "'{}' is neither server nor worker", words[0]);
  return lopt::ParameterNetwork{
      .server = number, .listen = words[2], .on_listening = [number](const std::string& address) {
        fmt::print("server {} listens at {}\n", number, address);
        std::fflush(stdout);
      }};
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::optional<lopt::ParameterNetwork> network = NetworkOf({argv + 1, argv + argc});
    const int64_t servers = argc == 2 ? std::atoi(argv[1]) : 2;
    return lopt::RunParameterJob(
        Options(servers), {.workers = kWorkers, .network = network},
        [&](lopt::ParameterClient& client) {
          const double before = client.worker() == 0 ? LossOfText(client) : 0;
          Train(client, true);
          if (client.worker() != 0) return;
          const double after = LossOfText(client);
          fmt::print("servers {}, workers {}: loss of the text {:.3f}, then {:.3f}\n", servers,
                     client.workers(), before, after);
          lopt::Require(after < before - 2, "the loss has not fallen enough");
          lopt::Require(Model(client) == ModelOfOneProcess(), "one process has another model");
          fmt::print("one process has the same model\n");
        });
  } catch (const lopt::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
