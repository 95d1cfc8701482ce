// The rows of all keys (config/key.hpp), and what follows from them about methods.
//
//   keys_of(config)          those that its recipe reads, or names as without effect, bound to `config`
//   for_each_reading(f)      f(recipe, rows) for every recipe, and the options of each schedule and optimizer
//   every_key()              those of all recipes, with their defaults: for documentation, and for what is asked by name
//   readers_of(key, recipe)  the recipes that `key` belongs to, among those that learn from the same kind of data as `recipe`
//   refused_keys(recipe)     those that belong to others of them alone
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/structure_keys.hpp>

namespace rlalgo::config {

namespace detail {
inline void append(Keys& out, Keys rows) {
  for (Key& row : rows) out.push_back(std::move(row));
}
}  // namespace detail

[[nodiscard]] inline Keys keys_of(RunConfig& c) {
  Keys out;
  if (is_preference(c)) {
    out = {beta_key(c.trl), dropout_key(c.trl), balance_key(c.trl), template_key(c.trl)};
    detail::append(out, preference_keys(c.preference, names_of(losses_of(recipe_of(c)))));
  } else {
    out = trl_keys(c.trl, matches_features(c), matches_features(c));
  }
  if (matches_features(c)) detail::append(out, ebft_keys(c.ebft));
  if (is_strided(c)) out.push_back(document_length_key(c.ebft));
  if (c.lora) detail::append(out, adapter_keys(*c.lora));
  if (c.lora)
    for (Keys rows : {bits_keys(c.bnb), quantisation_keys(c.bnb), bnb_keys(c.bnb)})
      detail::append(out, std::move(rows));
  const bool prompted = !is_preference(c) && !matches_features(c);
  for (Keys rows : {model_keys(c), token_keys(c), prompted ? Keys{prompt_length_key(c)} : Keys(), data_keys(c),
                    step_keys(c), Keys{optimizer_key(c)}, rate_keys(c), schedule_keys(c), update_keys(c),
                    rate_group_keys(c.groups), output_keys(c), gym_keys(c.nemo_gym)})
    detail::append(out, std::move(rows));
  detail::append(out, optimizer_argument_keys(c, optimizer_named(c.optimizer).rule));
  return out;
}

// The rows are bound to an object that ends with the visit.
template <class F>
void for_each_reading(F&& visit) {
  for (const Recipe& recipe : recipes()) {
    const auto with = [&](auto&& change, auto&& rows) {
      RunConfig c;
      c.rl = recipe.name;
      c.lora.emplace();
      change(c);
      visit(recipe, rows(c));
    };
    const std::vector<std::string> modes =
        recipe.matches_features ? names_of(matching_modes()).known : std::vector<std::string>{std::string()};
    for (const std::string& mode : modes)
      with(
          [&](RunConfig& c) {
            if (!mode.empty()) c.ebft.mode = mode;
          },
          [](RunConfig& c) { return keys_of(c); });
    const Names names = schedulers();
    for (const std::string& schedule : names.known)
      with([&](RunConfig& c) { c.lr_scheduler = schedule; },
           [](RunConfig& c) {
             Keys out = schedule_keys(c);
             detail::append(out, rate_keys(c));
             return out;
           });
    with([](RunConfig&) {},
         [](RunConfig& c) {
           Keys out;
           for (const OptimizerName& row : optimizer_names()) detail::append(out, optimizer_argument_keys(c, row.rule));
           return out;
         });
  }
}

// Rows that are documented together.
struct KeySection {
  std::string_view name;    // of its table in docs/configuration.md
  std::string_view prefix;  // of all its names, which the table leaves out
  Keys rows;
};

[[nodiscard]] inline const std::vector<KeySection>& key_sections() {
  static RunConfig defaults;
  static const std::vector<KeySection> all = [] {
    RunConfig& c = defaults;
    TrlConfig& t = c.trl;
    std::vector<KeySection> out;
    const auto section = [&out](std::string_view name, std::string_view prefix, std::initializer_list<Keys> rows) {
      out.push_back({name, prefix, {}});
      for (const Keys& some : rows) detail::append(out.back().rows, some);
    };
    static model::LoraConfig adapter;
    section("method", "", {recipe_keys()});
    section("model", "", {model_keys(c), token_keys(c), machine_keys(c), refused_precision_keys()});
    section(
        "adapter", "",
        {adapter_choice_keys(), adapter_keys(adapter), bits_keys(c.bnb), quantisation_keys(c.bnb), bnb_keys(c.bnb)});
    section("data", "", {data_keys(c), {prompt_length_key(c)}});
    section("dataset entries", "datasets[].", {entry_keys()});
    section("optimization", "",
            {step_keys(c),
             {optimizer_key(c)},
             rate_keys(c),
             arguments_keys(),
             update_keys(c),
             rate_group_keys(c.groups),
             sharding_keys(),
             other_layout_keys()});
    section("output", "", {output_keys(c), file_format_keys()});
    section("trackers", "", {tracker_rows()});
    section("rewards", "trl.", {reward_keys(t)});
    section("completions", "trl.", {geometry_keys(t), sampling_keys(t), {generation_kwargs_key(t), template_key(t)}});
    section("turns", "trl.", {turn_keys(t)});
    section("loss", "trl.", {loss_keys(t)});
    section("server", "trl.", {generator_keys(t), server_keys(t, true)});
    section("asynchronous", "trl.", {asynchronous_keys(t)});
    section("preferences", "", {preference_keys(c.preference, names_of(preference_losses()))});
    section("ebft", "", {ebft_keys(c.ebft), {document_length_key(c.ebft)}});
    section("gym", "", {gym_keys(c.nemo_gym)});
    return out;
  }();
  return all;
}

[[nodiscard]] inline const Keys& every_key() {
  static const Keys all = [] {
    Keys out;
    for (const KeySection& section : key_sections()) detail::append(out, section.rows);
    return out;
  }();
  return all;
}

[[nodiscard]] inline std::vector<std::string> readers_of(std::string_view name, const Recipe& recipe) {
  std::vector<std::string> out;
  for (const Recipe& other : recipes())
    if (other.generates == recipe.generates && std::any_of(every_key().begin(), every_key().end(), [&](const Key& row) {
          return row.name == name && among(other.name, row.recipes);
        }))
      out.emplace_back(other.name);
  return out;
}

// Whether an estimator of advantages reads `key`, which belongs to some.
[[nodiscard]] inline bool reads(const Estimator& estimator, std::string_view key) {
  return std::any_of(every_key().begin(), every_key().end(),
                     [&](const Key& row) { return row.name == key && among(estimator.name, row.estimators); });
}

[[nodiscard]] inline std::vector<std::string> refused_keys(const Recipe& recipe) {
  std::vector<std::string> out;
  for (const Key& row : every_key()) {
    const std::string name(row.name);
    if (row.recipes.empty() || std::find(out.begin(), out.end(), name) != out.end()) continue;
    const std::vector<std::string> readers = readers_of(name, recipe);
    if (!readers.empty() && std::find(readers.begin(), readers.end(), recipe.name) == readers.end())
      out.push_back(name);
  }
  return out;
}

}  // namespace rlalgo::config
