// Where a row's newest key and value stand in its page (kv_cache.hpp has the order), and how they get there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>

namespace rlalgo::inference::detail {

class PagePlaces {
 public:
  explicit PagePlaces(const KvCache& cache)
      : cache_(cache), d_(cache.padded_head_dim()), pairs_(cache.element() == CacheElement::bfloat16) {}

  // [d] numbers in float32 and, where the cache is in bfloat16, rounded.
  void store_key(const Row& row, std::int64_t layer, std::int64_t h, const float* key,
                 const std::uint16_t* rounded) const {
    std::byte* to = key_place(row, layer, h);
    const auto* from = pairs_ ? reinterpret_cast<const std::byte*>(rounded) : reinterpret_cast<const std::byte*>(key);
    for (std::int64_t i = 0; i < key_rows(); ++i, to += cpu::key_row_bytes, from += 4) std::memcpy(to, from, 4);
  }

  void store_value(const Row& row, std::int64_t layer, std::int64_t h, const float* value,
                   const std::uint16_t* rounded) const {
    std::byte* const to = value_place(row, layer, h);
    if (!pairs_) {
      std::memcpy(to, value, 4 * static_cast<std::size_t>(d_));
      return;
    }
    for (std::int64_t j = 0; j < d_; ++j) std::memcpy(to + 4 * j, rounded + j, 2);
  }

  // The lines that both write.
  void fetch(const Row& row, std::int64_t layer, std::int64_t h) const {
    const std::byte *const key = key_place(row, layer, h), *const value = value_place(row, layer, h);
    for (std::int64_t i = 0; i < key_rows(); ++i) __builtin_prefetch(key + i * cpu::key_row_bytes, 1);
    for (std::int64_t byte = 0; byte < 4 * d_; byte += 64) __builtin_prefetch(value + byte, 1);
  }

 private:
  // In rows of all positions of a dimension, or of a pair of them.
  [[nodiscard]] std::byte* key_place(const Row& row, std::int64_t layer, std::int64_t h) const {
    return row.pages[row.position / cpu::page_positions] + cache_.key_offset(layer, h) +
           4 * (row.position % cpu::page_positions);
  }
  [[nodiscard]] std::byte* value_place(const Row& row, std::int64_t layer, std::int64_t h) const {
    const std::int64_t t = row.position % cpu::page_positions;
    return row.pages[row.position / cpu::page_positions] + cache_.value_offset(layer, h) +
           (pairs_ ? t / 2 * 4 * d_ + t % 2 * 2 : t * 4 * d_);
  }
  [[nodiscard]] std::int64_t key_rows() const { return pairs_ ? d_ / 2 : d_; }

  const KvCache& cache_;
  std::int64_t d_;
  bool pairs_;
};

}  // namespace rlalgo::inference::detail
