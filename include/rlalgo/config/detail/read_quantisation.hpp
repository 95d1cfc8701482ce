// Reads what a base in 4 or 8 bits is (config/quantisation_keys.hpp).
//
// Errors (usage): [rlalgo.config.8] both; adapter: qlora with 8 bits, or without 4.
#pragma once

#include <span>
#include <string>

#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/quantisation_keys.hpp>

namespace rlalgo::config::detail {

inline void warn_of_half(Reader& reader) {
  const Node* const node = reader.section().find("bnb_4bit_compute_dtype");
  if (node != nullptr && node->text.ends_with("float16") && !node->text.ends_with("bfloat16"))
    reader.findings().warnings.push_back(
        reader.prefix() + "bnb_4bit_compute_dtype (" + node->place.text() +
        "): products of quantised weights are computed in float32, which is more exact");
}

// clang-format off
// Of the section bnb_config_kwargs.
[[nodiscard]] inline std::span<const Reason> idle_bnb_keys() {
  static constexpr Reason reasons[] = {
    {"bnb_4bit_quant_storage", "codes are kept in bytes, and no number depends on what holds them", "", "model/quantised_weight.hpp bytes"},
    {"llm_int8_threshold", "inputs of 8-bit weights are not rounded to 8 bits, so there are no outliers to keep apart", "",
        "model/quantised_weight.hpp not rounded to 8 bits with outliers apart"},
    {"llm_int8_enable_fp32_cpu_offload", "all weights lie on one device", "", "model/load.hpp device"}};
  return reasons;
}
[[nodiscard]] inline std::span<const Reason> lacking_bnb_keys() {
  static constexpr Reason reasons[] = {
    {"llm_int8_has_fp16_weight", "leave it out: weights in 8 bits are kept so, and are frozen", "",
        "model/quantised_weight.hpp a frozen matrix of weights in 4 or 8 bits"}};
  return reasons;
}
// clang-format on

inline void read_bnb_config_kwargs(Reader& outer, QuantisedBase& base) {
  const Node* const node = outer.take("bnb_config_kwargs");
  if (node == nullptr) return;
  Reader reader(*node, "bnb_config_kwargs.", outer.findings());
  const Keys rows = bnb_keys(base);
  read_rows(reader, rows);
  say_idle(reader, rows);
  if (base.on()) warn_of_half(reader);
  apply_idle(reader, idle_bnb_keys());
  apply_lacking(reader, lacking_bnb_keys());
  reader.finish();
}

// With an adapter. Without one nothing could be trained, and lacking_keys() refuses.
inline void read_quantised_base(Reader& reader, QuantisedBase& base, const Node& adapter) {
  read_rows(reader, bits_keys(base));
  const bool qlora = adapter.text == "qlora";
  const auto where = [&](const char* key) { return reader.section().find(key)->place.text(); };
  if (base.load_in_8bit && base.load_in_4bit)
    reader.refuse(8, {.what = "load_in_8bit and load_in_4bit exclude each other",
                      .where = where("load_in_8bit"),
                      .remedy = "leave one of them"});
  else if (qlora && base.load_in_8bit)
    reader.refuse(8, {.what = "adapter: qlora has a base in 4 bits",
                      .found = "load_in_8bit: true",
                      .where = where("load_in_8bit"),
                      .remedy = "set adapter: lora for a base in 8 bits, or load_in_4bit: true"});
  else if (qlora && !base.load_in_4bit)
    reader.refuse(8, {.what = "adapter: qlora needs a base in 4 bits",
                      .expected = "load_in_4bit: true",
                      .where = adapter.place.text(),
                      .remedy = "set load_in_4bit: true, or adapter: lora for a base that is whole"});
  const Keys rows = quantisation_keys(base);
  read_rows(reader, rows);
  say_idle(reader, rows);
  if (base.on()) warn_of_half(reader);
  read_bnb_config_kwargs(reader, base);
}

}  // namespace rlalgo::config::detail
