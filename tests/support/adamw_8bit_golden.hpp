// What bitsandbytes makes of numbers that tests can make again (scripts/fixtures/optim_adamw_8bit.py).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "catch.hpp"

namespace rlalgo::support::bitsandbytes {

using Json = nlohmann::ordered_json;

inline Json golden() {
  std::ifstream stream(std::string(test_dir) + "/golden/optim/adamw_8bit.json");
  REQUIRE(stream.good());
  return Json::parse(stream);
}

// numbers() of that script.
inline std::vector<float> numbers(std::size_t count, std::uint64_t salt) {
  std::vector<float> out;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t mixed = (i * 2654435761U + salt * 40503U) * 0x9E3779B97F4A7C15U;
    const double fraction = static_cast<double>(mixed >> 40U) / 16777216.0 - 0.5;
    out.push_back(static_cast<float>(std::ldexp(fraction, -static_cast<int>((mixed >> 30U) % 20U))));
  }
  return out;
}

// hexadecimal() of that script, backwards.
template <class T>
std::vector<T> unpacked(const Json& text) {
  const auto digits = text.get<std::string>();
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

}  // namespace rlalgo::support::bitsandbytes
