// The keys of a base in 4 or 8 bits: load_in_4bit, load_in_8bit, bnb_4bit_*, and bnb_config_kwargs, whose keys come last, as in axolotl.
// Their defaults are those that axolotl gives bitsandbytes: nf4, scales quantised twice, products in the dtype of the model.
//
// Errors (usage): [rlalgo.config.8] both; adapter: qlora with 8 bits, or without 4.
#pragma once

#include <string>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

inline constexpr const char* quantisation_keys[] = {"bnb_4bit_compute_dtype", "bnb_4bit_quant_type",
                                                    "bnb_4bit_use_double_quant", "bnb_config_kwargs",
                                                    "quantize_moe_experts"};

// float16 is computed in float32: a number that float16 holds is not rounded further.
inline void read_products(Reader& reader, QuantisedBase& base) {
  const std::string key = "bnb_4bit_compute_dtype";
  const Node* const node = reader.take(key);
  if (node == nullptr) return;
  reader.record(key, base.bnb_4bit_compute_dtype);
  reader.judge(key, [&] {
    std::string name;
    convert(*node, reader.prefix() + key, name);
    if (name.starts_with("torch.")) name = name.substr(6);
    if (name != "float32" && name != "bfloat16" && name != "float16")
      raise_range(reader.prefix() + key, *node, "float32, bfloat16 or float16");
    if (name == "float16")
      reader.findings().warnings.push_back(
          reader.prefix() + key + " (" + node->place.text() +
          "): products of quantised weights are computed in float32, which is more exact");
    base.bnb_4bit_compute_dtype = name == "bfloat16" ? name : "float32";
  });
}

inline void read_numbers_of_bits(Reader& reader, QuantisedBase& base) {
  read_products(reader, base);
  if (reader.given("bnb_4bit_quant_type"))
    reader.read_choice("bnb_4bit_quant_type", base.bnb_4bit_quant_type, {"nf4", "fp4"});
  read_if_there(reader, "bnb_4bit_use_double_quant", base.bnb_4bit_use_double_quant);
}

inline void read_bnb_config_kwargs(Reader& outer, QuantisedBase& base) {
  const Node* const node = outer.take("bnb_config_kwargs");
  if (node == nullptr) return;
  Reader reader(*node, "bnb_config_kwargs.", outer.findings());
  read_numbers_of_bits(reader, base);
  read_if_there(reader, "blocksize", base.blocksize);
  read_if_there(reader, "llm_int8_skip_modules", base.llm_int8_skip_modules);
  if (const Node* block = reader.section().find("blocksize"); block != nullptr)
    reader.judge("blocksize", [&] {
      for (std::int64_t allowed = 32; allowed <= 4096; allowed *= 2)
        if (base.blocksize == allowed) return;
      raise_range("bnb_config_kwargs.blocksize", *block, "32, 64, 128, 256, 512, 1024, 2048 or 4096");
    });
  static constexpr RecognisedKey idle[] = {
      {"bnb_4bit_quant_storage", "codes are kept in bytes, and no number depends on what holds them"},
      {"llm_int8_threshold",
       "inputs of 8-bit weights are not rounded to 8 bits, so there are no outliers to keep apart"},
      {"llm_int8_enable_fp32_cpu_offload", "all weights lie on one device"}};
  apply_idle(reader, idle);
  static constexpr RecognisedKey lacking[] = {
      {"llm_int8_has_fp16_weight", "leave it out: weights in 8 bits are kept so, and are frozen"}};
  apply_lacking(reader, lacking);
  reader.finish();
}

// With an adapter. Without one nothing could be trained, and lacking_keys() refuses.
inline void read_quantised_base(Reader& reader, RunConfig& config, const Node& adapter) {
  read_if_there(reader, "load_in_8bit", config.load_in_8bit);
  read_if_there(reader, "load_in_4bit", config.load_in_4bit);
  const bool qlora = adapter.text == "qlora";
  const auto where = [&](const char* key) { return reader.section().find(key)->place.text(); };
  if (config.load_in_8bit && config.load_in_4bit)
    reader.refuse(8, {.what = "load_in_8bit and load_in_4bit exclude each other",
                      .where = where("load_in_8bit"),
                      .remedy = "leave one of them"});
  else if (qlora && config.load_in_8bit)
    reader.refuse(8, {.what = "adapter: qlora has a base in 4 bits",
                      .found = "load_in_8bit: true",
                      .where = where("load_in_8bit"),
                      .remedy = "set adapter: lora for a base in 8 bits, or load_in_4bit: true"});
  else if (qlora && !config.load_in_4bit)
    reader.refuse(8, {.what = "adapter: qlora needs a base in 4 bits",
                      .expected = "load_in_4bit: true",
                      .where = adapter.place.text(),
                      .remedy = "set load_in_4bit: true, or adapter: lora for a base that is whole"});
  if (config.load_in_4bit || config.load_in_8bit) {
    read_numbers_of_bits(reader, config.bnb);
    read_bnb_config_kwargs(reader, config.bnb);
    read_if_there(reader, "quantize_moe_experts", config.bnb.quantize_moe_experts);
    return;
  }
  for (const char* key : quantisation_keys) {
    const RecognisedKey one{key, "the base is whole: load_in_4bit and load_in_8bit quantise it"};
    apply_idle(reader, std::span(&one, 1));
  }
}

}  // namespace rlalgo::config::detail
