// The tokens that a tokenizer's configuration gives a role: bos_token, eos_token, pad_token, unk_token … by name.
//
// Sources, as transformers 5.23 reads them: the tokenizer's class (detail/tokenizer_class.hpp), which some roles have by
// default; tokenizer_config.json, where null takes a role away; special_tokens_map.json (older models), which overrides
// it unless tokenizer_config.json has an added_tokens_decoder. additional_special_tokens counts where
// extra_special_tokens is absent or empty; a map of extra tokens gives them names of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace rlalgo::text {

using Json = nlohmann::ordered_json;

struct SpecialTokens {
  std::map<std::string, std::string, std::less<>> named;  // "eos_token" → "<|im_end|>"; unset roles are absent
  std::vector<std::string> extra;                         // special tokens without a role
  bool pad_is_eos = false;                                // no pad_token was set, so the end token pads

  // What the files say, as they say it: strings or {"content", …}.
  struct Declared {
    std::vector<std::pair<std::string, Json>> roles;  // bos, eos, unk, sep, pad, cls, mask, then others as they come
    std::vector<Json> extra;

    void set(const std::string& role, Json token) {
      const auto at = std::find_if(roles.begin(), roles.end(), [&](const auto& known) { return known.first == role; });
      if (at != roles.end())
        at->second = std::move(token);
      else if (!token.is_null())
        roles.emplace_back(role, std::move(token));
    }
  };

  // `defaults`: role → token, of the tokenizer's class.
  static Declared declarations(const Json& config, const Json& special_tokens_map, const Json& defaults = {}) {
    Declared out;
    for (const char* role : standard_roles) out.roles.emplace_back(role, nullptr);
    if (defaults.is_object())
      for (const auto& [role, token] : defaults.items()) out.set(role, token);
    take_roles(config, out);
    const Json none;
    const auto find = [&](const Json& from, const char* key) -> const Json& {
      return from.is_object() && from.contains(key) ? from.at(key) : none;
    };
    Json extra = find(config, "extra_special_tokens");
    if (extra.empty() && config.is_object() && config.contains("additional_special_tokens"))
      extra = config.at("additional_special_tokens");
    const bool older = !config.is_object() || !config.contains("added_tokens_decoder");
    if (older) {
      take_roles(special_tokens_map, out);
      const bool declared = !extra.is_null() || find(config, "extra_special_tokens").is_array();
      const Json& more = find(special_tokens_map, "extra_special_tokens");
      if (more.is_array())
        for (const Json& token : more) {
          if (!extra.is_array()) extra = Json::array();
          if (std::find(extra.begin(), extra.end(), token) == extra.end()) extra.push_back(token);
        }
      else if (more.is_object())
        extra = more;
      else if (!declared && find(special_tokens_map, "additional_special_tokens").is_array())
        extra = special_tokens_map.at("additional_special_tokens");
    }
    if (extra.is_object())
      for (const auto& [role, token] : extra.items()) out.set(role, token);
    else if (extra.is_array())
      for (const Json& token : extra) out.extra.push_back(token);
    std::erase_if(out.roles, [](const auto& role) { return role.second.is_null(); });
    return out;
  }

  static SpecialTokens from_config(const Json& config, const Json& special_tokens_map, const Json& defaults = {}) {
    SpecialTokens tokens;
    const Declared all = declarations(config, special_tokens_map, defaults);
    for (const auto& [role, token] : all.roles) tokens.named[role] = content_of(token);
    for (const Json& token : all.extra) tokens.extra.push_back(content_of(token));
    if (tokens.get("pad_token").empty() && !tokens.get("eos_token").empty()) {
      tokens.named["pad_token"] = tokens.get("eos_token");
      tokens.pad_is_eos = true;
    }
    return tokens;
  }

  static std::string content_of(const Json& token) {
    return (token.is_object() ? token.at("content") : token).get<std::string>();
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

  // Roles that every class has.
  static constexpr std::array<const char*, 7> standard_roles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                                "pad_token", "cls_token", "mask_token"};

 private:
  // add_bos_token and its kin are no roles: their values are neither texts nor tokens.
  static void take_roles(const Json& from, Declared& out) {
    if (!from.is_object()) return;
    for (const auto& [key, value] : from.items())
      if (key.ends_with("_token") &&
          (value.is_string() || value.is_null() || (value.is_object() && value.contains("content"))))
        out.set(key, value);
  }
};

// What a configuration changes of a tokenizer's tokens, in this order: names of added tokens; roles; tokens that are found
// in a text like added ones; special tokens without a role, which replace those of the files. What the vocabulary does not
// have gets the ids after its last one.
struct TokenChanges {
  std::map<std::int64_t, std::string> renamed;  // id of an added token → its new text
  std::map<std::string, std::string> roles;     // "eos_token" → "<|im_end|>"
  std::vector<std::string> tokens;
  std::vector<std::string> extra;

  [[nodiscard]] bool empty() const { return renamed.empty() && roles.empty() && tokens.empty() && extra.empty(); }
};

}  // namespace rlalgo::text
