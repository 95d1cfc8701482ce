// What a GPU can multiply a second, by its name: the denominator of train/mfu.
//
// Of the makers' data sheets: dense products of bfloat16 on tensor cores with sums in float32, at the boost clock, in FLOP/s. The same for
// whatever a run computes in, so that runs compare. A GPU that is not listed has none.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace rlalgo::tensor {

// 0: not known. `name` as describe() gives it; of names that begin alike the longer one stands first.
[[nodiscard]] constexpr double peak_flops(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, double>, 24> cards = {
      {{"GB200", 2.5e15},       {"B200", 2.25e15},      {"H200", 989e12},       {"GH200", 989e12},
       {"H100 PCIe", 756e12},   {"H100 NVL", 835e12},   {"H100", 989e12},       {"H800 PCIe", 756e12},
       {"H800", 989e12},        {"H20", 148e12},        {"A100", 312e12},       {"A800", 312e12},
       {"A30", 165e12},         {"A40", 149.7e12},      {"A10G", 70e12},        {"A10", 125e12},
       {"L40S", 362e12},        {"L40", 181e12},        {"L4", 121e12},         {"RTX 6000 Ada", 364e12},
       {"RTX A6000", 154.8e12}, {"RTX 5090", 209.5e12}, {"RTX 4090", 165.2e12}, {"RTX 3090", 71e12}}};
  for (const auto& [card, flops] : cards)
    if (name.find(card) != std::string_view::npos) return flops;
  return 0.0;
}

}  // namespace rlalgo::tensor
