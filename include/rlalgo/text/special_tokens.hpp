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
