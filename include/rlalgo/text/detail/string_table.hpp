// A read-only map from byte strings to ids: strings in one arena, open addressing, no allocation per entry.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::text::detail {

[[nodiscard]] inline std::uint64_t mix64(std::uint64_t a, std::uint64_t b) noexcept {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

[[nodiscard]] inline std::uint64_t hash_bytes(std::string_view bytes) noexcept {
  std::uint64_t h = bytes.size() * 0x9E3779B97F4A7C15ULL;
  const char* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, p += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, p, 8);
    h = mix64(h ^ word, 0xA0761D6478BD642FULL);
  }
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < left; ++i) tail |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(p[i])) << (8 * i);
  return mix64(h ^ tail, 0xE7037ED1A0B428DBULL);
}

class StringTable {
 public:
  void reserve(std::size_t entries) { grow(std::bit_ceil(entries * 2 + 16)); }

  // Later values replace earlier ones of the same key.
  void insert(std::string_view key, std::int32_t value) {
    if ((count_ + 1) * 2 > slots_.size()) grow(std::bit_ceil((count_ + 1) * 2 + 16));
    Slot& slot = slots_[position(key, hash_bytes(key))];
    if (slot.value < 0) {
      slot.offset = static_cast<std::uint32_t>(arena_.size());
      slot.length = static_cast<std::uint32_t>(key.size());
      slot.hash = static_cast<std::uint32_t>(hash_bytes(key) >> 32U);
      arena_ += key;
      ++count_;
    }
    slot.value = value;
  }

  // -1 if absent.
  [[nodiscard]] std::int32_t find(std::string_view key) const noexcept {
    return slots_.empty() ? -1 : slots_[position(key, hash_bytes(key))].value;
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  struct Slot {
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    std::uint32_t hash = 0;
    std::int32_t value = -1;  // -1 = free
  };

  [[nodiscard]] std::size_t position(std::string_view key, std::uint64_t hash) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32U);
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots_[i];
      if (slot.value < 0) return i;
      if (slot.hash == tag && slot.length == key.size() &&
          std::memcmp(arena_.data() + slot.offset, key.data(), key.size()) == 0) {
        return i;
      }
    }
  }

  void grow(std::size_t capacity) {
    if (capacity <= slots_.size()) return;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value < 0) continue;
      const std::string_view key(arena_.data() + slot.offset, slot.length);
      slots_[position(key, hash_bytes(key))] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::string arena_;
  std::size_t count_ = 0;
};

}  // namespace rlalgo::text::detail
