#include "learner/job/messages.h"

#include <utility>

#include "base/eigen.h"
#include "learner/job/wire.h"

namespace lopt {
namespace {

void Put(WireWriter* out, const Eigen::VectorXf& row) {
  out->Numbers(std::span<const float>(row.data(), static_cast<size_t>(row.size())));
}

Eigen::VectorXf RowFrom(WireReader* in) {
  Eigen::VectorXf row(static_cast<Eigen::Index>(in->Count<float>()));
  in->Into(std::span<float>(row.data(), static_cast<size_t>(row.size())));
  return row;
}

void Put(WireWriter* out, const StepCounts& counts) {
  out->Number(counts.inner_steps);
  out->Number(counts.non_finite);
  out->Number(counts.episodes_ended);
}

StepCounts CountsFrom(WireReader* in) {
  StepCounts counts;
  counts.inner_steps = in->Number<int64_t>();
  counts.non_finite = in->Number<int64_t>();
  counts.episodes_ended = in->Number<int64_t>();
  return counts;
}

void Put(WireWriter* out, const EstimatorReport& report) {
  out->Number(report.mean_loss);
  out->Number(report.gradient_norm);
  Put(out, report.counts);
  out->Number<uint64_t>(report.metrics.size());
  for (const auto& [name, value] : report.metrics) {
    out->Text(name);
    out->Number(value);
  }
}

EstimatorReport ReportFrom(WireReader* in) {
  EstimatorReport report;
  report.mean_loss = in->Number<double>();
  report.gradient_norm = in->Number<double>();
  report.counts = CountsFrom(in);
  for (auto left = in->Number<uint64_t>(); left > 0; --left) {
    std::string name = in->Text();
    report.metrics.emplace_hint(report.metrics.end(), std::move(name), in->Number<double>());
  }
  return report;
}

}  // namespace

std::vector<std::byte> ToWire(const Hello& hello) {
  WireWriter out;
  out.Text(hello.host);
  out.Number(hello.pid);
  out.Text(hello.version);
  out.Text(hello.isa);
  out.Text(hello.config);
  return out.Take();
}

Hello HelloFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  Hello hello;
  hello.host = in.Text();
  hello.pid = in.Number<int64_t>();
  hello.version = in.Text();
  hello.isa = in.Text();
  hello.config = in.Text();
  return hello;
}

std::vector<std::byte> ToWire(const Heartbeat& heartbeat) {
  WireWriter out;
  out.Text(heartbeat.host);
  out.Number(heartbeat.updates);
  return out.Take();
}

Heartbeat HeartbeatFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  Heartbeat heartbeat;
  heartbeat.host = in.Text();
  heartbeat.updates = in.Number<int64_t>();
  return heartbeat;
}

std::vector<std::byte> ToWire(const WorkerWeights& weights) {
  WireWriter out;
  out.Number(weights.outer.outer_step);
  Put(&out, weights.theta);
  return out.Take();
}

WorkerWeights WeightsFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  WorkerWeights weights;
  weights.outer.outer_step = in.Number<int64_t>();
  weights.theta = RowFrom(&in);
  return weights;
}

std::vector<std::byte> ToWire(const WorkerFile& file) {
  WireWriter out;
  out.Number(file.worker);
  out.Bytes(file.bytes);
  return out.Take();
}

WorkerFile WorkerFileFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  WorkerFile file;
  file.worker = in.Number<int64_t>();
  file.bytes = in.Bytes();
  return file;
}

std::vector<std::byte> ToWire(std::span<const WorkerGradient> gradients) {
  WireWriter out;
  out.Number<uint64_t>(gradients.size());
  for (const WorkerGradient& from : gradients) {
    out.Number(from.worker);
    out.Number(from.first_window);
    out.Number(from.windows);
    const AggregatedGradient& gradient = from.gradient;
    out.Number(gradient.outer_step);
    Put(&out, gradient.gradient);
    out.Number(gradient.mean_loss);
    Put(&out, gradient.counts);
    out.Number<uint64_t>(gradient.estimators.size());
    for (const EstimatorReport& report : gradient.estimators) {
      Put(&out, report);
    }
  }
  return out.Take();
}

std::vector<WorkerGradient> GradientsFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  std::vector<WorkerGradient> gradients;
  for (auto left = in.Number<uint64_t>(); left > 0; --left) {
    WorkerGradient& to = gradients.emplace_back();
    to.worker = in.Number<int64_t>();
    to.first_window = in.Number<int64_t>();
    to.windows = in.Number<int64_t>();
    AggregatedGradient& gradient = to.gradient;
    gradient.outer_step = in.Number<int64_t>();
    gradient.gradient = RowFrom(&in);
    gradient.mean_loss = in.Number<double>();
    gradient.counts = CountsFrom(&in);
    for (auto estimators = in.Number<uint64_t>(); estimators > 0; --estimators) {
      gradient.estimators.push_back(ReportFrom(&in));
    }
  }
  return gradients;
}

std::vector<std::byte> ToWire(const SaveRequest& request) {
  WireWriter out;
  out.Number(static_cast<int>(request.what));
  out.Number(request.last);
  out.Number(request.outer_step);
  out.Text(request.directory);
  return out.Take();
}

SaveRequest SaveRequestFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  SaveRequest request;
  request.what = static_cast<SaveRequest::What>(in.Number<int>());
  request.last = in.Number<bool>();
  request.outer_step = in.Number<int64_t>();
  request.directory = in.Text();
  return request;
}

std::vector<std::byte> ToWire(std::span<const SavedWorker> saved) {
  WireWriter out;
  out.Number<uint64_t>(saved.size());
  for (const SavedWorker& worker : saved) {
    out.Number(worker.worker);
    out.Number(worker.windows);
    out.Text(worker.file.name);
    out.Number(worker.file.bytes);
    out.Number(worker.file.crc32);
    out.Bytes(worker.bytes);
  }
  return out.Take();
}

std::vector<SavedWorker> SavedFromWire(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  std::vector<SavedWorker> saved;
  for (auto left = in.Number<uint64_t>(); left > 0; --left) {
    SavedWorker& worker = saved.emplace_back();
    worker.worker = in.Number<int64_t>();
    worker.windows = in.Number<int64_t>();
    worker.file.name = in.Text();
    worker.file.bytes = in.Number<uint64_t>();
    worker.file.crc32 = in.Number<uint32_t>();
    worker.bytes = in.Bytes();
  }
  return saved;
}

std::vector<std::byte> ToWire(const std::string& text) {
  WireWriter out;
  out.Text(text);
  return out.Take();
}

std::string TextFromWire(std::span<const std::byte> bytes) { return WireReader(bytes).Text(); }

}  // namespace lopt
