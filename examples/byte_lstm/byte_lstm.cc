// A torch task of one's own over data of one's own: an LSTM predicts the next byte of a text, that
// of the file given or a built-in one. A learned optimizer is trained for it by name in a config.
#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "lopt/learner/job/meta_trainer.h"
#include "lopt/tasks/registry.h"
#include "lopt/torch/recurrent.h"
#include "lopt/torch/torch_task.h"

constexpr const char* kText =
    "An optimizer makes better numbers of numbers. A learned optimizer has numbers of its own, and "
    "another optimizer makes these better: it is judged by how soon this text is learned. ";
constexpr int64_t kWindows = 4;  // of the text in a batch
constexpr auto kLstm = lopt::RecurrentCell::kLstm;

struct ByteLstmOptions {
  std::string file = "";
  int64_t hidden = 16;
  int64_t length = 12;
  void Visit(lopt::FieldVisitor& v) {
    v.Field("file", &file, "The text; empty: a built-in one.");
    v.Field("hidden", &hidden, lopt::AtLeast(1), "Width of the embedding and of the LSTM.");
    v.Field("length", &length, lopt::AtLeast(1), "Bytes that are predicted in a window.");
  }
};

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  lopt::Require(file.good(), "ByteLstm: cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<const lopt::TaskFamily> MakeByteLstm(const ByteLstmOptions& options) {
  const std::string text = options.file.empty() ? kText : ReadText(options.file);
  lopt::Require(std::ssize(text) > options.length, "ByteLstm: the text has {} bytes, wanted {}",
                text.size(), options.length + 1);
  const torch::Tensor bytes = torch::tensor(std::vector<int64_t>(text.begin(), text.end())) & 255;
  const auto last = static_cast<int32_t>(std::ssize(text) - options.length);
  const auto init = [=](lopt::Key key, const torch::Tensor&) {  // of one replica
    const int64_t h = options.hidden;
    lopt::NamedTensors params = RecurrentInit(kLstm, FoldIn(key, 0), "", h, h);
    params.emplace_back("embedding", lopt::NormalTensor(FoldIn(key, 1), {256, h}));
    params.emplace_back("out", lopt::NormalTensor(FoldIn(key, 2), {h, 256}) / std::sqrt(h));
    return lopt::TorchStart(params);
  };
  const auto loss = [=](const lopt::TorchEvaluation& e) -> lopt::TorchLoss {  // of n replicas
    const int64_t n = std::ssize(e.keys);
    const torch::Tensor starts = lopt::RandintTensor(e.keys, 0, last, {kWindows, 1});
    const torch::Tensor seen =  // [n, windows, length + 1]
        bytes.index({starts + torch::arange(options.length + 1)});
    const torch::Tensor replica = torch::arange(n).view({n, 1, 1});
    const torch::Tensor x = e.params[4].index({replica, seen.slice(2, 0, -1)});
    const lopt::RecurrentOutput run =
        RunRecurrent(kLstm, x, torch::ArrayRef(e.params).slice(0, lopt::kRecurrentWeights),
                     lopt::RecurrentZeros(kLstm, n, kWindows, options.hidden));
    const torch::Tensor logits = torch::matmul(run.outputs.flatten(1, 2), e.params[5]);
    return -logits.log_softmax(2).gather(2, seen.slice(2, 1).reshape({n, -1, 1})).mean({1, 2});
  };
  return std::make_shared<lopt::TorchTaskFamily>(init, loss);
}

int main(int argc, char** argv) {
  lopt::TaskRegistry().Add<ByteLstmOptions>(
      "ByteLstm", "An LSTM over the bytes of a text.",
      [](const ByteLstmOptions& options, const auto&) { return MakeByteLstm(options); });
  lopt::Config text = lopt::Config::Parse(
      R"({"learned_optimizer": {"type": "LearnableAdam", "learning_rate": 1e-3}, "meta_steps": 40,
          "theta_opt": {"type": "Adam", "learning_rate": 0.1},
          "estimators": [{"type": "TruncatedPES", "num_tasks": 4, "trunc_length": 10, "std": 0.1,
                          "task": {"type": "ByteLstm"}, "random_initial_iteration_offset": 50,
                          "lengths": {"type": "ConstantTruncationSchedule",
                                       "total_length": 50}}]})",
      "byte_lstm.cc");
  if (argc > 1) text = text.With("estimators.0.task.file", argv[1]);
  const auto config = lopt::ReadOptions<lopt::MetaTrainConfig>(text);
  lopt::MetaTrainerOptions options;
  double first = 0;
  options.on_step = [&](const lopt::MetaTrainProgress& p) {
    if (p.updates == 1) first = p.summary->mean_loss;
    if (p.updates % 10 == 0)
      fmt::print("update {}: loss {:.3f}\n", p.updates, p.summary->mean_loss);
  };
  return RunMetaTraining(config, options).last.mean_loss < 0.7 * first ? 0 : 1;
}
