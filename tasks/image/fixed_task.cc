#include "lopt/tasks/image/fixed_task.h"

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "lopt/base/error.h"
#include "lopt/base/option_words.h"
#include "lopt/base/options.h"
#include "lopt/tasks/data/idx.h"
#include "lopt/tasks/registry.h"

namespace lopt {
namespace {

struct FixedTaskEntry {
  const char* name;
  const char* data;    // what the directory must hold
  const char* config;  // what it stands for
};

constexpr FixedTaskEntry kFixedTasks[] = {
    {"ImageMLP_FashionMnist8_Relu32", "FashionMNIST",
     R"({"type": "ImageMLP", "data": "idx", "image_size": 8, "hidden": [32]})"},
    {"ImageMLP_FashionMnist_Relu128x128", "FashionMNIST",
     R"({"type": "ImageMLP", "data": "idx", "image_size": 28, "hidden": [128, 128]})"},
    {"ImageMLP_Mnist_128x128x128_Relu", "MNIST",
     R"({"type": "ImageMLP", "data": "idx", "image_size": 28, "hidden": [128, 128, 128]})"},
    // Grey is luma here; there it is the mean of the channels.
    {"ImageMLP_Cifar10BW8_Relu32", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 8, "image_channels": 1,
         "hidden": [32]})"},
    {"ImageMLP_Cifar10_8_Relu32", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 8, "hidden": [32]})"},
    {"ImageMLP_Cifar10_128x128x128_Relu", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128]})"},
    {"ImageMLP_Cifar10_128x128x128_Tanh_bs64", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "activation": "tanh", "batch_size": 64})"},
    {"ImageMLP_Cifar10_128x128x128_Tanh_bs128", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "activation": "tanh"})"},
    {"ImageMLP_Cifar10_128x128x128_Tanh_bs256", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "activation": "tanh", "batch_size": 256})"},
    {"ImageMLP_Cifar10_128x128x128_LayerNorm_Relu", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "norm": "layer"})"},
    {"ImageMLP_Cifar10_128x128x128_LayerNorm_Tanh", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "norm": "layer", "activation": "tanh"})"},
    {"ImageMLP_Cifar10_128x128x128_BatchNorm_Relu", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "norm": "batch"})"},
    {"ImageMLP_Cifar10_128x128x128_BatchNorm_Tanh", "CIFAR-10",
     R"({"type": "ImageMLP", "data": "cifar10", "image_size": 32, "hidden": [128, 128, 128],
         "norm": "batch", "activation": "tanh"})"},
    {"ImageMLP_Cifar100_128x128x128_Relu", "CIFAR-100",
     R"({"type": "ImageMLP", "data": "cifar100", "image_size": 32, "hidden": [128, 128, 128]})"},
    {"Conv_Cifar10_8_16x32", "CIFAR-10",
     R"({"type": "ImageConv", "data": "cifar10", "image_size": 8})"},
    {"Conv_Cifar10_16_32x64x64", "CIFAR-10",
     R"({"type": "ImageConv", "data": "cifar10", "image_size": 16, "channels": [32, 64, 64]})"},
    {"Conv_Cifar10_32x64x64", "CIFAR-10",
     R"({"type": "ImageConv", "data": "cifar10", "image_size": 32, "channels": [32, 64, 64]})"},
    {"Conv_Cifar10_32x64x64_Tanh", "CIFAR-10",
     R"({"type": "ImageConv", "data": "cifar10", "image_size": 32, "channels": [32, 64, 64],
         "activation": "tanh"})"},
    {"Conv_Cifar100_32x64x64", "CIFAR-100",
     R"({"type": "ImageConv", "data": "cifar100", "image_size": 32, "channels": [32, 64, 64]})"},
    {"ImageMLPAE_Mnist_128x32x128_bs128", "MNIST",
     R"({"type": "ImageAutoencoder", "data": "idx", "image_size": 28, "hidden": [128, 32, 128]})"},
    {"ImageMLPAE_FashionMnist_128x32x128_bs128", "FashionMNIST",
     R"({"type": "ImageAutoencoder", "data": "idx", "image_size": 28, "hidden": [128, 32, 128]})"},
    {"ImageMLPAE_Cifar10_32x32x32_bs128", "CIFAR-10",
     R"({"type": "ImageAutoencoder", "data": "cifar10", "image_size": 32,
         "hidden": [32, 32, 32]})"},
    {"ImageMLPAE_Cifar10_128x32x128_bs256", "CIFAR-10",
     R"({"type": "ImageAutoencoder", "data": "cifar10", "image_size": 32,
         "hidden": [128, 32, 128], "batch_size": 256})"},
    {"ImageMLPAE_Cifar10_256x256x256_bs128", "CIFAR-10",
     R"({"type": "ImageAutoencoder", "data": "cifar10", "image_size": 32,
         "hidden": [256, 256, 256]})"},
    {"ImageMLPAE_Cifar10_256x256x256_bs1024", "CIFAR-10",
     R"({"type": "ImageAutoencoder", "data": "cifar10", "image_size": 32,
         "hidden": [256, 256, 256], "batch_size": 1024})"},
};

struct FixedTaskNames {
  Named<FixedTask> entries[std::size(kFixedTasks)] = {};
};

consteval FixedTaskNames MakeFixedTaskNames() {
  FixedTaskNames names;
  for (size_t i = 0; i < std::size(kFixedTasks); ++i) {
    names.entries[i] = {static_cast<FixedTask>(i), kFixedTasks[i].name};
  }
  return names;
}

constexpr FixedTaskNames kFixedTaskNames = MakeFixedTaskNames();

const FixedTaskEntry& EntryOf(const FixedTaskOptions& options) {
  return kFixedTasks[static_cast<size_t>(CheckOptions("FixedTask", options).name)];
}

Config ConfigOf(const FixedTaskEntry& entry) { return Config::Parse(entry.config, entry.name); }

}  // namespace

void FixedTaskOptions::Visit(FieldVisitor& v) {
  v.Choice("name", &name, kFixedTaskNames.entries, "Which one, as it is called there.");
}

Config StandsFor(const Config& task) {
  return task.Type() == "FixedTask" ? ConfigOf(EntryOf(ReadOptions<FixedTaskOptions>(task))) : task;
}

std::string TaskLabel(const Config& task) {
  return task.Type() == "FixedTask" ? EntryOf(ReadOptions<FixedTaskOptions>(task)).name
                                    : task.Type();
}

std::shared_ptr<const TaskFamily> MakeFixedTask(const FixedTaskOptions& options,
                                                const TaskResources& resources) {
  const FixedTaskEntry& entry = EntryOf(options);
  const std::string& directory = resources.UseDataDir();
  Require(!directory.empty(), "FixedTask: {} trains on {}, which is read from a directory ({})",
          entry.name, entry.data, KeyWords("data_dir"));
  if (std::string_view(entry.data).ends_with("MNIST")) {
    const std::string found = NameOfIdxSet(directory);
    Require(
        found.empty() || found == entry.data,
        "FixedTask: {} trains on {}, but the files in {} are those of {}, by their first labels",
        entry.name, entry.data, directory, found);
  }
  return TaskRegistry().Make(ConfigOf(entry), resources);
}

}  // namespace lopt
