// XXH64 of bytes as they come: tells accidents (damaged files, changed data) apart, not forgeries.
//
//   four lanes of 8 bytes each:  v ← rotl(v + word·P2, 31)·P1;  merged, the rest mixed in, avalanched
//
// Source: Yann Collet, xxHash specification (XXH64, seed 0); what `xxhsum -H64` prints.
// Measured 2026-11-22 on one core of an x86-64 virtual machine, g++ 12 -O2: see docs/performance.md.
// Words are read in the byte order of the machine, which is little-endian everywhere this library runs.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace rlalgo::core {

class Digest {
 public:
  // Goes on with the stream: update("ab").update("c") is update("abc").
  Digest& update(std::string_view bytes) {
    total_ += bytes.size();
    if (held_ > 0) {
      const std::size_t n = std::min(bytes.size(), block - held_);
      std::memcpy(buffer_.data() + held_, bytes.data(), n);
      held_ += n;
      bytes.remove_prefix(n);
      if (held_ < block) return *this;
      consume(buffer_.data(), block);
      held_ = 0;
    }
    const std::size_t whole = bytes.size() / block * block;
    consume(bytes.data(), whole);
    bytes.remove_prefix(whole);
    if (!bytes.empty()) std::memcpy(buffer_.data(), bytes.data(), bytes.size());
    held_ = bytes.size();
    return *this;
  }

  // One field: its bytes and their number, so that neighbours cannot run together.
  Digest& add(std::string_view bytes) {
    update(bytes);
    const std::uint64_t size = bytes.size();
    return update({reinterpret_cast<const char*>(&size), sizeof size});
  }

  [[nodiscard]] std::uint64_t value() const {
    std::uint64_t h = prime[4];
    if (total_ >= block) {
      h = std::rotl(lane_[0], 1) + std::rotl(lane_[1], 7) + std::rotl(lane_[2], 12) + std::rotl(lane_[3], 18);
      for (const std::uint64_t lane : lane_) h = (h ^ round(0, lane)) * prime[0] + prime[3];
    }
    h += total_;
    const char* p = buffer_.data();
    std::size_t left = held_;
    for (; left >= 8; left -= 8, p += 8) h = std::rotl(h ^ round(0, read<std::uint64_t>(p)), 27) * prime[0] + prime[3];
    if (left >= 4) {
      h = std::rotl(h ^ (read<std::uint32_t>(p) * prime[0]), 23) * prime[1] + prime[2];
      left -= 4;
      p += 4;
    }
    for (; left > 0; --left, ++p) h = std::rotl(h ^ (read<std::uint8_t>(p) * prime[4]), 11) * prime[0];
    h = (h ^ (h >> 33)) * prime[1];
    h = (h ^ (h >> 29)) * prime[2];
    return h ^ (h >> 32);
  }

  // 16 digits.
  [[nodiscard]] std::string hex() const {
    static constexpr char digits[] = "0123456789abcdef";
    const std::uint64_t h = value();
    std::string out(16, '0');
    for (std::size_t i = 0; i < 16; ++i) out[i] = digits[(h >> (60 - 4 * i)) & 15U];
    return out;
  }

 private:
  static constexpr std::size_t block = 32;
  static constexpr std::array<std::uint64_t, 5> prime = {11400714785074694791ULL, 14029467366897019727ULL,
                                                         1609587929392839161ULL, 9650029242287828579ULL,
                                                         2870177450012600261ULL};
  template <class T>
  static std::uint64_t read(const char* p) {
    T word{};
    std::memcpy(&word, p, sizeof word);
    return word;
  }
  static std::uint64_t round(std::uint64_t lane, std::uint64_t word) {
    return std::rotl(lane + word * prime[1], 31) * prime[0];
  }
  void consume(const char* p, std::size_t size) {
    std::array<std::uint64_t, 4> lane = lane_;
    for (const char* end = p + size; p != end; p += block)
      for (std::size_t i = 0; i < 4; ++i) lane[i] = round(lane[i], read<std::uint64_t>(p + 8 * i));
    lane_ = lane;
  }

  std::array<std::uint64_t, 4> lane_ = {prime[0] + prime[1], prime[1], 0, 0ULL - prime[0]};
  std::array<char, block> buffer_{};
  std::size_t held_ = 0;  // bytes in buffer_
  std::uint64_t total_ = 0;
};

}  // namespace rlalgo::core
