// Pages of keys and values in the memory of a device: one tensor, a row a page. The host never follows their addresses, so
// what stands for an address is the page's number.
//
//   arena [capacity, elements of a page]
//
// With a limit the arena is taken whole when the first page is wanted, so that it never moves. Without one it doubles when it is full,
// which copies it, and begins as large as it has been before. It is given up when no page is in use. What is new in it is zero: a
// masked key weighs 0, and 0 times what memory happens to hold may be no number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/inference/page_memory.hpp>
#include <rlalgo/tensor/device.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

inline constexpr const char* generation_memory_remedy =
    "leave more room for generation: fewer completions at a time, shorter ones, fewer prompt tokens a pass (of a "
    "server --max-num-seqs, "
    "--max-model-len, --prefill-rows), or less for keys and values (--gpu-memory-utilization, "
    "trl.vllm_gpu_memory_utilization)";

class TensorPages final : public PageMemory {
 public:
  // `most`: bytes of all pages together; 0: no limit.
  TensorPages(at::Device device, at::ScalarType type, std::size_t most = 0)
      : options_(at::TensorOptions().dtype(type).device(device)), most_(most) {}

  std::byte* allocate(std::size_t bytes) override {
    if (free_.empty()) grow(static_cast<std::int64_t>(bytes / c10::elementSize(type())));
    const std::int64_t page = free_.back();
    free_.pop_back();
    return address(page);
  }

  void free(std::byte* page, std::size_t /*bytes*/) noexcept override {
    free_.push_back(number(page));  // has room: grow() reserves it
    if (static_cast<std::int64_t>(free_.size()) == capacity_) {
      arena_ = tensor::Tensor();
      free_.clear();
      capacity_ = 0;
    }
  }

  void copy(const std::byte* from, std::byte* to, std::size_t /*bytes*/) override {
    arena_.select(0, number(to)).copy_(arena_.select(0, number(from)));
  }

  [[nodiscard]] const tensor::Tensor& arena() const noexcept { return arena_; }
  [[nodiscard]] at::ScalarType type() const { return options_.dtype().toScalarType(); }
  [[nodiscard]] at::Device device() const { return options_.device(); }

  // A null pointer names no page, so numbers begin with 1 as addresses.
  [[nodiscard]] static std::int64_t number(const std::byte* page) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(page)) - 1;
  }

 private:
  [[nodiscard]] static std::byte* address(std::int64_t page) {
    return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(page + 1));
  }

  void grow(std::int64_t elements) {
    constexpr std::int64_t least = 16;
    const auto most =
        static_cast<std::int64_t>(most_ / (static_cast<std::size_t>(elements) * c10::elementSize(type())));
    const std::int64_t capacity = most > capacity_ ? most : std::max({least, 2 * capacity_, largest_});
    tensor::Tensor larger = tensor::with_memory_errors(device(), generation_memory_remedy, [&] {
      return tensor::zeros({capacity, elements}, options_);
    });
    if (capacity_ > 0) larger.narrow(0, 0, capacity_).copy_(arena_);
    arena_ = larger;
    free_.reserve(static_cast<std::size_t>(capacity));
    for (std::int64_t page = capacity; page-- > capacity_;) free_.push_back(page);
    capacity_ = largest_ = capacity;
  }

  at::TensorOptions options_;
  std::size_t most_;
  tensor::Tensor arena_;
  std::int64_t capacity_ = 0, largest_ = 0;
  std::vector<std::int64_t> free_;  // numbers
};

}  // namespace rlalgo::inference::detail
