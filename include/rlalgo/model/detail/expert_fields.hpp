// What config.json says of experts: which layers have them, how many, how wide, how many a token passes.
//
// Errors: [rlalgo.model.9] a field of the wrong value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/config_fields.hpp>

namespace rlalgo::model::detail {

// What a family takes where config.json says nothing.
struct ExpertDefaults {
  std::int64_t count;
  std::int64_t chosen;
  bool two_spellings = true;  // of the count: num_experts and num_local_experts
};

[[nodiscard]] inline std::int64_t read_expert_count(const JsonFields& fields, const ExpertDefaults& defaults) {
  const auto named = fields.integer("num_experts");
  const auto other = defaults.two_spellings ? fields.integer("num_local_experts") : std::nullopt;
  if (named && other && *named != *other)
    fields.wrong("num_local_experts", Json(*other), "num_experts, " + std::to_string(*named) + ", or one of the two");
  const std::int64_t count = named ? *named : other.value_or(defaults.count);
  if (count < 0 || count > 65536) fields.wrong(named ? "num_experts" : "num_local_experts", Json(count), "0 to 65536");
  return count;
}

inline void read_balance(const JsonFields& fields, DecoderConfig& c) {
  c.router_aux_loss_coef = fields.number("router_aux_loss_coef").value_or(0.001);
  c.output_router_logits = fields.boolean("output_router_logits").value_or(false);
}

[[nodiscard]] inline std::int64_t read_chosen(const JsonFields& fields, std::int64_t fallback, std::int64_t count) {
  const std::int64_t chosen = fields.positive("num_experts_per_tok", fallback);
  if (chosen > count)
    fields.wrong("num_experts_per_tok", Json(chosen), "at most the number of experts, " + std::to_string(count));
  return chosen;
}

// Qwen's layers, `experts` being what is not read here: experts in every decoder_sparse_step-th of those that mlp_only_layers does not name.
inline void read_sparse_layers(const JsonFields& fields, ExpertSpec experts, const ExpertDefaults& defaults,
                               DecoderConfig& c) {
  experts.count = read_expert_count(fields, defaults);
  const std::vector<std::int64_t> dense = fields.integers("mlp_only_layers");
  const std::int64_t step = fields.positive("decoder_sparse_step", 1);
  if (experts.count == 0) return;
  read_balance(fields, c);
  experts.chosen = read_chosen(fields, defaults.chosen, experts.count);
  experts.normalised = fields.boolean("norm_topk_prob").value_or(experts.normalised);
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    if ((layer + 1) % step == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end())
      c.specs[static_cast<std::size_t>(layer)].experts = experts;
}

}  // namespace rlalgo::model::detail
