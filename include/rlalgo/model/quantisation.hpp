// How the linear maps of a model are to be quantised when it is loaded (quantised_weight.hpp has the formulas): settings, no torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::model {

enum class WeightCode { nf4, fp4, int8 };

[[nodiscard]] constexpr std::string_view name_of(WeightCode code) {
  return code == WeightCode::nf4 ? "nf4" : code == WeightCode::fp4 ? "fp4" : "int8";
}

// What products with quantised weights are computed in.
enum class ProductsIn { model, float32, bfloat16 };

struct Quantisation {
  WeightCode code = WeightCode::nf4;
  std::int64_t block = 64;  // elements with one scale, of 4 bits; even
  bool nested = true;       // scales of 4 bits are quantised, too
  ProductsIn products = ProductsIn::model;
  bool experts = false;  // also the maps of experts that a router chooses among, each by itself
  // Maps that stay as they are: a pattern matches the beginning of a path up to a dot, or is its end (transformers'
  // llm_int8_skip_modules). Routers and the output embedding stay in any case.
  std::vector<std::string> skip = {};

  bool operator==(const Quantisation&) const = default;
};

}  // namespace rlalgo::model
