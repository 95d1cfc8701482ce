// The tokens that a tokenizer's configuration gives a role: bos_token, eos_token, pad_token, unk_token … by name.
//
// Sources, as transformers 5 reads them: tokenizer_config.json; special_tokens_map.json (older models) overrides it,
// unless tokenizer_config.json has an added_tokens_decoder, which makes the older file obsolete.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace rlalgo::text {

using Json = nlohmann::ordered_json;

struct SpecialTokens {
  std::map<std::string, std::string, std::less<>> named;  // "eos_token" → "<|im_end|>"; unset roles are absent
  std::vector<std::string> extra;                         // special tokens without a role
  bool pad_is_eos = false;                                // no pad_token was set, so the end token pads

  // What the two files say, as they say it: role → string or {"content", …}, and the two lists of extra tokens.
  static Json declarations(const Json& config, const Json& special_tokens_map) {
    Json all = Json::object();
    const auto take = [&](const Json& from) {
      if (!from.is_object()) return;
      for (const auto& [key, value] : from.items()) {
        const bool role =
            key.ends_with("_token") && (value.is_string() || (value.is_object() && value.contains("content")));
        const bool extra =
            (key == "additional_special_tokens" || key == "extra_special_tokens") && value.is_structured();
        if (role || extra) all[key] = value;
      }
    };
    take(config);
    if (!config.is_object() || !config.contains("added_tokens_decoder")) take(special_tokens_map);
    return all;
  }

  static SpecialTokens from_config(const Json& config, const Json& special_tokens_map) {
    SpecialTokens tokens;
    const auto content = [](const Json& token) {
      return (token.is_object() ? token.at("content") : token).get<std::string>();
    };
    const Json all = declarations(config, special_tokens_map);
    for (const auto& [key, value] : all.items()) {
      if (key.ends_with("_token")) {
        tokens.named[key] = content(value);
      } else if (value.is_object()) {  // extra tokens with names of their own
        for (const auto& [role, token] : value.items()) tokens.named[role] = content(token);
      } else {
        for (const Json& token : value) tokens.extra.push_back(content(token));
      }
    }
    if (tokens.get("pad_token").empty() && !tokens.get("eos_token").empty()) {
      tokens.named["pad_token"] = tokens.get("eos_token");
      tokens.pad_is_eos = true;
    }
    return tokens;
  }

  // Empty if the role is unset.
  [[nodiscard]] const std::string& get(std::string_view role) const {
    static const std::string unset;
    const auto found = named.find(role);
    return found == named.end() ? unset : found->second;
  }

  // {"bos_token": "<s>", …}: the variables that chat templates see.
  [[nodiscard]] Json to_json() const {
    Json object = Json::object();
    for (const auto& [role, token] : named) object[role] = token;
    return object;
  }
};

}  // namespace rlalgo::text
