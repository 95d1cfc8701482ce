// Text ↔ token ids, as the Hugging Face tokenizers library does it for byte-pair encodings and unigram models, read
// from tokenizer.json.
//
//   encode: added tokens found in the raw text → normalize → added tokens found in the normalized text → pre-tokenize
//           → BPE or Unigram → post-process (begin- and end-of-text tokens, when asked)
//   decode: ids → token strings, special ones left out when asked → decoder → UTF-8
//
// Source: tokenizers 0.23 and transformers 5.23 (AutoTokenizer), whose results these are, id for id: of the class that the
// files name, which may have a pipeline of its own (detail/tokenizer_class.hpp).
// Files: tokenizer.json, tokenizer_config.json, config.json (model_type), and of older models special_tokens_map.json and
// added_tokens.json. add_bos_token and add_eos_token of tokenizer_config.json do not count: what surrounds a text is the
// post-processor's business. Ill-formed UTF-8 in the input is read as U+FFFD, one per maximal ill-formed piece. All members are const and safe to call from many threads; copies
// are cheap and share the tables. Ids are int32, in [0, vocab_size()); decode ignores others.
//
// Errors: [rlalgo.text.1] a file is missing or unreadable. [rlalgo.text.2] not JSON, or a field of the wrong form.
// [rlalgo.text.3] a model, normalizer, pre-tokenizer, post-processor or decoder that is not supported, by name.
// [rlalgo.text.4] a splitting pattern that cannot be used. [rlalgo.text.5] no merges, or parts that contradict each
// other. [rlalgo.text.11] a token cannot be renamed.
//
// Departures: tokenizer_config.json's clean_up_tokenization_spaces is ignored, as transformers 5 ignores it for BPE. A
// tokenizer without pad_token pads with eos_token. Truncation and padding settings in tokenizer.json are not applied. A
// role that is an object needs no "__type".
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text {

namespace detail {
struct TokenizerParts;
struct TokenizerSource;
}  // namespace detail

class Tokenizer {
 public:
  using Id = std::int32_t;

  static Tokenizer from_directory(const std::filesystem::path& directory, const TokenChanges& changes = {});
  [[noreturn]] static void raise_missing(const std::filesystem::path& directory);

  // tokenizer.json as a string, the other two files as JSON (null: absent).
  static Tokenizer from_json(const std::string& tokenizer_json, const Json& config = {},
                             const Json& special_tokens_map = {});

  [[nodiscard]] std::vector<Id> encode(std::string_view text, bool add_special_tokens = true) const;
  [[nodiscard]] std::string decode(std::span<const Id> ids, bool skip_special_tokens = true) const;

  // The id of a token as tokenizer.json spells it: "Ġthe", "<|im_end|>".
  [[nodiscard]] std::optional<Id> token_id(std::string_view token) const;
  // Empty if no token has this id.
  [[nodiscard]] const std::string& token(Id id) const;

  [[nodiscard]] std::optional<Id> bos_id() const { return role_id("bos_token"); }
  [[nodiscard]] std::optional<Id> eos_id() const { return role_id("eos_token"); }
  [[nodiscard]] std::optional<Id> pad_id() const { return role_id("pad_token"); }  // the eos token's where none is set
  [[nodiscard]] std::optional<Id> unk_id() const { return role_id("unk_token"); }
  [[nodiscard]] const std::string& bos_token() const { return special_tokens().get("bos_token"); }  // empty if unset
  [[nodiscard]] const std::string& eos_token() const { return special_tokens().get("eos_token"); }
  [[nodiscard]] const std::string& pad_token() const { return special_tokens().get("pad_token"); }
  [[nodiscard]] const SpecialTokens& special_tokens() const;
  [[nodiscard]] bool is_special(Id id) const;

  // What was changed when it was read, and the tokens among that which its files do not have.
  [[nodiscard]] const TokenChanges& changes() const;
  [[nodiscard]] std::vector<std::string> new_tokens() const;

  // One above the highest id. A model may have more embedding rows than that.
  [[nodiscard]] std::size_t vocab_size() const;

  // tokenizer_config.json as read; null if there was none.
  [[nodiscard]] const Json& config() const { return *config_; }

  // Copies the tokenizer's files into a directory, with what was changed. tokenizer_config.json gets the pad_token in
  // use, and the class where that changes what tokenizer.json says: config.json need not be there then.
  void save(const std::filesystem::path& directory) const;

  // The bytes that an id adds to a text, not always whole characters; only for ByteLevel decoders (see streams_bytes).
  [[nodiscard]] std::string_view token_bytes(Id id, bool skip_special_tokens = true) const;
  // True if decoding is concatenating token_bytes and reading them as UTF-8.
  [[nodiscard]] bool streams_bytes() const;
  // True if the text of this id depends on the next one (byte fallback reads a run of bytes together).
  [[nodiscard]] bool waits_for_next(Id id) const;

 private:
  Tokenizer(const std::string& text, detail::TokenizerSource source, std::filesystem::path directory,
            const TokenChanges& changes);

  [[nodiscard]] bool exists(Id id) const;
  [[nodiscard]] std::optional<Id> role_id(std::string_view role) const;
  // A stretch of raw text without un-normalized added tokens.
  void encode_part(std::string_view raw, bool at_start, std::vector<Id>& ids) const;

  std::shared_ptr<const detail::TokenizerParts> parts_;
  std::shared_ptr<const Json> config_;
  std::filesystem::path source_;
};

}  // namespace rlalgo::text

#ifndef RLALGO_COMPILED
#include <rlalgo/text/detail/tokenizer_impl.hpp>
#endif
