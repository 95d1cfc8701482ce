// Definitions of generation_state.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/generation_state.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::sampler::detail {

static_assert(std::endian::native == std::endian::little, "checkpoint bytes are little-endian");

RLALGO_INLINE void raise_state(const std::string& what, const std::string& found, const std::string& expected) {
  core::raise("sampler", 7,
              {.what = "cannot resume: " + what,
               .found = found,
               .expected = expected,
               .where = "the sampler state of the checkpoint",
               .remedy = "resume with the config and dataset of the run, or start a new one"});
}

template <class T>
std::string pack(std::span<const T> values) {
  return core::base64({reinterpret_cast<const unsigned char*>(values.data()), values.size_bytes()});
}
template <class T>
std::string pack(const std::vector<T>& values) {
  return pack(std::span<const T>(values));
}

template <class T>
std::vector<T> unpack(const Json& text) {
  const auto bytes = core::from_base64(text.get_ref<const std::string&>());
  if (!bytes) raise_state("damaged base64");
  if (bytes->size() % sizeof(T) != 0) raise_state("damaged numbers", std::to_string(bytes->size()) + " bytes");
  std::vector<T> out(bytes->size() / sizeof(T));
  if (!bytes->empty()) std::memcpy(out.data(), bytes->data(), bytes->size());
  return out;
}

RLALGO_INLINE Json fingerprint(const Geometry& geometry, std::uint64_t seed, bool shuffle, std::size_t prompts) {
  return {{"micro_batch_size", geometry.micro_batch_size},
          {"gradient_accumulation_steps", geometry.gradient_accumulation_steps},
          {"steps_per_generation", geometry.steps_per_generation},
          {"num_iterations", geometry.num_iterations},
          {"num_generations", geometry.num_generations},
          {"seed", seed},
          {"shuffle", shuffle},
          {"prompts", prompts}};
}

RLALGO_INLINE void check_fingerprint(const Json& state, const Json& expected) {
  for (const auto& [key, value] : expected.items()) {
    const auto found = state.find(key);
    if (found == state.end()) raise_state("no '" + key + "'");
    if (*found != value) raise_state("'" + key + "' has changed", value.dump(), found->dump());
  }
}

// What each row of an episode has of its own.
inline Json pack_tokens(const data::Row& r, bool own_prompt) {
  return {{"prompt_ids", own_prompt ? Json(pack(r.prompt_ids)) : Json()},
          {"completion_ids", pack(r.completion_ids)},
          {"sampling_log_probs", pack(r.sampling_log_probs)},
          {"old_log_probs", pack(r.old_log_probs)},
          {"reference_log_probs", pack(r.reference_log_probs)},
          {"loss_mask", pack(r.loss_mask)},
          {"routed_experts", pack(r.routed_experts)},
          {"finish", static_cast<int>(r.finish)},
          {"weights_version", r.weights_version}};
}
inline data::Row unpack_tokens(const Json& row, const data::TokenizedPrompt& prompt) {
  data::Row r;
  const Json opened = row.value("prompt_ids", Json());  // an episode may have begun with another prompt
  r.own_prompt = !opened.is_null();
  r.prompt_ids = r.own_prompt ? unpack<data::TokenId>(opened) : prompt.ids;
  r.completion_ids = unpack<data::TokenId>(row.at("completion_ids"));
  r.sampling_log_probs = unpack<float>(row.at("sampling_log_probs"));
  r.old_log_probs = unpack<float>(row.at("old_log_probs"));
  r.reference_log_probs = unpack<float>(row.at("reference_log_probs"));
  r.loss_mask = unpack<std::uint8_t>(row.at("loss_mask"));
  if (row.contains("routed_experts")) r.routed_experts = unpack<std::uint16_t>(row.at("routed_experts"));
  r.finish = static_cast<data::Finish>(row.at("finish").get<int>());
  r.weights_version = row.at("weights_version").get<std::int64_t>();
  return r;
}

RLALGO_INLINE Json pack_generation(const Generation& generation, std::int64_t number) {
  Json rows = Json::array();
  for (const data::Episode& r : generation.episodes) {
    Json row = pack_tokens(r.first(), r.first().own_prompt || r.interaction || !generation.prompts.empty());
    row["row"] = r.dataset_row;
    row["rewards"] = pack(r.rewards);
    row["advantage"] = pack(std::span<const double>(&r.advantage, 1));
    row["logged"] = r.logged;
    for (const data::Row& further : std::span(r.rows).subspan(1)) row["further"].push_back(pack_tokens(further, true));
    rows.push_back(std::move(row));
  }
  Json out = {{"number", number},
              {"reward_names", generation.rewards.names()},
              {"reward_weights", pack(generation.rewards.weights())},
              {"rollouts", std::move(rows)}};
  if (!generation.prompts.empty()) out["prompts"] = generation.prompts;
  if (!generation.replayed.empty()) out["replayed"] = pack(generation.replayed);
  return out;
}

RLALGO_INLINE std::shared_ptr<Generation> unpack_generation(const Json& packed,
                                                            std::span<const data::TokenizedPrompt> prompts,
                                                            const std::vector<std::size_t>& ordered,
                                                            std::int64_t copies) {
  const auto group_size = static_cast<std::size_t>(copies);
  const auto others = packed.value("prompts", std::vector<std::size_t>());
  if (!others.empty() && others.size() != ordered.size()) raise_state("another number of groups");
  for (const std::size_t i : others)
    if (i >= prompts.size()) raise_state("a prompt outside the dataset", std::to_string(i));
  const std::vector<std::size_t>& chosen = others.empty() ? ordered : others;
  const Json& rows = packed.at("rollouts");
  if (rows.size() != chosen.size() * group_size)
    raise_state("another number of rows", std::to_string(rows.size()), std::to_string(chosen.size() * group_size));
  auto out = std::make_shared<Generation>();
  out->prompts = others;
  if (packed.contains("replayed")) out->replayed = unpack<std::uint8_t>(packed.at("replayed"));
  if (!out->replayed.empty() && out->replayed.size() != ordered.size()) raise_state("another number of groups");
  const auto names = packed.at("reward_names").get<std::vector<std::string>>();
  out->rewards = core::RewardTable(names, unpack<double>(packed.at("reward_weights")), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    const data::TokenizedPrompt& prompt = prompts[chosen[i / group_size]];
    if (row.at("row").get<std::int64_t>() != prompt.row)
      raise_state("the dataset has changed", "row " + std::to_string(prompt.row), "row " + row.at("row").dump());
    data::Episode r;
    r.dataset_row = prompt.row;
    r.prompt = prompt.prompt;
    r.first() = unpack_tokens(row, prompt);
    r.columns = prompt.columns;
    if (i % group_size == 0) {
      r.answer_ids = prompt.answer_ids;
      r.answer_mask = prompt.answer_mask;
    }
    r.rewards = unpack<double>(row.at("rewards"));
    const std::vector<double> advantage = unpack<double>(row.at("advantage"));
    if (advantage.size() != 1 || r.rewards.size() != names.size()) raise_state("damaged row " + std::to_string(i));
    r.advantage = advantage[0];
    r.logged = row.at("logged");
    for (const Json& further : row.value("further", Json::array())) r.rows.push_back(unpack_tokens(further, prompt));
    for (std::size_t k = 0; k < names.size(); ++k) out->rewards(i, k) = r.rewards[k];
    out->episodes.push_back(std::move(r));
  }
  for (std::size_t p = 0; p < chosen.size(); ++p) out->groups.append(group_size);
  return out;
}

RLALGO_INLINE Json pack_made(const Made& made) {
  Json metrics = Json::array(), seconds = Json::array();
  for (const core::Metrics::Entry& e : made.about.metrics.entries()) {
    const double numbers[] = {e.value, e.weight};
    metrics.push_back({{"name", e.name}, {"kind", static_cast<int>(e.kind)}, {"numbers", pack<double>(numbers)}});
  }
  for (const auto& [name, value] : made.about.seconds) seconds.push_back({name, value});
  Json out = pack_generation(*made.generation, made.number);
  out["tokens"] = made.tokens;
  out["metrics"] = std::move(metrics);
  out["seconds"] = std::move(seconds);
  out["warnings"] = made.about.warnings;
  return out;
}

RLALGO_INLINE Made unpack_made(const Json& packed, std::span<const data::TokenizedPrompt> prompts,
                               const std::vector<std::size_t>& chosen, std::int64_t copies) {
  Made out{.number = packed.at("number").get<std::int64_t>(),
           .generation = unpack_generation(packed, prompts, chosen, copies),
           .tokens = packed.at("tokens").get<std::int64_t>(),
           .about = {}};
  using Kind = core::Metrics::Kind;
  for (const Json& entry : packed.at("metrics")) {
    const std::vector<double> numbers = unpack<double>(entry.at("numbers"));
    const int kind = entry.at("kind").get<int>();
    if (numbers.size() != 2 || kind < 0 || kind > static_cast<int>(Kind::last)) raise_state("a damaged metric");
    out.about.metrics.add({entry.at("name").get<std::string>(), static_cast<Kind>(kind), numbers[0], numbers[1]});
  }
  for (const Json& entry : packed.at("seconds"))
    out.about.seconds.emplace_back(entry.at(0).get<std::string>(), entry.at(1).get<double>());
  out.about.warnings = packed.at("warnings").get<std::vector<std::string>>();
  return out;
}

}  // namespace rlalgo::sampler::detail
