// loraplus_lr_ratio, embedding_lr, embedding_lr_scale, lr_groups: axolotl's keys of parameters with rates of their own
// (optim/parameter_groups.hpp).
//
// Errors (usage): [rlalgo.config.5] a value of another type; [rlalgo.config.6] one out of range; [rlalgo.config.7] a group of lr_groups lacks a key.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::config {

struct RateGroupsConfig {
  std::optional<double> loraplus_lr_ratio;
  std::optional<double> embedding_lr, embedding_lr_scale;
  data::Json lr_groups = data::Json::array();  // [{name, modules, lr}]

  // Whether a parameter may have a rate of its own.
  [[nodiscard]] bool any() const {
    return loraplus_lr_ratio || embedding_lr || embedding_lr_scale || !lr_groups.empty();
  }
};

namespace detail {

inline void read_lr_groups(const Node& node, data::Json& out) {
  if (node.kind != Kind::sequence) raise_type("lr_groups", node, "a list of sections with name, modules and lr");
  data::Json groups = data::Json::array();
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const Node& item = node.items[i];
    const std::string at = "lr_groups[" + std::to_string(i) + "]";
    if (item.kind != Kind::mapping) raise_type(at, item, "a section with name, modules and lr");
    for (const Member& member : item.members)
      if (member.key != "name" && member.key != "modules" && member.key != "lr")
        raise_word(at, member.key, member.key, member.place, {"name", "modules", "lr"});
    const auto given = [&](const char* key) -> const Node& {
      const Node* value = item.find(key);
      if (value == nullptr || value->kind == Kind::null)
        core::raise_usage("config", 7,
                          {.what = at + "." + key + " is missing",
                           .expected = "{name: head, modules: [lm_head], lr: 1e-6}",
                           .where = item.place.text()});
      return *value;
    };
    std::string name;
    std::vector<std::string> modules;
    double rate = 0.0;
    convert(given("name"), at + ".name", name);
    convert(given("modules"), at + ".modules", modules);
    convert(given("lr"), at + ".lr", rate);
    if (!at_least(0).holds(rate)) raise_range(at + ".lr", *item.find("lr"), at_least(0).text());
    if (modules.empty()) raise_range(at + ".modules", *item.find("modules"), "one part of a name or more");
    groups.push_back({{"name", name}, {"modules", modules}, {"lr", rate}});
  }
  out = std::move(groups);
}

}  // namespace detail

// clang-format off
[[nodiscard]] inline Keys rate_group_keys(RateGroupsConfig& g) {
  return {
    key("loraplus_lr_ratio", g.loraplus_lr_ratio, "LoRA+: the matrices B of the adapter, and whatever is trained and has one dimension, move "
        "at so many times `learning_rate`; nothing decays ([below](#rates-of-groups))").within(above(0)).only_if_written(),
    key("embedding_lr", g.embedding_lr, "`learning_rate` of embeddings, the head and modules of `lora_modules_to_save`, which then do not decay")
        .within(above(0)).only_if_written(),
    key("embedding_lr_scale", g.embedding_lr_scale, "the same as a factor of `learning_rate`; it wins over `embedding_lr`")
        .within(above(0)).only_if_written(),
    key("lr_groups", g.lr_groups, "`[{name, modules, lr}]`: parameters whose names contain one of `modules` have this `learning_rate`; not those "
        "that do not decay (norms, biases), nor embeddings").by("list", [&g](const Node& node) { detail::read_lr_groups(node, g.lr_groups); })
        .shows("–").only_if_written(),
  };
}
// clang-format on

}  // namespace rlalgo::config
