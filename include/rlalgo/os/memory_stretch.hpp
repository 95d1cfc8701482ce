// One stretch of memory of its own, zero, that begins at a multiple of 2 MiB; and memory that is given back to the system page by page.
//
// The kernel is asked for pages of 2 MiB (transparent huge pages: "always" or "madvise" in
// /sys/kernel/mm/transparent_hugepage/enabled); where it grants none they are of the usual size.
//
// Errors: [rlalgo.os.10] the system has no such stretch.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <rlalgo/core/error.hpp>

namespace rlalgo::os {

class MemoryStretch {
 public:
  explicit MemoryStretch(std::size_t bytes) : size_(bytes), mapped_(bytes + large) {
    memory_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
      core::raise("os", 10,
                  {.what = "the system has no more memory",
                   .found = std::strerror(errno),
                   .expected = std::to_string(bytes) + " bytes",
                   .remedy = "use a smaller model, fewer sequences at once, or a machine with more memory"});
    begin_ = static_cast<std::byte*>(memory_) + (large - reinterpret_cast<std::uintptr_t>(memory_) % large) % large;
#ifdef MADV_HUGEPAGE
    if (bytes >= large) ::madvise(begin_, bytes, MADV_HUGEPAGE);  // where it is refused pages stay small
#endif
  }
  MemoryStretch(MemoryStretch&& other) noexcept
      : size_(other.size_),
        mapped_(other.mapped_),
        memory_(std::exchange(other.memory_, nullptr)),
        begin_(other.begin_) {}
  MemoryStretch& operator=(MemoryStretch&&) = delete;
  ~MemoryStretch() {
    if (memory_ != nullptr) ::munmap(memory_, mapped_);
  }

  [[nodiscard]] std::byte* begin() const noexcept { return begin_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t large = std::size_t{2} << 20U;
  std::size_t size_, mapped_;
  void* memory_;
  std::byte* begin_ = nullptr;
};

// Gives the memory of whole pages inside [begin, begin + bytes) of a private mapping back. What was written to them is lost: they are zero
// when they are used again, or the file's. Advice only.
inline void release_pages(const std::byte* begin, std::size_t bytes) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (from + page - 1) / page * page, last = (from + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace rlalgo::os
