// adapter, lora_*, peft_*: the rows of a low-rank adapter's settings (model/lora_config.hpp), which lora_model_dir overrides.
//
// Errors (usage): [rlalgo.config.10] a start of an adapter that this build has not.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/model/lora_config.hpp>

namespace rlalgo::config {

namespace detail {

template <class Value>
void read_pattern(const Node& node, const std::string& key, std::vector<std::pair<std::string, Value>>& out) {
  if (node.kind != Kind::mapping) raise_type(key, node, "a section of pattern: number lines");
  for (const Member& member : node.members) {
    Value value{};
    convert(member.value, key + "." + member.key, value);
    if (!any_number.holds(static_cast<double>(value)))
      raise_range(key + "." + member.key, member.value, any_number.text());
    out.emplace_back(member.key, value);
  }
}

// false counts as unset, as in axolotl.
inline void read_initialisation(const Node& node, model::LoraInit& out) {
  using enum model::LoraInit;
  if (node.kind == Kind::boolean) return;
  for (const auto& [name, init] :
       {std::pair{"gaussian", gaussian}, std::pair{"pissa", pissa}, std::pair{"orthogonal", orthogonal}})
    if (node.text == name) return void(out = init);
  core::raise_usage("config", 10,
                    {.what = "this build has no peft_init_lora_weights " + node.text,
                     .found = "peft_init_lora_weights: " + (node.scalar() ? node.text : "[…]"),
                     .where = node.place.text(),
                     .remedy = "use true, gaussian, pissa or orthogonal"});
}

}  // namespace detail

// clang-format off
// `there`: adapter: lora.
[[nodiscard]] inline Keys adapter_keys(model::LoraConfig& a, bool there = true) {
  Keys out = {
    key("lora_r", a.r, "required: rank").within(at_least(1).to(model::largest_rank).meaning("a rank beyond the sides of a matrix adds "
        "nothing")).shows("–"),
    key("lora_alpha", a.alpha, "required: the adapter adds α/r · B A").within(any_number).shows("–"),
    key("lora_dropout", a.dropout, "of the adapter's input, while training").within(at_least(0).below(1)),
    // Recorded as a list and as a pattern.
    key("lora_target_modules", a.target_modules, "names or ends of paths; a text is a regular expression over whole paths, or "
        "`all-linear`. `lm_head` may be named").by("list of texts, text", [&a](const Node& node) {
      if (node.kind == Kind::sequence) return detail::convert(node, "lora_target_modules", a.target_modules);
      detail::convert(node, "lora_target_modules", a.target_pattern);
    }),
    key("lora_target_parameters", a.target_parameters, "names or ends of paths of the parameters of experts, `mlp.experts.gate_up_proj` and "
        "`mlp.experts.down_proj`: PEFT's `target_parameters` ([models](models.md#experts))"),
    key("lora_modules_to_save", a.modules_to_save, "modules trained whole, in copies, as PEFT reads the names: every module whose path "
        "ends with the letters, with all that is in it. `norm` is all norms of the model, `model.norm` the last one, `mlp` the three maps "
        "of every layer, `1.mlp` those of the layers 1, 11 …; `embed_tokens`, `lm_head`. What PEFT cannot copy is refused: `layers`, "
        "`self_attn`, a module that gets the adapter, one inside another (`model.36`)"),
    key("lora_rank_pattern", a.rank_pattern, "`pattern: rank` for modules whose path ends in a match").by("section",
        [&a](const Node& node) { detail::read_pattern(node, "lora_rank_pattern", a.rank_pattern); }),
    key("lora_alpha_pattern", a.alpha_pattern, "`pattern: α` for modules whose path ends in a match").by("section",
        [&a](const Node& node) { detail::read_pattern(node, "lora_alpha_pattern", a.alpha_pattern); }),
    key("peft_layers_to_transform", a.layers_to_transform, "only these layers").within(at_least(0).to(Range::most)),
    key("peft_layers_pattern", a.layers_pattern, "the name of the list of layers in a path"),
    key("peft_use_dora", a.use_dora, "a trained magnitude per output row"),
    key("peft_use_rslora", a.use_rslora, "scale α/√r"),
    key("peft_init_lora_weights", a.init, "how the adapter starts").by("true, gaussian, pissa, orthogonal",
        [&a](const Node& node) { detail::read_initialisation(node, a.init); }).shows("true"),
  };
  if (!there)
    for (Key& row : out) std::move(row).without_effect("there is no adapter (adapter: lora makes one)");
  return out;
}
// clang-format on

}  // namespace rlalgo::config
