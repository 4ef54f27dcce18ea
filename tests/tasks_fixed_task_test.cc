#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lopt/base/config.h"
#include "lopt/base/describe_fields.h"
#include "lopt/tasks/image/fixed_task.h"
#include "lopt/tasks/image/image_task.h"
#include "lopt/tasks/registry.h"
#include "tests/error_of.h"
#include "tests/temp_directory.h"

namespace lopt {
namespace {

Config Named(const std::string& name) {
  return Config::Parse(R"({"type": "FixedTask"})", "test").With("name", name);
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Files as the sites of MNIST, CIFAR-10 and CIFAR-100 have them, with an image or more of each
// class: image i of label i % classes has the pixels i, 3 i, 5 i...
class DataSets {
 public:
  DataSets() {
    const std::string size28 = Number(28) + Number(28);
    for (const std::string set : {"train", "t10k"}) {
      WriteFile(directory_ / (set + "-images-idx3-ubyte"),
                Number(0x803) + Number(30) + size28 + Records({}, 30, 784));
      WriteFile(directory_ / (set + "-labels-idx1-ubyte"),
                Number(0x801) + Number(30) + Records({10}, 30, 0));
    }
    const std::string ten = Records({10}, 30, 3072);
    for (int file = 1; file <= 5; ++file) {
      WriteFile(directory_ / fmt::format("data_batch_{}.bin", file), ten);
    }
    WriteFile(directory_ / "test_batch.bin", ten);
    for (const char* file : {"train.bin", "test.bin"}) {
      WriteFile(directory_ / file, Records({20, 100}, 130, 3072));
    }
  }

  const std::string& path() const { return directory_.path(); }
  // Lets the labels of "train" or "t10k" begin with these digits.
  void Begin(const std::string& set, const std::string& digits) const {
    const std::string path = directory_ / (set + "-labels-idx1-ubyte");
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(8);
    for (const char digit : digits) file.put(static_cast<char>(digit - '0'));
  }

 private:
  static std::string Number(uint32_t number) {
    return {static_cast<char>(number >> 24), static_cast<char>(number >> 16),
            static_cast<char>(number >> 8), static_cast<char>(number)};
  }
  static std::string Records(const std::vector<int>& labels, int count, int pixels) {
    std::string bytes;
    for (int i = 0; i < count; ++i) {
      for (const int classes : labels) bytes += static_cast<char>(i % classes);
      for (int p = 0; p < pixels; ++p) bytes += static_cast<char>(i * (2 * p + 1));
    }
    return bytes;
  }

  TempDirectory directory_;
};

TEST_CASE("Fixed tasks have the weights, batches and classes of their names") {
  // By hand: for each layer inputs x outputs + outputs, with a norm 2 x outputs more.
  const std::map<std::string, std::pair<int64_t, int64_t>> weights_and_batch = {
      {"ImageMLP_FashionMnist8_Relu32", {2410, 128}},
      {"ImageMLP_FashionMnist_Relu128x128", {118282, 128}},
      {"ImageMLP_Mnist_128x128x128_Relu", {134794, 128}},
      {"ImageMLP_Cifar10BW8_Relu32", {2410, 128}},
      {"ImageMLP_Cifar10_8_Relu32", {6506, 128}},
      {"ImageMLP_Cifar10_128x128x128_Relu", {427658, 128}},
      {"ImageMLP_Cifar10_128x128x128_Tanh_bs64", {427658, 64}},
      {"ImageMLP_Cifar10_128x128x128_Tanh_bs128", {427658, 128}},
      {"ImageMLP_Cifar10_128x128x128_Tanh_bs256", {427658, 256}},
      {"ImageMLP_Cifar10_128x128x128_LayerNorm_Relu", {428426, 128}},
      {"ImageMLP_Cifar10_128x128x128_LayerNorm_Tanh", {428426, 128}},
      {"ImageMLP_Cifar10_128x128x128_BatchNorm_Relu", {428426, 128}},
      {"ImageMLP_Cifar10_128x128x128_BatchNorm_Tanh", {428426, 128}},
      {"ImageMLP_Cifar100_128x128x128_Relu", {439268, 128}},
      {"Conv_Cifar10_8_16x32", {5418, 128}},
      {"Conv_Cifar10_16_32x64x64", {56970, 128}},
      {"Conv_Cifar10_32x64x64", {56970, 128}},
      {"Conv_Cifar10_32x64x64_Tanh", {56970, 128}},
      {"Conv_Cifar100_32x64x64", {62820, 128}},
      {"ImageMLPAE_Mnist_128x32x128_bs128", {209968, 128}},
      {"ImageMLPAE_FashionMnist_128x32x128_bs128", {209968, 128}},
      {"ImageMLPAE_Cifar10_32x32x32_bs128", {201824, 128}},
      {"ImageMLPAE_Cifar10_128x32x128_bs256", {797984, 256}},
      {"ImageMLPAE_Cifar10_256x256x256_bs128", {1707776, 128}},
      {"ImageMLPAE_Cifar10_256x256x256_bs1024", {1707776, 1024}},
  };
  const DataSets data;
  const TaskResources resources(data.path());
  for (const auto& [name, wanted] : weights_and_batch) {
    CAPTURE(name);
    const auto task = TaskRegistry().Make(Named(name), resources);
    CHECK(task->params_layout().size() == wanted.first);
    const Config stands_for = StandsFor(Named(name));
    const std::string batch = fmt::format("\"batch_size\": {}", wanted.second);
    const bool is_default = wanted.second == ImageOptions().batch_size;
    CHECK((stands_for.Dump().find(is_default ? "batch_size" : batch) != std::string::npos) !=
          is_default);
    const bool tanh = name.find("Tanh") != std::string::npos;
    CHECK((stands_for.Dump().find("tanh") != std::string::npos) == tanh);
  }
  const std::string description = DescribeFields(
      TaskRegistry().table().Find(Config::Parse(R"({"type": "FixedTask"})", "test")).fields);
  for (const auto& [name, wanted] : weights_and_batch) {
    CHECK_MESSAGE(description.find('`' + name + '`') != std::string::npos, name);
  }
  // Each is listed once, and one is the default.
  size_t names = 0;
  for (const std::string set : {"Mnist", "Cifar"}) {
    for (size_t at = 0; (at = description.find(set, at)) != std::string::npos; ++at) ++names;
  }
  CHECK_MESSAGE(names == weights_and_batch.size() + 1, description);
}

TEST_CASE("Metrics call a fixed task by its name and others by their type") {
  CHECK(TaskLabel(Named("Conv_Cifar10_8_16x32")) == "Conv_Cifar10_8_16x32");
  CHECK(TaskLabel(Config::Parse(R"({"type": "FixedTask"})", "test")) ==
        "ImageMLP_FashionMnist8_Relu32");
  CHECK(TaskLabel(Config::Parse(R"({"type": "QuadraticTask", "dim": 3})", "test")) ==
        "QuadraticTask");
}

TEST_CASE("A fixed task without a data directory says which data it wants") {
  const TaskResources none("");
  CHECK(ErrorOf([&] { TaskRegistry().Make(Named("Conv_Cifar10_8_16x32"), none); }) ==
        "FixedTask: Conv_Cifar10_8_16x32 trains on CIFAR-10, which is read from a directory "
        "(data_dir, --data-dir)");
  CHECK(ErrorOf([&] {
          TaskRegistry().Make(Named("Conv_Cifar10_8_16x3"), none);
        }).ends_with("did you mean 'Conv_Cifar10_8_16x32'?"));
}

TEST_CASE("A fixed task does not take MNIST for FashionMNIST, nor the reverse") {
  const DataSets data;
  const auto make = [&](const char* name) {
    return ErrorOf([&] { TaskRegistry().Make(Named(name), TaskResources(data.path())); });
  };
  constexpr const char* kDigits = "ImageMLP_Mnist_128x128x128_Relu";
  constexpr const char* kClothes = "ImageMLPAE_FashionMnist_128x32x128_bs128";
  const std::string files = "but the files in " + data.path() + " are those of ";
  data.Begin("train", "5041921314");
  CHECK_EQ(make(kDigits), "no error");
  CHECK_EQ(make(kClothes), fmt::format("FixedTask: {} trains on FashionMNIST, {}MNIST, by their "
                                       "first labels",
                                       kClothes, files));
  CHECK_EQ(make("Conv_Cifar10_8_16x32"), "no error");
  data.Begin("train", "9003027255");
  CHECK_EQ(make(kClothes), "no error");
  CHECK_EQ(make(kDigits), fmt::format("FixedTask: {} trains on MNIST, {}FashionMNIST, by their "
                                      "first labels",
                                      kDigits, files));
  // The test files alone tell, too.
  data.Begin("train", "9003027254");
  data.Begin("t10k", "7210414959");
  CHECK_EQ(make(kDigits), "no error");
  data.Begin("t10k", "9211614657");
  CHECK(make(kDigits).ends_with("are those of FashionMNIST, by their first labels"));
  // Files of both.
  data.Begin("train", "5041921314");
  for (const char* name : {kDigits, kClothes}) {
    CHECK(
        make(name).ends_with("train-labels-idx1-ubyte is of MNIST and t10k-labels-idx1-ubyte of "
                             "FashionMNIST; wanted the files of one set"));
  }
}

}  // namespace
}  // namespace lopt
