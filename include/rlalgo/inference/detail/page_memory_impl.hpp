// Definitions of page_memory.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/inference/page_memory.hpp>
#include <rlalgo/os/memory_stretch.hpp>

namespace rlalgo::inference {

namespace detail {

class HostPages final : public PageMemory {
 public:
  std::byte* allocate(std::size_t bytes) override {
    if (bytes < least) return static_cast<std::byte*>(::operator new(bytes, line));
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& places = places_[bytes];
    if (places.empty()) add_stretch(bytes, places);
    std::byte* const page = places.back();
    places.pop_back();
    return page;
  }

  void free(std::byte* page, std::size_t bytes) noexcept override {
    if (bytes < least) return ::operator delete(page, line);
    os::release_pages(page, bytes);
    const std::lock_guard lock(mutex_);
    places_[bytes].push_back(page);  // there is room: it was here before
  }

  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }

 private:
  static constexpr std::size_t least = std::size_t{64} << 10U, stretch = std::size_t{16} << 20U;
  static constexpr std::align_val_t line{64};

  // Stretches stay for good, as address space: pages that are needed again get the same places.
  void add_stretch(std::size_t bytes, std::vector<std::byte*>& places) {
    const std::size_t each = (bytes + 63) / 64 * 64, count = std::max<std::size_t>(1, stretch / each);
    std::size_t& total = totals_[bytes];
    places.reserve(total + count);
    stretches_.emplace_back(count * each);
    std::byte* const begin = stretches_.back().begin();
    total += count;
    for (std::size_t i = count; i > 0; --i) places.push_back(begin + (i - 1) * each);
  }

  std::mutex mutex_;
  std::vector<os::MemoryStretch> stretches_;
  std::map<std::size_t, std::vector<std::byte*>> places_;  // free ones, by bytes of a page
  std::map<std::size_t, std::size_t> totals_;              // all that there are
};

}  // namespace detail

RLALGO_INLINE PageMemory& PageMemory::host() {
  static auto& host = *new detail::HostPages;  // outlives every cache
  return host;
}

}  // namespace rlalgo::inference
