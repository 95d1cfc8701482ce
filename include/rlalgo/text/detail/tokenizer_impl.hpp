// Definitions of tokenizer.hpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/text/detail/token_changes.hpp>
#include <rlalgo/text/detail/tokenizer_parts.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::text {

RLALGO_INLINE Tokenizer Tokenizer::from_directory(const std::filesystem::path& directory, const TokenChanges& changes) {
  const std::optional<std::string> text = detail::read_if_present(directory / "tokenizer.json");
  if (!text) raise_missing(directory);
  return Tokenizer(*text, detail::read_tokenizer_source(directory), directory, changes);
}

RLALGO_INLINE void Tokenizer::raise_missing(const std::filesystem::path& directory) {
  core::raise("text", 1,
              {.what = "the tokenizer is missing",
               .found = "no tokenizer.json",
               .where = directory.string(),
               .remedy = "give a Hugging Face model directory with a fast tokenizer (tokenizer.json)"});
}

RLALGO_INLINE Tokenizer Tokenizer::from_json(const std::string& tokenizer_json, const Json& config,
                                             const Json& special_tokens_map) {
  return Tokenizer(tokenizer_json, {.config = config, .special_tokens_map = special_tokens_map}, {}, {});
}

RLALGO_INLINE Tokenizer::Tokenizer(const std::string& text, detail::TokenizerSource source,
                                   std::filesystem::path directory, const TokenChanges& changes)
    : source_(std::move(directory)) {
  const detail::TokenizerClass made_by =
      detail::class_of(source, [&] { return text.find("\"ByteLevel\"") != std::string::npos; });
  detail::TokenizerFile file =
      detail::parse_tokenizer_file(text, source_.empty() ? "tokenizer.json" : (source_ / "tokenizer.json").string());
  detail::rename(changes, file, source);
  config_ = std::make_shared<const Json>(source.config);
  parts_ = std::make_shared<const detail::TokenizerParts>(
      detail::TokenizerBuilder(std::move(file), source, made_by, changes).build());
}

RLALGO_INLINE std::vector<Tokenizer::Id> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  if (!detail::is_valid_utf8(text)) return encode(detail::to_valid_utf8(text), add_special_tokens);
  std::vector<Id> ids;
  ids.reserve(text.size() / 3 + 8);
  const auto& [before, after] = std::pair(parts_->post_processor.before(), parts_->post_processor.after());
  if (add_special_tokens) ids.insert(ids.end(), before.begin(), before.end());
  parts_->raw_matcher.split(
      text,
      [&](detail::Span span) { encode_part(text.substr(span.begin, span.end - span.begin), span.begin == 0, ids); },
      [&](Id id) { ids.push_back(id); });
  if (add_special_tokens) ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

RLALGO_INLINE void Tokenizer::encode_part(std::string_view raw, bool at_start, std::vector<Id>& ids) const {
  detail::PreText pre;
  const auto pieces = [&](std::string_view text, bool first) {
    pre.text.assign(text);
    pre.pieces.assign(1, {0, text.size()});
    pre.at_start = first;
    parts_->pre_tokenizer.apply(pre);
    const std::string_view split = pre.text;
    for (const detail::Span piece : pre.pieces) parts_->encode(split.substr(piece.begin, piece.end - piece.begin), ids);
  };
  if (parts_->normalizer.empty() && parts_->normalized_matcher.empty()) {
    pieces(raw, at_start);
    return;
  }
  const std::string text = parts_->normalizer.apply(raw);
  parts_->normalized_matcher.split(
      text,
      [&](detail::Span span) {
        pieces(std::string_view(text).substr(span.begin, span.end - span.begin), at_start && span.begin == 0);
      },
      [&](Id id) { ids.push_back(id); });
}

RLALGO_INLINE std::string Tokenizer::decode(std::span<const Id> ids, bool skip_special_tokens) const {
  if (parts_->decoder.byte_level()) {
    std::string bytes;
    for (const Id id : ids) bytes += token_bytes(id, skip_special_tokens);
    return detail::is_valid_utf8(bytes) ? bytes : detail::to_valid_utf8(bytes);
  }
  std::vector<std::string> tokens;
  for (const Id id : ids) {
    if (exists(id) && !(skip_special_tokens && is_special(id)))
      tokens.push_back(parts_->names[static_cast<std::size_t>(id)]);
  }
  return parts_->decoder.apply(std::move(tokens));
}

RLALGO_INLINE std::optional<Tokenizer::Id> Tokenizer::token_id(std::string_view token) const {
  const Id id = parts_->find(token);
  return id < 0 ? std::nullopt : std::optional<Id>(id);
}

RLALGO_INLINE const std::string& Tokenizer::token(Id id) const {
  static const std::string none;
  return exists(id) ? parts_->names[static_cast<std::size_t>(id)] : none;
}

RLALGO_INLINE const SpecialTokens& Tokenizer::special_tokens() const { return parts_->roles; }

RLALGO_INLINE bool Tokenizer::is_special(Id id) const {
  return exists(id) && parts_->special[static_cast<std::size_t>(id)];
}

RLALGO_INLINE std::size_t Tokenizer::vocab_size() const { return parts_->names.size(); }

RLALGO_INLINE const TokenChanges& Tokenizer::changes() const { return parts_->changes; }

RLALGO_INLINE std::vector<std::string> Tokenizer::new_tokens() const {
  std::vector<std::string> out;
  for (const Id id : parts_->added_by_changes) out.push_back(parts_->names[static_cast<std::size_t>(id)]);
  return out;
}

RLALGO_INLINE void Tokenizer::save(const std::filesystem::path& directory) const {
  const TokenChanges& changed = parts_->changes;
  for (const char* name :
       {"tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"}) {
    std::optional<std::string> text = detail::read_if_present(source_ / name);
    if (!text) continue;
    if (!changed.empty() && std::string_view(name).starts_with("tokenizer"))
      text = detail::with_changes(detail::parse_json(*text, (source_ / name).string()), *parts_).dump() + "\n";
    // Roles in the older files would win over the new ones; what they list is in the other two.
    if (!changed.empty() && std::string_view(name).ends_with("s_map.json")) continue;
    if (!changed.empty() && std::string_view(name).starts_with("added")) continue;
    os::write_file(directory / name, *text);
  }
  Json config = config_->is_object() ? *config_ : Json::object();
  if (parts_->roles.pad_is_eos) config["pad_token"] = pad_token();
  if (const std::string_view name = detail::name_of(parts_->made_by); !name.empty()) config["tokenizer_class"] = name;
  if (!changed.empty()) detail::write_roles(*parts_, config);
  os::write_file(directory / "tokenizer_config.json", config.dump(2) + "\n");
}

RLALGO_INLINE std::string_view Tokenizer::token_bytes(Id id, bool skip_special_tokens) const {
  if (!exists(id) || (skip_special_tokens && is_special(id))) return {};
  return parts_->bytes[static_cast<std::size_t>(id)];
}

RLALGO_INLINE bool Tokenizer::streams_bytes() const { return parts_->decoder.byte_level(); }

RLALGO_INLINE bool Tokenizer::waits_for_next(Id id) const { return parts_->decoder.waits_for_next(token(id)); }

RLALGO_INLINE bool Tokenizer::exists(Id id) const {
  return id >= 0 && static_cast<std::size_t>(id) < parts_->names.size();
}

RLALGO_INLINE std::optional<Tokenizer::Id> Tokenizer::role_id(std::string_view role) const {
  const std::string& name = special_tokens().get(role);
  return name.empty() ? std::nullopt : token_id(name);
}

}  // namespace rlalgo::text
