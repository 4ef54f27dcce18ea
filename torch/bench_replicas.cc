// What it costs to compute a layer of n replicas, each with weights of its own, in one call or in n
// calls: bench_replicas. Forward pass and all gradients, us of CPU time for each replica, on one
// thread; the best of five.
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "lopt/torch/blas.h"
#include "lopt/torch/image_layers.h"
#include "lopt/torch/recurrent.h"

namespace lopt {
namespace {

using Tensors = std::vector<torch::Tensor>;

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Of one call, after one that is not counted.
double BestSeconds(const std::function<void()>& call) {
  double best = 0;
  call();
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double start = CpuSeconds();
    double calls = 0;
    do {
      call();
      ++calls;
    } while (CpuSeconds() - start < 0.1);
    const double seconds = (CpuSeconds() - start) / calls;
    best = repetition == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

// Tensors [n, ...] of normals that gradients are taken of.
Tensors Draw(int64_t n, const std::vector<Shape>& shapes) {
  Tensors tensors;
  for (Shape shape : shapes) {
    shape.insert(shape.begin(), n);
    tensors.push_back(0.1 * NormalTensor(FoldIn(KeyFromSeed(1), tensors.size()), shape));
  }
  return tensors;
}

// us for each replica of `layer`, a function of tensors [n, ...], given all rows or one by one.
double Measure(int64_t n, const Tensors& rows, bool together,
               const std::function<torch::Tensor(const Tensors&)>& layer) {
  const auto differentiate = [&](int64_t first, int64_t count) {
    Tensors leaves;
    for (const torch::Tensor& tensor : rows) {
      leaves.push_back(tensor.slice(0, first, first + count).detach().requires_grad_());
    }
    torch::autograd::grad({layer(leaves).sum()}, leaves);
  };
  const double seconds = BestSeconds([&] {
    if (together) {
      differentiate(0, n);
      return;
    }
    for (int64_t row = 0; row < n; ++row) differentiate(row, 1);
  });
  return 1e6 * seconds / static_cast<double>(n);
}

void BenchConvolutions() {
  struct ConvolutionShape {
    int64_t batch, channels, size, filters, kernel, stride;
  };
  for (const ConvolutionShape s : {ConvolutionShape{16, 1, 8, 16, 3, 2},
                                   {64, 1, 8, 16, 3, 2},
                                   {128, 3, 8, 16, 3, 2},
                                   {128, 16, 4, 32, 3, 1},
                                   {128, 32, 16, 64, 3, 1},
                                   {50, 16, 14, 32, 5, 1}}) {
    const int64_t out = (s.size + s.stride - 1) / s.stride;
    const double flops = 6e-6 * static_cast<double>(s.batch * out * out * s.filters * s.channels *
                                                    s.kernel * s.kernel);
    for (const int64_t n : {8, 32}) {
      const Tensors rows = Draw(n, {{s.batch, s.size * s.size * s.channels},
                                    {s.filters, s.channels, s.kernel, s.kernel},
                                    {s.filters}});
      const auto layer = [&](const Tensors& t) {
        return SameConvolution(SideBySide(t[0], s.size, s.size), {t[1], t[2]}, s.stride);
      };
      fmt::print(
          "| convolution {}x{}, stride {}, {} of {}x{}x{} to {} | {} | {:.1f} | {:.0f} | "
          "{:.0f} | |\n",
          s.kernel, s.kernel, s.stride, s.batch, s.size, s.size, s.channels, s.filters, n, flops,
          Measure(n, rows, true, layer), Measure(n, rows, false, layer));
    }
  }
}

void BenchRecurrent() {
  struct RecurrentShape {
    int64_t batch, time, inputs, hidden;
  };
  for (const RecurrentShape s : {RecurrentShape{16, 8, 8, 16},
                                 {64, 8, 8, 32},
                                 {128, 40, 1, 32},
                                 {128, 28, 28, 64},
                                 {128, 28, 28, 256}}) {
    const double flops =
        3e-6 * RecurrentFlops(RecurrentCell::kLstm, s.batch, s.time, s.inputs, s.hidden);
    const int64_t n = 8;
    const Tensors rows = Draw(n, {{4 * s.hidden, s.inputs},
                                  {4 * s.hidden, s.hidden},
                                  {4 * s.hidden},
                                  {4 * s.hidden},
                                  {s.batch, s.time, s.inputs}});
    const auto ours = [&](const Tensors& t) {
      return RunRecurrent(RecurrentCell::kLstm, t[4], torch::TensorList(t).slice(0, 4),
                          RecurrentZeros(RecurrentCell::kLstm, t[0].size(0), s.batch, s.hidden))
          .outputs;
    };
    const auto theirs = [&](const Tensors& t) {
      const torch::Tensor zeros = torch::zeros({1, s.batch, s.hidden});
      return std::get<0>(torch::lstm(t[4][0], {zeros, zeros}, {t[0][0], t[1][0], t[2][0], t[3][0]},
                                     /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0.0,
                                     /*train=*/true, /*bidirectional=*/false,
                                     /*batch_first=*/true));
    };
    fmt::print("| LSTM {}-{}, {} of {} steps | {} | {:.1f} | {:.0f} | {:.0f} | {:.0f} |\n",
               s.inputs, s.hidden, s.batch, s.time, n, flops, Measure(n, rows, true, ours),
               Measure(n, rows, false, ours), Measure(n, rows, false, theirs));
  }
}

}  // namespace
}  // namespace lopt

int main() {
  at::set_num_threads(1);
  lopt::KeepBlasOnOneThread();
  fmt::print("| layer | replicas | MFLOP | together, us | in turn, us | torch::lstm, us |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  lopt::BenchConvolutions();
  lopt::BenchRecurrent();
}
