// Random numbers for the tests of kernels, and what says that two rows of numbers have the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <rlalgo/core/philox.hpp>

namespace rlalgo::cpu::test {

// From -size to size; equal salts give equal numbers.
inline std::vector<float> random(std::int64_t n, std::uint64_t salt, double size = 1.0) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(static_cast<float>(
        size * (2.0 * core::uniform({salt, core::Stream::test}, 0, static_cast<std::uint64_t>(i)) - 1.0)));
  return out;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace rlalgo::cpu::test
