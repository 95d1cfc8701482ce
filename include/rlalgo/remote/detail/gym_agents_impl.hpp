// Definitions of gym_agents.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/json_members.hpp>
#include <rlalgo/remote/detail/gym_row_names.hpp>
#include <rlalgo/remote/detail/side_by_side.hpp>
#include <rlalgo/remote/gym_agents.hpp>
#include <rlalgo/remote/gym_rewards.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::remote {

RLALGO_INLINE std::string gym_agent_of(const nlohmann::ordered_json& row, const GymDirectory& directory) {
  const std::string where = "the row " + detail::row_words(row);
  if (const std::string name = detail::named_in(row, "agent_ref", "responses_api_agents"); !name.empty()) return name;
  std::string wanted = detail::named_in(row, "agent_ref", "resources_servers");
  if (wanted.empty()) wanted = detail::named_in(row, gym_server_column, nullptr);
  std::vector<std::string> found, all;
  for (const GymServer& server : directory.servers()) {
    if (server.kind != GymKind::agent) continue;
    all.push_back(server.name);
    if (server.name == wanted) return wanted;
    if (!wanted.empty() && server.resources == wanted) found.push_back(server.name);
  }
  if (wanted.empty()) found = all;
  if (found.size() == 1) return found.front();
  std::string list;
  for (const std::string& name : all) list += (list.empty() ? "" : ", ") + name;
  core::raise("remote", 84,
              {.what = "a row names no agent of the Gym",
               .found = wanted.empty() ? "neither agent_ref nor server_name"
                                       : std::to_string(found.size()) + " agents use " + wanted,
               .expected = "one of " + (list.empty() ? "none: the Gym has no agents" : list),
               .where = where,
               .remedy = "write agent_ref into the rows, or the agent as server_name in nemo_gym_datasets"});
}

namespace detail {

// The list of numbers under a key; false: it is none.
template <class T>
[[nodiscard]] bool numbers_in(const nlohmann::ordered_json& item, const char* key, std::vector<T>& out) {
  const auto list = item.find(key);
  if (list == item.end() || !list->is_array()) return false;
  out.clear();
  for (const auto& one : *list) {
    if (!one.is_number() || (std::is_integral_v<T> && !one.is_number_integer())) return false;
    out.push_back(one.get<T>());
  }
  return true;
}

// What an item of the output is among messages; null: nothing.
[[nodiscard]] inline data::Json message_of(const nlohmann::ordered_json& item) {
  const std::string type = core::text_member(item, "type", "message");
  if (type == "function_call") {
    const auto text = core::text_member(item, "arguments", "{}");
    data::Json arguments = data::Json::parse(text, nullptr, false);
    if (arguments.is_discarded()) arguments = text;
    return {{"role", "assistant"},
            {"content", ""},
            {"tool_calls",
             {{{"type", "function"},
               {"function", {{"name", core::text_member(item, "name")}, {"arguments", arguments}}}}}}};
  }
  if (type == "function_call_output") {
    const auto output = item.find("output");
    return {
        {"role", "tool"},
        {"content", output != item.end() && !output->is_string() ? output->dump() : core::text_member(item, "output")}};
  }
  if (type != "message") return nullptr;
  const auto content = item.find("content");
  std::string text;
  if (content != item.end() && content->is_string()) text = content->get<std::string>();
  if (content != item.end() && content->is_array())
    for (const auto& part : *content)
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        text += part["text"].get<std::string>();
  return {{"role", core::text_member(item, "role", "assistant")}, {"content", text}};
}

// Whether `shown` begins with all ids of the row: then the call goes on with it.
[[nodiscard]] inline bool repeats(const data::DrawnRow& row, const std::vector<data::TokenId>& shown) {
  if (shown.size() < row.prompt_ids.size() + row.ids.size()) return false;
  return std::equal(row.prompt_ids.begin(), row.prompt_ids.end(), shown.begin()) &&
         std::equal(row.ids.begin(), row.ids.end(), shown.begin() + static_cast<std::ptrdiff_t>(row.prompt_ids.size()));
}

// FNV-1a of what an episode is: what its rows were shown, what was drawn, the reward.
[[nodiscard]] inline std::uint64_t digest_of(const data::Completion& episode) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto add = [&](std::uint64_t word) {
    for (int byte = 0; byte < 8; ++byte, word >>= 8U) hash = (hash ^ (word & 0xFFU)) * 1099511628211ULL;
  };
  const auto add_row = [&](const data::DrawnRow& row) {
    for (const auto* ids : {&row.prompt_ids, &row.ids}) {
      add(ids->size());
      for (const data::TokenId id : *ids) add(static_cast<std::uint64_t>(id));
    }
  };
  add_row(episode);
  for (const data::DrawnRow& row : episode.further) add_row(row);
  add(std::bit_cast<std::uint64_t>(episode.interaction->reward));
  return hash;
}

// Which of equal requests got which draws is an accident of their arrival: the order of a group is that of its digests, so
// that the same episodes make the same step. Failed ones are last.
inline void put_in_order(std::vector<data::Completion>& group) {
  std::vector<std::pair<std::pair<bool, std::uint64_t>, std::size_t>> keys;
  for (std::size_t i = 0; i < group.size(); ++i)
    keys.push_back({{!group[i].interaction->failure.empty(), digest_of(group[i])}, i});
  std::sort(keys.begin(), keys.end());
  std::vector<data::Completion> out;
  for (const auto& [key, i] : keys) out.push_back(std::move(group[i]));
  group = std::move(out);
}

}  // namespace detail

RLALGO_INLINE data::Completion gym_episode(const nlohmann::ordered_json& reply, const GymAgentsConfig& config,
                                           std::span<const data::TokenId> stop_ids) {
  data::Completion out;
  data::Interaction interaction{.messages = data::Json::array(), .reward = std::numeric_limits<double>::quiet_NaN()};
  interaction.columns = data::Json::object();
  const auto failed = [&](const std::string& kind) {
    interaction.failure = kind;
    out = {};
    if (!stop_ids.empty()) {
      out.ids = {stop_ids.front()};
      out.loss_mask = {0};
      out.log_probs = {0.0f};  // a loss that asks for those of the others asks for this one's, too
    }
    out.interaction = std::make_shared<const data::Interaction>(std::move(interaction));
    return std::move(out);
  };
  if (!Gym::own_failure(reply).empty()) return failed("judge");
  if (reply.contains("error") && !reply["error"].is_null()) return failed("status");
  const auto value = reply.find("reward");
  if (value == reply.end() || !value->is_number() || !reward::is_usable(value->get<double>()))
    return failed("malformed");
  const auto response = reply.find("response");
  if (response == reply.end() || !response->is_object() || !response->contains("output") ||
      !(*response)["output"].is_array())
    return failed("malformed");
  std::vector<data::TokenId> shown, drawn;
  std::vector<float> log_probs;
  std::vector<data::DrawnRow> rows;  // a call that does not repeat what was before it begins another
  bool spoke = false;
  for (const auto& item : (*response)["output"]) {
    if (!item.is_object()) return failed("malformed");
    const std::string type = core::text_member(item, "type", "message");
    data::Json message = detail::message_of(item);
    if (type == "function_call") {
      ++interaction.tool_calls;
      interaction.has_tools = true;
    }
    if (!message.is_null()) {
      const bool own = message.at("role") == "assistant";
      spoke = spoke || own;
      if (own && !message.at("content").get_ref<const std::string&>().empty())
        interaction.last_text = message.at("content");
      interaction.messages.push_back(std::move(message));
    }
    if (!item.contains("generation_token_ids") || item["generation_token_ids"].is_null()) continue;
    if (!detail::numbers_in(item, "generation_token_ids", drawn)) return failed("malformed");
    if (drawn.empty()) continue;
    if (!detail::numbers_in(item, "prompt_token_ids", shown) || shown.empty()) return failed("no_token_ids");
    if (!detail::numbers_in(item, "generation_log_probs", log_probs) || log_probs.size() != drawn.size())
      return failed("no_token_ids");
    for (const auto* ids : {&shown, &drawn})
      for (const data::TokenId id : *ids)
        if (id < 0 || id >= config.vocab_size) return failed("foreign_ids");
    for (const float p : log_probs)
      if (!std::isfinite(p) || p > 1e-3F) return failed("malformed");  // rounding of a probability of 1
    if (rows.empty() || !detail::repeats(rows.back(), shown)) {
      rows.emplace_back();
      rows.back().prompt_ids = shown;
    }
    data::DrawnRow& row = rows.back();
    const auto before = static_cast<std::ptrdiff_t>(row.prompt_ids.size() + row.ids.size());
    row.ids.insert(row.ids.end(), shown.begin() + before, shown.end());
    row.loss_mask.resize(row.ids.size(), 0);
    row.log_probs.resize(row.ids.size(), 0.0f);
    ++interaction.turns;
    row.ids.insert(row.ids.end(), drawn.begin(), drawn.end());
    row.loss_mask.resize(row.ids.size(), 1);
    row.log_probs.insert(row.log_probs.end(), log_probs.begin(), log_probs.end());
  }
  if (rows.empty()) return failed(spoke ? "no_token_ids" : "empty");
  for (data::DrawnRow& row : rows) {
    if (static_cast<std::int64_t>(row.prompt_ids.size() + row.ids.size()) > config.max_positions)
      return failed("too_long");
    const bool ended = std::find(stop_ids.begin(), stop_ids.end(), row.ids.back()) != stop_ids.end();
    row.finish = ended ? data::Finish::stop : data::Finish::length;
  }
  static_cast<data::DrawnRow&>(out) = std::move(rows.front());
  out.further.assign(std::make_move_iterator(rows.begin() + 1), std::make_move_iterator(rows.end()));
  interaction.reward = value->get<double>();
  interaction.columns["num_turns"] = interaction.turns;
  if (const auto components = reply.find("reward_components"); components != reply.end() && components->is_object())
    for (const auto& [name, one] : components->items())
      if (one.is_number()) interaction.columns["nemo_gym." + name] = one;
  out.interaction = std::make_shared<const data::Interaction>(std::move(interaction));
  return out;
}

RLALGO_INLINE data::Completion GymAgents::play(const data::Json& row, const inference::SamplingConfig& sampling,
                                               std::int64_t longest) {
  nlohmann::ordered_json body = row;
  body.erase(gym_server_column);
  auto& params = body["responses_create_params"];
  if (!params.contains("max_output_tokens") || params["max_output_tokens"].is_null())
    params["max_output_tokens"] = longest;
  params["temperature"] = sampling.temperature;
  params["top_p"] = sampling.top_p;
  const std::string agent = gym_agent_of(row, gym_->directory());
  const std::string url = gym_->directory().find(GymKind::agent, agent, "a dataset row").url;
  const GymReply reply = gym_->post(url, "/run", body, config_.seconds, nullptr);
  if (reply.failure.empty()) {
    data::Completion out = gym_episode(reply.body, config_, sampling.stop_ids);
    return out;
  }
  data::Completion out = gym_episode({{"error", reply.detail}}, config_, sampling.stop_ids);
  data::Interaction interaction = *out.interaction;
  interaction.failure = reply.failure;
  interaction.last_text = reply.detail;
  out.interaction = std::make_shared<const data::Interaction>(std::move(interaction));
  return out;
}

RLALGO_INLINE std::vector<std::vector<data::Completion>> GymAgents::generate(
    std::span<const inference::Request> requests, const inference::SamplingConfig& sampling, inference::DrawKey key) {
  std::vector<std::pair<std::size_t, const data::Json*>> asked;
  const auto longest = [&](std::size_t r) {
    const std::int64_t own = requests[r].max_new_tokens;
    return own > 0 ? std::min(own, sampling.max_new_tokens) : sampling.max_new_tokens;
  };
  for (std::size_t r = 0; r < requests.size(); ++r)
    for (std::int64_t j = 0; j < requests[r].count; ++j) asked.emplace_back(r, &requests[r].source->columns);
  std::vector<data::Completion> played(asked.size());
  const auto play_all = [&] {
    detail::side_by_side(asked.size(), config_.at_once,
                         [&](std::size_t i) { played[i] = play(*asked[i].second, sampling, longest(asked[i].first)); });
  };
  play_all();
  const auto unreached = [](const data::Completion& one) { return one.interaction->failure == "unreachable"; };
  if (!played.empty() && std::all_of(played.begin(), played.end(), unreached)) {
    if (config_.tell) config_.tell(played.front().interaction->last_text + "; looking for the Gym again");
    std::vector<Gym::Needed> needed;
    std::set<std::string> names;
    for (const auto& [r, row] : asked)
      if (std::string name = gym_agent_of(*row, gym_->directory()); names.insert(name).second)
        needed.push_back({GymKind::agent, std::move(name), "a dataset row"});
    gym_->discover(needed);
    play_all();
  }
  std::size_t failures = 0;
  std::string first;
  for (const data::Completion& one : played) {
    if (one.interaction->failure.empty()) continue;
    if (failures++ == 0)
      first = one.interaction->failure + (one.interaction->last_text.empty() ? "" : ": " + one.interaction->last_text);
  }
  if (failures == played.size() && failures > 0 && config_.failures_end_the_run)
    core::raise("remote", 83,
                {.what = "all episodes of a generation failed",
                 .found = std::to_string(failures) + " failures; the first: " + first,
                 .where = "generation " + std::to_string(key.step),
                 .remedy = "the agents' own logs say more; trl.reward_on_failure: nan goes on without them"});
  if (failures > 0 && config_.tell)
    config_.tell(std::to_string(failures) + " of " + std::to_string(played.size()) +
                 " episodes failed, and leave their groups: " + first);
  std::vector<std::vector<data::Completion>> out(requests.size());
  for (std::size_t i = 0; i < asked.size(); ++i) out[asked[i].first].push_back(std::move(played[i]));
  for (auto& group : out) detail::put_in_order(group);
  return out;
}

}  // namespace rlalgo::remote
