#include <support/catch.hpp>

#include <cstddef>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>

#include <rlalgo/tensor/memory_peaks.hpp>

using namespace rlalgo;

namespace {

// Of a device of its own, which counts what it is told to.
class Counting final : public c10::DeviceAllocator {
 public:
  c10::CachingDeviceAllocator::DeviceStats stats;

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return stats; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    for (auto* const one : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes})
      (*one)[0].peak = (*one)[0].current;
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override { return {}; }
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
};

}  // namespace

TEST_CASE("the most of a device's memory since the last question; a CPU's is not counted") {
  CHECK_FALSE(tensor::take_memory_peaks(at::Device(at::kCPU)));
  static Counting allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator, 1);
  const auto set = [](auto& stat, std::int64_t current, std::int64_t peak) {
    stat[0].current = current;
    stat[0].peak = peak;
    stat[1].peak = 1'000'000;  // of small blocks alone
  };
  set(allocator.stats.allocated_bytes, 10, 70);
  set(allocator.stats.active_bytes, 20, 80);
  set(allocator.stats.reserved_bytes, 30, 90);
  const auto first = tensor::take_memory_peaks(at::Device(c10::DeviceType::PrivateUse1, 0));
  REQUIRE(first);
  CHECK(first->allocated == 70);
  CHECK(first->active == 80);
  CHECK(first->reserved == 90);
  const auto second = tensor::take_memory_peaks(at::Device(c10::DeviceType::PrivateUse1, 0));
  CHECK(second->allocated == 10);
  CHECK(second->active == 20);
  CHECK(second->reserved == 30);
}
