// Tokens and roles that a run gives a tokenizer beyond those of its file: what the model must have for them, and what
// generation_config.json says of them.
//
// Errors (usage): [rlalgo.config.47] a new token for which the model has no embedding, or an adapter trains none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::assembly::detail {

[[noreturn]] inline void refuse_new_token(const std::string& where, const std::string& token, const std::string& found,
                                          const std::string& expected, const std::string& remedy) {
  core::raise_usage("config", 47,
                    {.what = "the token '" + token + "' is new to the tokenizer, and cannot be trained",
                     .found = found,
                     .expected = expected,
                     .where = where,
                     .remedy = remedy});
}

// A new pad_token that is nothing else.
[[nodiscard]] inline bool pads_out_of_range(const text::Tokenizer& tokenizer, std::int64_t rows) {
  const auto& roles = tokenizer.changes().roles;
  if (!roles.contains("pad_token") || tokenizer.pad_id().value_or(0) < rows) return false;
  const std::vector<std::string> added = tokenizer.new_tokens();
  const std::string& pad = roles.at("pad_token");
  return std::find(added.begin(), added.end(), pad) != added.end() &&
         std::count_if(roles.begin(), roles.end(), [&](const auto& role) { return role.second == pad; }) == 1;
}

// A new token needs a row of the embedding, and, unless it only pads, one that is trained.
// `adapter`: null where all weights are trained. `where`: the place that named the tokens.
inline void check_new_tokens(const text::Tokenizer& tokenizer, std::int64_t rows, const model::LoraConfig* adapter,
                             const std::string& where) {
  for (const std::string& token : tokenizer.new_tokens()) {
    const std::int64_t id = tokenizer.token_id(token).value_or(0);
    if (id >= rows)
      refuse_new_token(
          where, token,
          "it would be token " + std::to_string(id) + ", and the embedding has " + std::to_string(rows) + " rows",
          "a token of the vocabulary, or a free row",
          "name a token that tokenizer.json has, rename a reserved one (added_tokens_overrides), or "
          "resize the embedding beforehand");
    const auto& roles = tokenizer.changes().roles;
    const bool means = std::any_of(roles.begin(), roles.end(),
                                   [&](const auto& role) { return role.second == token && role.first != "pad_token"; });
    if (!means || adapter == nullptr) continue;
    const auto& whole = adapter->modules_to_save;
    const auto saved = [&](const char* name) { return std::find(whole.begin(), whole.end(), name) != whole.end(); };
    if (!saved("embed_tokens") || !saved("lm_head"))
      refuse_new_token(where, token, "an adapter that leaves the embedding as it is",
                       "lora_modules_to_save: [embed_tokens, lm_head]",
                       "set that, or name a token that tokenizer.json has");
  }
}

// Roles that the configuration sets, in generation_config.json: the end first, before those that it has.
inline void align_generation_config(const text::Tokenizer& tokenizer, const model::HfConfig& base,
                                    std::optional<data::Json>& generation) {
  const auto& roles = tokenizer.changes().roles;
  if (!roles.contains("eos_token") && !roles.contains("bos_token") && !roles.contains("pad_token")) return;
  if (!generation) generation = model::detail::default_generation_config(base.json);
  data::Json& config = *generation;
  if (roles.contains("eos_token")) {
    data::Json ends = data::Json::array({*tokenizer.eos_id()});
    const data::Json before = config.value("eos_token_id", data::Json());
    for (const data::Json& id : before.is_array() ? before : data::Json::array({before}))
      if (id.is_number_integer() && id != ends[0]) ends.push_back(id);
    config["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  }
  if (roles.contains("bos_token")) config["bos_token_id"] = *tokenizer.bos_id();
  if (roles.contains("pad_token")) config["pad_token_id"] = *tokenizer.pad_id();
}

}  // namespace rlalgo::assembly::detail
