// The `nemo_gym_…` keys (config/gym_keys.hpp), and what they mean for trl.reward_funcs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config {

// nemo_gym: the reward of the Gym; nemo_gym.NAME: one of its reward_components.
[[nodiscard]] inline bool names_gym_reward(const std::string& name) {
  return name == "nemo_gym" || name.starts_with("nemo_gym.");
}

namespace detail {

inline NemoGymDataset read_gym_dataset(const Node& node, const std::string& key, Findings& findings) {
  NemoGymDataset out;
  out.place = node.place;
  Reader reader(node, key + ".", findings);
  reader.read("path", out.path);
  reader.read("server_name", out.server_name);
  reader.read("max_samples", out.max_samples);
  reader.finish();
  if (out.path.empty())
    reader.refuse(7, {.what = key + " names no file", .expected = "path: rows.jsonl", .where = node.place.text()});
  if (out.max_samples && *out.max_samples < 1)
    reader.judge("max_samples", [&] { raise_range(key + ".max_samples", *node.find("max_samples"), "1 or more"); });
  return out;
}

// axolotl's documented name of the reward, and that of the one which its plugin adds, are the same reward here.
inline void name_gym_rewards(TrlConfig& trl) {
  std::vector<std::string> names;
  std::vector<double> weights;
  const bool weighted = trl.reward_weights.size() == trl.reward_funcs.size();
  bool asked = false;
  for (std::size_t k = 0; k < trl.reward_funcs.size(); ++k) {
    std::string name = trl.reward_funcs[k];
    if (name.starts_with("axolotl.integrations.nemo_gym.")) name = "nemo_gym";
    if (names_gym_reward(name)) {
      asked = true;
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    }
    names.push_back(std::move(name));
    if (weighted && !trl.reward_weights.empty()) weights.push_back(trl.reward_weights[k]);
  }
  if (!asked) {
    names.emplace_back("nemo_gym");
    if (!trl.reward_weights.empty()) weights.push_back(1.0);
  }
  trl.reward_funcs = std::move(names);
  if (weighted) trl.reward_weights = std::move(weights);
}

// Whether agents make the completions: what trl.vllm_… means hangs on it, and is read first.
[[nodiscard]] inline bool agents_play(const Node& root) {
  const auto holds = [&](const char* key) {
    const Node* const node = root.find(key);
    bool out = false;
    if (node != nullptr && node->kind != Kind::null) Refusals().judge([&] { convert(*node, key, out); });  // read again
    return out;
  };
  return holds("nemo_gym_enabled") && holds("nemo_gym_multi_turn");
}

inline void read_nemo_gym(Reader& reader, RunConfig& config) {
  NemoGymConfig& gym = config.nemo_gym;
  const Keys rows = gym_keys(gym);
  read_rows(reader, rows);
  if (!gym.enabled) return;
  if (is_preference(config) || is_strided(config))
    reader.refuse(8, {.what = "nemo_gym_enabled does not go with rl: " + config.rl +
                              (is_preference(config) ? "" : " of mode strided"),
                      .where = reader.section().find("nemo_gym_enabled")->place.text(),
                      .remedy = "a Gym rewards completions: rl: grpo, gdpo or rloo"});
  if (config.trl.has_turns())
    reader.refuse(8, {.what = "nemo_gym_enabled does not go with trl.environment_factory or trl.tools",
                      .where = reader.section().find("nemo_gym_enabled")->place.text(),
                      .remedy = "a Gym brings its own environments: remove them"});
  if (const Node* list = reader.take("nemo_gym_datasets"); list != nullptr) {
    reader.judge("nemo_gym_datasets", [&] {
      if (list->kind != Kind::sequence)
        raise_type("nemo_gym_datasets", *list, "a list, one item per line after a dash: - path: …");
    });
    for (std::size_t i = 0; i < list->items.size(); ++i)
      gym.datasets.push_back(
          read_gym_dataset(list->items[i], "nemo_gym_datasets[" + std::to_string(i) + "]", reader.findings()));
  }
  if (matches_features(config) && !gym.multi_turn)
    reader.refuse(
        8, {.what = "nemo_gym_enabled does not go with rl: " + config.rl + " where no agent plays",
            .where = reader.section().find("nemo_gym_enabled")->place.text(),
            .remedy = "features are its reward, not a Gym's verdict: set nemo_gym_multi_turn: true, or rl: grpo"});
  say_idle(reader, rows);

  const auto place = [&](const char* key) { return reader.section().find(key)->place.text(); };
  if (gym.datasets.empty())
    reader.refuse(7, {.what = "nemo_gym_datasets is missing",
                      .expected = "nemo_gym_datasets: [{path: rows.jsonl}]",
                      .where = place("nemo_gym_enabled")});
  if (gym.auto_start && gym.config_paths.empty())
    reader.refuse(7, {.what = "nemo_gym_config_paths is missing",
                      .expected = "the configurations that the Gym is started with",
                      .where = place("nemo_gym_enabled"),
                      .remedy = "name them, or set nemo_gym_auto_start: false where a Gym runs already"});
  if (gym.multi_turn && config.trl.rollout_func)
    reader.refuse(8, {.what = "nemo_gym_multi_turn does not go with trl.rollout_func",
                      .where = place("nemo_gym_multi_turn"),
                      .remedy = "agents or a function make the completions: remove one of them"});
  for (const char* key : {"datasets", "test_datasets"})
    if (reader.given(key))
      reader.findings().warnings.push_back(std::string(key) + " (" + place(key) +
                                           ") has no effect: prompts come from nemo_gym_datasets");
  if (!matches_features(config)) name_gym_rewards(config.trl);
}

}  // namespace detail
}  // namespace rlalgo::config
