// What TokenChanges does to a tokenizer's files: names of added tokens before they are read, the other changes when they
// are written.
//
// Errors: [rlalgo.text.11] no added token has the id, or another token has the new name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/tokenizer_class.hpp>
#include <rlalgo/text/detail/tokenizer_file.hpp>
#include <rlalgo/text/detail/tokenizer_parts.hpp>

namespace rlalgo::text::detail {

[[noreturn]] inline void refuse_new_name(std::int64_t id, const std::string& name, const std::string& found) {
  core::raise("text", 11,
              {.what = "a token cannot get another name",
               .found = found,
               .expected = "the id of an added token, and a name that no token has",
               .where = "added_tokens_overrides: {" + std::to_string(id) + ": " + name + "}",
               .remedy = "ids of added tokens are in added_tokens of tokenizer.json"});
}

// A text, or an object's content, that is `before`.
inline void rename_token(Json& token, const std::string& before, const std::string& after) {
  if (token == before) token = after;
  if (token.is_object() && token.contains("content") && token["content"] == before) token["content"] = after;
}

// In roles and lists of special tokens.
inline void rename_roles(Json& config, const std::string& before, const std::string& after) {
  if (!config.is_object()) return;
  for (auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) rename_token(value, before, after);
    if ((key == "extra_special_tokens" || key == "additional_special_tokens") && value.is_structured())
      for (Json& token : value) rename_token(token, before, after);
  }
}

// The new name of the token with this id in added_tokens of tokenizer.json; its old one.
inline std::string rename_added(std::int64_t id, const std::string& name, Json& rest) {
  std::string before;
  if (rest.contains("added_tokens"))
    for (Json& token : rest["added_tokens"]) {
      if (token.at("content") == name) refuse_new_name(id, name, "token " + token.at("id").dump() + " has that name");
      if (token.at("id") != id) continue;
      before = token.at("content").get<std::string>();
      token["content"] = name;
    }
  if (before.empty()) refuse_new_name(id, name, "no added token with the id " + std::to_string(id));
  return before;
}

// Roles that name the token follow.
inline void rename(const TokenChanges& changes, TokenizerFile& file, TokenizerSource& source) {
  for (const auto& [id, name] : changes.renamed) {
    for (const auto& [known, at] : file.vocabulary)
      if (known == name) refuse_new_name(id, name, "token " + std::to_string(at) + " has that name");
    const std::string before = rename_added(id, name, file.rest);
    for (auto& [known, at] : file.vocabulary)
      if (at == id) known = name;
    for (Json* config : {&source.config, &source.special_tokens_map}) rename_roles(*config, before, name);
    if (source.config.is_object() && source.config.contains("added_tokens_decoder"))
      for (Json& token : source.config["added_tokens_decoder"]) rename_token(token, before, name);
    if (source.added.is_object() && source.added.contains(before)) {
      source.added[name] = source.added[before];
      source.added.erase(before);
    }
  }
}

// The tokens that were added or changed, as tokenizer.json lists them.
[[nodiscard]] inline Json listed(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

// tokenizer.json with all added tokens as they are now.
[[nodiscard]] inline Json with_changes(Json file, const TokenizerParts& parts) {
  for (const auto& [id, name] : parts.changes.renamed) {
    if (!file["model"].contains("vocab") || !file["model"]["vocab"].is_object()) continue;
    Json renamed = Json::object();
    for (const auto& [known, at] : file["model"]["vocab"].items()) renamed[at == id ? name : known] = at;
    file["model"]["vocab"] = std::move(renamed);
  }
  std::vector<AddedToken> tokens = parts.added;
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  file["added_tokens"] = Json::array();
  for (const AddedToken& token : tokens) file["added_tokens"].push_back(listed(token));
  return file;
}

// tokenizer_config.json: roles, extra tokens, and the list of added tokens where it has one.
inline void write_roles(const TokenizerParts& parts, Json& config) {
  for (const auto& [role, token] : parts.roles.named) config[role] = token;
  if (!parts.roles.extra.empty()) {
    config.erase("additional_special_tokens");
    config["extra_special_tokens"] = parts.roles.extra;
  }
  if (!config.contains("added_tokens_decoder")) return;
  config["added_tokens_decoder"] = Json::object();
  for (const AddedToken& token : parts.added) {
    Json entry = listed(token);
    entry.erase("id");
    config["added_tokens_decoder"][std::to_string(token.id)] = std::move(entry);
  }
}

}  // namespace rlalgo::text::detail
