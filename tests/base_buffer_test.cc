#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <utility>

#include "lopt/base/arrays.h"
#include "lopt/base/buffer.h"
#include "lopt/base/error.h"

namespace lopt {
namespace {

// A memory whose bytes are kept inverted, so that whoever reads them in place as if they were the
// host's gets them wrong.
class InvertedMemory : public Memory {
 public:
  std::string_view name() const override { return "inverted"; }
  static size_t InUse() { return in_use; }

 private:
  static void Invert(const std::byte* from, std::byte* to, size_t size) {
    for (size_t i = 0; i < size; ++i) to[i] = ~from[i];
  }
  std::byte* Allocate(size_t size) const override {
    in_use += size;
    auto* bytes = new std::byte[size];
    std::memset(bytes, 0xff, size);
    return bytes;
  }
  void Free(std::byte* bytes, size_t size) const override {
    in_use -= size;
    delete[] bytes;
  }
  void Copy(const std::byte* from, std::byte* to, size_t size) const override {
    std::memcpy(to, from, size);
  }
  void CopyFromHost(const std::byte* from, std::byte* to, size_t size) const override {
    Invert(from, to, size);
  }
  void CopyToHost(const std::byte* from, std::byte* to, size_t size) const override {
    Invert(from, to, size);
  }

  static size_t in_use;
};
size_t InvertedMemory::in_use = 0;

const InvertedMemory kInverted;

TEST_CASE("A new buffer is zeros, 64-byte aligned; an empty one has no bytes") {
  const Buffer buffer(1000);
  CHECK(buffer.size() == 1000);
  CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
  for (const std::byte byte : buffer.host()) CHECK(byte == std::byte{0});
  CHECK(Buffer().size() == 0);
  CHECK(Buffer(0).host().empty());
  CHECK(Buffer() == Buffer(0));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they see it first
TEST_CASE("A buffer for which the machine has no room is an error that says how large it is") {
  CHECK_THROWS_WITH_AS(Buffer(size_t{1} << 62),
                       "no room for 4611686018427387904 bytes in memory 'host'", Error);
}
#endif

TEST_CASE("Copies are deep and moves copy nothing") {
  Buffer buffer(8);
  buffer.host()[3] = std::byte{7};
  const std::byte* const place = buffer.data();
  Buffer copy = buffer;
  CHECK(copy == buffer);
  CHECK(copy.data() != place);
  copy.host()[3] = std::byte{8};
  CHECK(copy != buffer);
  CHECK(buffer.host()[3] == std::byte{7});

  Buffer moved = std::move(buffer);
  CHECK(moved.data() == place);
  CHECK(buffer.size() == 0);  // NOLINT: what is left behind is empty
  copy = std::move(moved);
  CHECK(copy.data() == place);
}

TEST_CASE("An array goes to a device and back; on the device it is not the host's to read") {
  const std::vector<float> values = {1, -2, 3.5F};
  const Array host = Array::Of<float>({3}, values);
  {
    const Array device = host.To(kInverted);
    CHECK(InvertedMemory::InUse() == 12);
    CHECK(device.buffer().memory().name() == "inverted");
    CHECK(device.shape() == host.shape());
    CHECK(device == host);
    CHECK(host == device);
    CHECK(device.To(HostMemory()).As<float>()[2] == 3.5F);
    const std::string error =
        "12 bytes in memory 'inverted' were used as if they were in memory 'host'; copy them there "
        "first";
    CHECK_THROWS_WITH_AS(device.As<float>(), error.c_str(), Error);
    CHECK_THROWS_WITH_AS(device.bytes(), error.c_str(), Error);

    const Array copy = device;  // within the device
    CHECK(&copy.buffer().memory() == &kInverted);
    CHECK(copy == device);
    CHECK(InvertedMemory::InUse() == 24);
  }
  CHECK(InvertedMemory::InUse() == 0);
  CHECK(Array(DType::kInt64, {2}, kInverted) == Array(DType::kInt64, {2}));  // zeros
  CHECK(Array(DType::kFloat32, {0}, kInverted).size() == 0);
}

}  // namespace
}  // namespace lopt
