// Text ↔ token ids, as the Hugging Face tokenizers library does it for byte-pair encodings and unigram models, read
// from tokenizer.json.
//
//   encode: added tokens found in the raw text → normalize → added tokens found in the normalized text → pre-tokenize
//           → BPE or Unigram → post-process (begin- and end-of-text tokens, when asked)
//   decode: ids → token strings, special ones left out when asked → decoder → UTF-8
//
// Source: tokenizers 0.23 and transformers 5 (PreTrainedTokenizerFast), whose results these are, id for id.
// Files: tokenizer.json, tokenizer_config.json, special_tokens_map.json (older models). Ill-formed UTF-8 in the input
// is read as U+FFFD, one per maximal ill-formed piece. All members are const and safe to call from many threads; copies
// are cheap and share the tables. Ids are int32, in [0, vocab_size()); decode ignores others.
//
// Errors: [rlalgo.text.1] a file is missing or unreadable. [rlalgo.text.2] not JSON, or a field of the wrong form.
// [rlalgo.text.3] a model, normalizer, pre-tokenizer, post-processor or decoder that is not supported, by name.
// [rlalgo.text.4] a splitting pattern that cannot be used. [rlalgo.text.5] no merges, or parts that contradict each
// other.
//
// Departures: tokenizer_config.json's clean_up_tokenization_spaces is ignored, as transformers 5 ignores it for BPE. A
// tokenizer without pad_token pads with eos_token. Truncation and padding settings in tokenizer.json are not applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/tokenizer_parts.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text {

class Tokenizer {
 public:
  using Id = std::int32_t;

  static Tokenizer from_directory(const std::filesystem::path& directory) {
    const std::optional<std::string> text = detail::read_if_present(directory / "tokenizer.json");
    if (!text) raise_missing(directory);
    const Json config = detail::read_json_if_present(directory / "tokenizer_config.json");
    const Json map = detail::read_json_if_present(directory / "special_tokens_map.json");
    return Tokenizer(detail::parse_tokenizer_file(*text, (directory / "tokenizer.json").string()), config, map,
                     directory);
  }

  [[noreturn]] static void raise_missing(const std::filesystem::path& directory) {
    core::raise("text", 1,
                {.what = "the tokenizer is missing",
                 .found = "no tokenizer.json",
                 .where = directory.string(),
                 .remedy = "give a Hugging Face model directory with a fast tokenizer (tokenizer.json)"});
  }

  // tokenizer.json as a string, the other two files as JSON (null: absent).
  static Tokenizer from_json(const std::string& tokenizer_json, const Json& config = {},
                             const Json& special_tokens_map = {}) {
    return Tokenizer(detail::parse_tokenizer_file(tokenizer_json, "tokenizer.json"), config, special_tokens_map, {});
  }

  [[nodiscard]] std::vector<Id> encode(std::string_view text, bool add_special_tokens = true) const {
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

  [[nodiscard]] std::string decode(std::span<const Id> ids, bool skip_special_tokens = true) const {
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

  // The id of a token as tokenizer.json spells it: "Ġthe", "<|im_end|>".
  [[nodiscard]] std::optional<Id> token_id(std::string_view token) const {
    const Id id = parts_->find(token);
    return id < 0 ? std::nullopt : std::optional<Id>(id);
  }
  // Empty if no token has this id.
  [[nodiscard]] const std::string& token(Id id) const {
    static const std::string none;
    return exists(id) ? parts_->names[static_cast<std::size_t>(id)] : none;
  }

  [[nodiscard]] std::optional<Id> bos_id() const { return role_id("bos_token"); }
  [[nodiscard]] std::optional<Id> eos_id() const { return role_id("eos_token"); }
  [[nodiscard]] std::optional<Id> pad_id() const { return role_id("pad_token"); }  // the eos token's where none is set
  [[nodiscard]] std::optional<Id> unk_id() const { return role_id("unk_token"); }
  [[nodiscard]] const std::string& bos_token() const { return parts_->roles.get("bos_token"); }  // empty if unset
  [[nodiscard]] const std::string& eos_token() const { return parts_->roles.get("eos_token"); }
  [[nodiscard]] const std::string& pad_token() const { return parts_->roles.get("pad_token"); }
  [[nodiscard]] const SpecialTokens& special_tokens() const { return parts_->roles; }
  [[nodiscard]] bool is_special(Id id) const { return exists(id) && parts_->special[static_cast<std::size_t>(id)]; }

  // One above the highest id. A model may have more embedding rows than that.
  [[nodiscard]] std::size_t vocab_size() const { return parts_->names.size(); }

  // tokenizer_config.json as read; null if there was none.
  [[nodiscard]] const Json& config() const { return *config_; }

  // Copies the tokenizer's files into a directory. tokenizer_config.json gets the pad_token in use.
  void save(const std::filesystem::path& directory) const {
    for (const char* name :
         {"tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"}) {
      const std::optional<std::string> text = detail::read_if_present(source_ / name);
      if (text) core::write_file(directory / name, *text);
    }
    Json config = config_->is_object() ? *config_ : Json::object();
    if (parts_->roles.pad_is_eos) config["pad_token"] = pad_token();
    core::write_file(directory / "tokenizer_config.json", config.dump(2) + "\n");
  }

  // The bytes that an id adds to a text, not always whole characters; only for ByteLevel decoders (see streams_bytes).
  [[nodiscard]] std::string_view token_bytes(Id id, bool skip_special_tokens = true) const {
    if (!exists(id) || (skip_special_tokens && is_special(id))) return {};
    return parts_->bytes[static_cast<std::size_t>(id)];
  }
  // True if decoding is concatenating token_bytes and reading them as UTF-8.
  [[nodiscard]] bool streams_bytes() const { return parts_->decoder.byte_level(); }
  // True if the text of this id depends on the next one (byte fallback reads a run of bytes together).
  [[nodiscard]] bool waits_for_next(Id id) const { return parts_->decoder.waits_for_next(token(id)); }

 private:
  Tokenizer(detail::TokenizerFile file, const Json& config, const Json& map, std::filesystem::path source)
      : parts_(std::make_shared<const detail::TokenizerParts>(
            detail::TokenizerBuilder(std::move(file), config, map).build())),
        config_(std::make_shared<const Json>(config)),
        source_(std::move(source)) {}

  [[nodiscard]] bool exists(Id id) const { return id >= 0 && static_cast<std::size_t>(id) < parts_->names.size(); }
  [[nodiscard]] std::optional<Id> role_id(std::string_view role) const {
    const std::string& name = parts_->roles.get(role);
    return name.empty() ? std::nullopt : token_id(name);
  }

  // A stretch of raw text without un-normalized added tokens.
  void encode_part(std::string_view raw, bool at_start, std::vector<Id>& ids) const {
    detail::PreText pre;
    const auto pieces = [&](std::string_view text, bool first) {
      pre.text.assign(text);
      pre.pieces.assign(1, {0, text.size()});
      pre.at_start = first;
      parts_->pre_tokenizer.apply(pre);
      const std::string_view split = pre.text;
      for (const detail::Span piece : pre.pieces)
        parts_->encode(split.substr(piece.begin, piece.end - piece.begin), ids);
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

  std::shared_ptr<const detail::TokenizerParts> parts_;
  std::shared_ptr<const Json> config_;
  std::filesystem::path source_;
};

}  // namespace rlalgo::text
