// Definitions of page_memory.hpp.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/inference/page_memory.hpp>

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
    const auto small = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(page);
    const std::uintptr_t first = (begin + small - 1) / small * small, last = (begin + bytes) / small * small;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    const std::lock_guard lock(mutex_);
    places_[bytes].push_back(page);  // there is room: it was here before
  }

  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }

 private:
  static constexpr std::size_t least = std::size_t{64} << 10U, stretch = std::size_t{16} << 20U,
                               large = std::size_t{2} << 20U;
  static constexpr std::align_val_t line{64};

  // Stretches stay for good, as address space: whoever needs pages again finds their places.
  void add_stretch(std::size_t bytes, std::vector<std::byte*>& places) {
    const std::size_t each = (bytes + 63) / 64 * 64, count = std::max<std::size_t>(1, stretch / each);
    std::size_t& total = totals_[bytes];
    places.reserve(total + count);
    void* const memory =
        ::mmap(nullptr, count * each + large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* begin = static_cast<std::byte*>(memory);
    begin += (large - reinterpret_cast<std::uintptr_t>(begin) % large) % large;
#ifdef MADV_HUGEPAGE
    ::madvise(begin, count * each, MADV_HUGEPAGE);  // where it is refused pages stay small
#endif
    total += count;
    for (std::size_t i = count; i > 0; --i) places.push_back(begin + (i - 1) * each);
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> places_;  // free ones, by bytes of a page
  std::map<std::size_t, std::size_t> totals_;              // all that there are
};

}  // namespace detail

RLALGO_INLINE PageMemory& PageMemory::host() {
  static auto& host = *new detail::HostPages;  // outlives every cache
  return host;
}

}  // namespace rlalgo::inference
