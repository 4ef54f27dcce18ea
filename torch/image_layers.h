#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>

#include "lopt/base/key.h"
#include "lopt/torch/torch_task.h"

namespace lopt {

// Layers on images for n replicas, each with weights of its own; gradients by autograd. The images
// of n replicas lie side by side as channels, [batch, n channels, height, width], so that one
// convolution in n groups does for all of them; vectors are [n, batch, features].

// Images [n, batch, height width channels], channel last as ImageTensors::Images gives them, side
// by side; and the reverse, [n, batch, channels, height, width].
torch::Tensor SideBySide(const torch::Tensor& images, int64_t height, int64_t width);
torch::Tensor ByReplica(const torch::Tensor& images, int64_t n);

// A replica's weights, in torch's layouts with an n in front: [n, out, in], [n, out, in, height,
// width] and, transposed, [n, in, out, height, width].
struct ReplicaWeights {
  torch::Tensor weight;
  torch::Tensor bias;  // [n, out]
};

// x weight' + bias, [n, batch, out].
torch::Tensor Linear(const torch::Tensor& x, const ReplicaWeights& w);
// As torch::nn::Conv2d and torch::nn::ConvTranspose2d.
torch::Tensor Convolution(const torch::Tensor& images, const ReplicaWeights& w,
                          torch::IntArrayRef stride, torch::IntArrayRef padding);
// The same with padding "SAME" as SameWindow (tasks/image/image_conv_problem.h) defines it.
torch::Tensor SameConvolution(const torch::Tensor& images, const ReplicaWeights& w, int64_t stride);
torch::Tensor TransposedConvolution(const torch::Tensor& images, const ReplicaWeights& w,
                                    torch::IntArrayRef stride, torch::IntArrayRef padding,
                                    torch::IntArrayRef output_padding);

// Images [images, channels, height, width], each looked at through its own theta [images, 2, 3]:
// the pixel at (x, y) shows the image at theta (x, y, 1), bilinear, black outside. Coordinates are
// -1 to 1 from edge to edge of the image or, with align_corners, from the middle of the first pixel
// to that of the last.
torch::Tensor SampleAffine(const torch::Tensor& images, const torch::Tensor& theta,
                           bool align_corners);

// Adds name + "/weight" of this shape and name + "/bias" [out], as torch's modules draw them:
// uniform on +-1 / sqrt(numbers of weight[0]).
void AddLayer(const std::string& name, torch::IntArrayRef weight, int64_t out, Key key,
              NamedTensors* params);

}  // namespace lopt
