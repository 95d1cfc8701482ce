// A base in 4 or 8 bits: load_in_4bit, load_in_8bit, bnb_4bit_*, and bnb_config_kwargs, whose keys come last, as in axolotl.
//
// Defaults are those that axolotl gives bitsandbytes: nf4, scales quantised twice, products in the dtype of the model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/model/quantisation.hpp>

namespace rlalgo::config {

struct QuantisedBase {
  bool load_in_4bit = false, load_in_8bit = false;
  std::string bnb_4bit_compute_dtype = {};  // float32, bfloat16; unset: the model's
  std::string bnb_4bit_quant_type = "nf4";
  bool bnb_4bit_use_double_quant = true;
  std::int64_t blocksize = 64;
  bool quantize_moe_experts = false;
  std::vector<std::string> llm_int8_skip_modules = {};

  [[nodiscard]] bool on() const { return load_in_4bit || load_in_8bit; }
  [[nodiscard]] model::Quantisation quantisation() const {
    using model::ProductsIn;
    return {.code = load_in_8bit                   ? model::WeightCode::int8
                    : bnb_4bit_quant_type == "fp4" ? model::WeightCode::fp4
                                                   : model::WeightCode::nf4,
            .block = blocksize,
            .nested = bnb_4bit_use_double_quant,
            .products = load_in_8bit || bnb_4bit_compute_dtype.empty() ? ProductsIn::model
                        : bnb_4bit_compute_dtype == "bfloat16"         ? ProductsIn::bfloat16
                                                                       : ProductsIn::float32,
            .experts = quantize_moe_experts,
            .skip = llm_int8_skip_modules};
  }
};

namespace detail {

// float16 is computed in float32: a number that float16 holds is not rounded further.
inline void read_products(const Node& node, std::string_view key, std::string& out) {
  std::string name;
  convert(node, std::string(key), name);
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name != "float32" && name != "bfloat16" && name != "float16")
    raise_range(std::string(key), node, "float32, bfloat16 or float16");
  out = name == "bfloat16" ? name : "float32";
}

inline void read_block(const Node& node, std::int64_t& out) {
  std::int64_t size = 0;
  convert(node, "bnb_config_kwargs.blocksize", size);
  for (std::int64_t allowed = 32; allowed <= 4096; allowed *= 2)
    if (size == allowed) return void(out = size);
  raise_range("bnb_config_kwargs.blocksize", node, "32, 64, 128, 256, 512, 1024, 2048 or 4096");
}

// Of a base that is whole.
inline Keys without_bits(Keys rows) {
  for (Key& row : rows) std::move(row).without_effect("the base is whole: load_in_4bit and load_in_8bit quantise it");
  return rows;
}

}  // namespace detail

// clang-format off
// Of a base that has an adapter; without one nothing could be trained (config/recognised.hpp).
[[nodiscard]] inline Keys bits_keys(QuantisedBase& b) {
  return {
    key("load_in_4bit", b.load_in_4bit, "under an adapter: the base in 4 bits a weight ([below](#a-base-in-4-or-8-bits)); `adapter: qlora` is "
        "`lora` that needs it").only_if_written(),
    key("load_in_8bit", b.load_in_8bit, "the same in 8 bits, with `adapter: lora`; both keys, or `qlora` with 8 bits, are refused (`config.8`)").only_if_written(),
  };
}

[[nodiscard]] inline Keys quantisation_keys(QuantisedBase& b) {
  Keys out = {
    key("bnb_4bit_quant_type", b.bnb_4bit_quant_type, "the code of 4 bits").one_of({"nf4", "fp4"}).only_if_written(),
    key("bnb_4bit_use_double_quant", b.bnb_4bit_use_double_quant, "scales are quantised, too").only_if_written(),
    key("bnb_4bit_compute_dtype", b.bnb_4bit_compute_dtype, "what products of these weights are computed in; `float16` is `float32`, "
        "which is more exact").by("float32, bfloat16, float16", [&b](const Node& node) {
      detail::read_products(node, "bnb_4bit_compute_dtype", b.bnb_4bit_compute_dtype); }).shows("the model's").only_if_written(),
    key("quantize_moe_experts", b.quantize_moe_experts, "the maps of experts, too").only_if_written(),
  };
  return b.on() ? out : detail::without_bits(std::move(out));
}

// Of the section bnb_config_kwargs.
[[nodiscard]] inline Keys bnb_keys(QuantisedBase& b) {
  Keys out = {
    key("bnb_config_kwargs.bnb_4bit_quant_type", b.bnb_4bit_quant_type, "").one_of({"nf4", "fp4"}).same_as("bnb_4bit_quant_type")
        .only_if_written(),
    key("bnb_config_kwargs.bnb_4bit_use_double_quant", b.bnb_4bit_use_double_quant, "").same_as("bnb_4bit_use_double_quant")
        .only_if_written(),
    key("bnb_config_kwargs.bnb_4bit_compute_dtype", b.bnb_4bit_compute_dtype, "").by("float32, bfloat16, float16", [&b](const Node& node) {
      detail::read_products(node, "bnb_config_kwargs.bnb_4bit_compute_dtype", b.bnb_4bit_compute_dtype); })
        .same_as("bnb_4bit_compute_dtype").only_if_written(),
    key("bnb_config_kwargs.blocksize", b.blocksize, "weights that share a scale").by("32, 64, 128, 256, 512, 1024, 2048, 4096",
        [&b](const Node& node) { detail::read_block(node, b.blocksize); }).only_if_written(),
    key("bnb_config_kwargs.llm_int8_skip_modules", b.llm_int8_skip_modules, "modules that stay whole, by the end of their path or as a "
        "pattern of its beginning").shows("lm_head").only_if_written(),
  };
  return b.on() ? out : detail::without_bits(std::move(out));
}
// clang-format on

}  // namespace rlalgo::config
