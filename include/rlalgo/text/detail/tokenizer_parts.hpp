// Builds the parts of a tokenizer from its files.
//
// Errors: [rlalgo.text.2] a field with the wrong form. [rlalgo.text.3] a model or step that is not supported.
// [rlalgo.text.5] no merges, a merge of unknown tokens, a named token without an id.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/added_tokens.hpp>
#include <rlalgo/text/detail/bpe.hpp>
#include <rlalgo/text/detail/byte_level.hpp>
#include <rlalgo/text/detail/decoder.hpp>
#include <rlalgo/text/detail/normalizer.hpp>
#include <rlalgo/text/detail/post_processor.hpp>
#include <rlalgo/text/detail/pre_tokenizer.hpp>
#include <rlalgo/text/detail/tokenizer_class.hpp>
#include <rlalgo/text/detail/tokenizer_file.hpp>
#include <rlalgo/text/detail/unigram.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text::detail {

struct TokenizerParts {
  std::vector<AddedToken> added;
  std::map<std::string, std::size_t, std::less<>> added_by_content;  // index in `added`
  AddedTokenMatcher raw_matcher;                                     // tokens looked for in the text as it comes
  AddedTokenMatcher normalized_matcher;                              // tokens looked for after normalization
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::variant<Bpe, Unigram> model;
  StringTable odd_names;  // byte-level models: vocabulary entries not written in the byte alphabet
  PostProcessor post_processor;
  Decoder decoder;
  std::vector<std::string> names;   // id → token as tokenizer.json spells it; empty = no such id
  std::vector<std::string> bytes;   // id → bytes under a ByteLevel decoder
  std::vector<bool> special;        // id → left out when special tokens are skipped
  std::size_t vocabulary_size = 0;  // entries of the model's vocabulary
  SpecialTokens roles;
  TokenizerClass made_by = TokenizerClass::as_in_file;
  TokenChanges changes;
  std::vector<std::int32_t> added_by_changes;  // tokens that the files do not have

  [[nodiscard]] std::int32_t find(std::string_view token) const {
    const auto added_at = added_by_content.find(token);
    if (added_at != added_by_content.end()) return added[added_at->second].id;
    if (!pre_tokenizer.byte_level()) return find_symbols(token);
    if (!is_valid_utf8(token)) return -1;
    const std::optional<std::string> symbols = bytes_of_characters(token);
    return symbols ? find_symbols(*symbols) : odd_names.find(token);
  }
  [[nodiscard]] std::int32_t find_symbols(std::string_view symbols) const {
    return std::visit([&](const auto& m) { return m.find(symbols); }, model);
  }
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const {
    std::visit([&](const auto& m) { m.encode(piece, ids); }, model);
  }
};

class TokenizerBuilder {
 public:
  TokenizerBuilder(TokenizerFile file, const TokenizerSource& source, TokenizerClass made_by,
                   const TokenChanges& changes = {})
      : file_(std::move(file)), config_(source.config), source_(source), class_(made_by) {
    parts_.changes = changes;
  }

  [[nodiscard]] TokenizerParts build() {
    try {
      Json& rest = file_.rest;
      parts_.made_by = class_;
      const Json defaults = default_roles(class_);
      declared_ = SpecialTokens::declarations(config_, source_.special_tokens_map, defaults);
      parts_.roles = SpecialTokens::from_config(config_, source_.special_tokens_map, defaults);
      const bool rebuilt = rebuilds(class_, file_, PreTokenizer(field(rest, "pre_tokenizer")).byte_level());
      if (rebuilt) rebuild(class_, config_, parts_.roles.get("unk_token"), rest);
      parts_.normalizer = Normalizer(field(rest, "normalizer"));
      parts_.pre_tokenizer = PreTokenizer(field(rest, "pre_tokenizer"));
      parts_.post_processor = PostProcessor(field(rest, "post_processor"));
      parts_.decoder = Decoder(field(rest, "decoder"));
      build_model();
      const Json& added = field(rest, "added_tokens");
      if (!rebuilt)
        for (const Json& token : added.is_null() ? Json::array() : added) add(added_token(token));
      add_declared(added);
      apply_changes();
      choose_post_processor();
      fill_tables();
    } catch (const Json::exception& error) {
      raise_bad_json("tokenizer.json or tokenizer_config.json", core::json_reason(error.what()));
    }
    return std::move(parts_);
  }

 private:
  static const Json& field(const Json& object, const char* name) {
    static const Json none;
    return object.is_object() && object.contains(name) ? object.at(name) : none;
  }

  [[noreturn]] static void inconsistent(const std::string& what, const std::string& found, const std::string& where) {
    core::raise("text", 5,
                {.what = what,
                 .found = found,
                 .where = where,
                 .remedy = "the tokenizer files do not belong together or are damaged"});
  }

  void build_model() {
    const Json& model = field(file_.rest, "model");
    std::string type = model.is_object() ? model.value("type", "") : "";
    if (type.empty() && file_.has_merges) type = "BPE";
    if (type == "Unigram") return build_unigram(model);
    if (type != "BPE") refuse_component("model", type, "BPE or Unigram");
    if (!file_.scores.empty())
      inconsistent("a vocabulary with scores does not belong to a BPE model", "a list",
                   "model.vocab in tokenizer.json");
    if (!file_.has_merges) {
      core::raise("text", 5,
                  {.what = "the tokenizer has no merges",
                   .found = std::to_string(file_.vocabulary.size()) + " tokens and no \"merges\"",
                   .expected = "a list \"merges\" under \"model\"",
                   .where = "tokenizer.json",
                   .remedy = "save the tokenizer again with transformers (save_pretrained)"});
    }
    if (file_.vocabulary.empty())
      inconsistent("the tokenizer has an empty vocabulary", "no tokens", "model.vocab in tokenizer.json");
    const Json& dropout = field(model, "dropout");
    if (dropout.is_number() && dropout.get<double>() != 0.0) refuse_component("model option", "dropout", "no dropout");
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (field(model, affix).is_string() && !model.at(affix).get_ref<const std::string&>().empty()) {
        refuse_component("model option", affix, "none");
      }
    }

    const bool byte_symbols = parts_.pre_tokenizer.byte_level();
    StringTable symbols;
    symbols.reserve(file_.vocabulary.size());
    std::int64_t highest = 0;
    // Ids index tables, so they may not be far above the number of tokens.
    const auto id_ceiling = static_cast<std::int64_t>(65'536 + 4 * file_.vocabulary.size());
    for (const auto& [name, id] : file_.vocabulary) {
      if (id < 0 || id >= id_ceiling)
        inconsistent("a token has an impossible id", "'" + name + "': " + std::to_string(id),
                     "model.vocab in tokenizer.json");
      highest = std::max(highest, id);
      grow(id);
      parts_.names[static_cast<std::size_t>(id)] = name;
      if (!byte_symbols) {
        symbols.insert(name, static_cast<std::int32_t>(id));
      } else if (const std::optional<std::string> bytes = bytes_of_characters(name)) {
        symbols.insert(*bytes, static_cast<std::int32_t>(id));
      } else {
        parts_.odd_names.insert(name, static_cast<std::int32_t>(id));
      }
    }
    parts_.vocabulary_size = file_.vocabulary.size();

    BpeOptions options;
    options.byte_symbols = byte_symbols;
    options.ignore_merges = flag(model, "ignore_merges");
    options.byte_fallback = flag(model, "byte_fallback");
    options.fuse_unknown = flag(model, "fuse_unk");
    const Json& unknown = field(model, "unk_token");
    if (unknown.is_string()) {
      const auto& name = unknown.get_ref<const std::string&>();
      const std::optional<std::string> bytes = byte_symbols ? bytes_of_characters(name) : name;
      options.unknown = bytes ? symbols.find(*bytes) : parts_.odd_names.find(name);
    }
    Bpe bpe(std::move(symbols), file_.merges.size(), static_cast<std::size_t>(highest) + 1, options);
    add_merges(bpe, byte_symbols);
    parts_.model = std::move(bpe);
  }

  void build_unigram(const Json& model) {
    if (file_.scores.empty())
      inconsistent("a Unigram model has no scores", std::to_string(file_.vocabulary.size()) + " tokens",
                   "model.vocab in tokenizer.json");
    if (parts_.pre_tokenizer.byte_level())
      refuse_component("pre_tokenizer of a Unigram model", "ByteLevel", "Metaspace");
    const Json& unknown = field(model, "unk_id");
    const std::int64_t id = unknown.is_number_integer() ? unknown.get<std::int64_t>() : -1;
    if (id >= static_cast<std::int64_t>(file_.vocabulary.size()) || id < -1)
      inconsistent("the unknown token has an impossible id", std::to_string(id), "model.unk_id in tokenizer.json");
    for (const auto& [name, unused] : file_.vocabulary) parts_.names.push_back(name);
    parts_.vocabulary_size = file_.vocabulary.size();
    parts_.model =
        Unigram(file_.vocabulary, std::move(file_.scores), static_cast<std::int32_t>(id), flag(model, "byte_fallback"));
  }

  static bool flag(const Json& object, const char* name) {
    const Json& value = field(object, name);
    return value.is_boolean() && value.get<bool>();
  }

  void add_merges(Bpe& bpe, bool byte_symbols) {
    const auto id_of = [&](const std::string& token, std::size_t rank) {
      std::int32_t id = -1;
      if (!byte_symbols) {
        id = bpe.find(token);
      } else if (const std::optional<std::string> bytes = bytes_of_characters(token)) {
        id = bpe.find(*bytes);
      }
      if (id < 0) {
        inconsistent("a merge names a token that the vocabulary does not have", "'" + token + "'",
                     "merge " + std::to_string(rank) + " in tokenizer.json");
      }
      return id;
    };
    for (std::size_t rank = 0; rank < file_.merges.size(); ++rank) {
      const auto& [left, right] = file_.merges[rank];
      const std::int32_t left_id = id_of(left, rank), right_id = id_of(right, rank);
      bpe.add_merge(left_id, right_id, id_of(left + right, rank), static_cast<std::uint32_t>(rank));
    }
  }

  // `special`: it is, whatever the file says.
  static AddedToken added_token(const Json& spec, bool special = false) {
    AddedToken token;
    token.content = spec.at("content").get<std::string>();
    token.single_word = flag(spec, "single_word");
    token.lstrip = flag(spec, "lstrip");
    token.rstrip = flag(spec, "rstrip");
    token.special = special || flag(spec, "special");
    token.normalized = spec.contains("normalized") ? flag(spec, "normalized") : !token.special;
    return token;
  }

  // The id is the vocabulary's if it has the content, else one above all others, whatever the file says. A token that is
  // added again has the flags of the last time, but for `special`, which it keeps.
  void add(AddedToken token) {
    if (token.content.empty()) return;
    const auto known = parts_.added_by_content.find(token.content);
    if (known != parts_.added_by_content.end()) {
      AddedToken& old = parts_.added[known->second];
      token.id = old.id;
      token.special |= old.special;
      old = std::move(token);
      return;
    }
    token.id = parts_.find(token.content);
    if (token.id < 0) {
      std::int64_t next = static_cast<std::int64_t>(parts_.vocabulary_size);
      for (const AddedToken& other : parts_.added) next = std::max<std::int64_t>(next, other.id + 1);
      token.id = static_cast<std::int32_t>(next);
    }
    grow(token.id);
    parts_.names[static_cast<std::size_t>(token.id)] = token.content;
    parts_.added_by_content.emplace(token.content, parts_.added.size());
    parts_.added.push_back(std::move(token));
  }

  void grow(std::int64_t id) {
    if (static_cast<std::size_t>(id) >= parts_.names.size()) parts_.names.resize(static_cast<std::size_t>(id) + 1);
  }

  // The tokens that the files list beside the vocabulary, then the roles and extra tokens that are not among them.
  void add_declared(const Json& in_file) {
    std::map<std::int64_t, AddedToken> listed = listed_tokens(in_file);
    std::set<std::string, std::less<>> known;
    for (const AddedToken& token : parts_.added) known.insert(token.content);
    for (auto& [id, token] : listed) {
      known.insert(token.content);
      add(token);
    }
    for (const auto& [role, token] : declared_.roles)
      if (!known.contains(SpecialTokens::content_of(token))) add(special_token(token, true));
    for (const Json& token : declared_.extra)
      if (!known.contains(SpecialTokens::content_of(token))) add(special_token(token, false));
    // Qwen2Tokenizer adds all again, by their texts; CohereTokenizer as they are declared, but for the roles that every class has, which
    // are what the list of added tokens says.
    if (class_ != TokenizerClass::qwen2 && class_ != TokenizerClass::cohere) return;
    const bool by_text = class_ == TokenizerClass::qwen2;
    const auto again = [&](const Json& token) {
      add(special_token(by_text ? Json(SpecialTokens::content_of(token)) : token, true));
    };
    constexpr auto& common = SpecialTokens::standard_roles;
    for (const auto& [role, token] : declared_.roles)
      if (by_text || std::find(common.begin(), common.end(), role) == common.end()) again(token);
    for (const Json& token : declared_.extra) again(token);
  }

  // By id: of tokenizer_config.json; where that has no list, of added_tokens.json and tokenizer.json, which wins.
  [[nodiscard]] std::map<std::int64_t, AddedToken> listed_tokens(const Json& in_file) const {
    std::map<std::int64_t, AddedToken> listed;
    const Json& decoder = field(config_, "added_tokens_decoder");
    if (decoder.is_object()) {
      for (const auto& [id, spec] : decoder.items()) {
        const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
        if (!digits)
          inconsistent("a token has an impossible id", "'" + id + "'", "added_tokens_decoder in tokenizer_config.json");
        listed.insert_or_assign(std::stoll(id), added_token(spec, has_role(spec)));
      }
      return listed;
    }
    if (source_.added.is_object())
      for (const auto& [content, id] : source_.added.items()) {
        AddedToken token;
        token.content = content;
        token.special = has_role(content) || is_extra(content);
        token.normalized = !token.special;
        listed.insert_or_assign(id.get<std::int64_t>(), std::move(token));
      }
    if (in_file.is_array())
      for (std::size_t i = 0; i < in_file.size(); ++i)
        listed.insert_or_assign(in_file[i].value("id", static_cast<std::int64_t>(i)),
                                added_token(in_file[i], has_role(in_file[i])));
    return listed;
  }

  [[nodiscard]] bool has_role(const Json& token) const {
    return std::any_of(declared_.roles.begin(), declared_.roles.end(), [&](const auto& role) {
      return SpecialTokens::content_of(role.second) == SpecialTokens::content_of(token);
    });
  }
  [[nodiscard]] bool is_extra(const std::string& content) const {
    return std::any_of(declared_.extra.begin(), declared_.extra.end(),
                       [&](const Json& token) { return SpecialTokens::content_of(token) == content; });
  }

  // A text stands for a special token; an object says what it is, but for a role.
  static AddedToken special_token(const Json& value, bool role) {
    if (value.is_object()) return added_token(value, role);
    AddedToken token;
    token.content = value.get<std::string>();
    token.special = true;
    token.normalized = false;
    return token;
  }

  void apply_changes() {
    const TokenChanges& changes = parts_.changes;
    const auto put = [&](const std::string& content, bool special) {
      const bool known = parts_.find(content) >= 0;
      AddedToken token;
      token.content = content;
      token.special = special;
      token.normalized = false;
      add(std::move(token));
      if (!known) parts_.added_by_changes.push_back(parts_.find(content));
    };
    for (const auto& [role, content] : changes.roles) {
      put(content, true);
      parts_.roles.named[role] = content;
    }
    for (const std::string& content : changes.tokens) put(content, false);
    for (const std::string& content : changes.extra) put(content, true);
    if (!changes.extra.empty()) parts_.roles.extra = changes.extra;
    if (changes.roles.contains("pad_token")) parts_.roles.pad_is_eos = false;
    if (parts_.roles.pad_is_eos && changes.roles.contains("eos_token"))
      parts_.roles.named["pad_token"] = changes.roles.at("eos_token");
  }

  // add_bos_token and add_eos_token of tokenizer_config.json do not count beside tokenizer.json.
  void choose_post_processor() {
    if (class_ == TokenizerClass::gpt_neox) parts_.post_processor = PostProcessor();
    if (class_ != TokenizerClass::code_llama) return;
    const std::int32_t bos = parts_.find(parts_.roles.get("bos_token"));
    parts_.post_processor = bos < 0 ? PostProcessor() : PostProcessor({bos}, {});
  }

  void fill_tables() {
    parts_.special.assign(parts_.names.size(), false);
    for (const AddedToken& token : parts_.added) {
      parts_.special[static_cast<std::size_t>(token.id)] = token.special;
      if (token.special && flag(config_, "split_special_tokens")) continue;
      if (token.normalized) {
        // From here on the token is what it looks like after normalization, when decoding too.
        std::string& name = parts_.names[static_cast<std::size_t>(token.id)];
        name = parts_.normalizer.apply(token.content);
        parts_.normalized_matcher.insert(name, token);
      } else {
        parts_.raw_matcher.insert(token.content, token);
      }
    }
    parts_.bytes.reserve(parts_.names.size());
    for (const std::string& name : parts_.names) parts_.bytes.push_back(Decoder::token_bytes(name));
    for (const std::vector<std::int32_t>* ids : {&parts_.post_processor.before(), &parts_.post_processor.after()}) {
      for (const std::int32_t id : *ids) {
        if (id < 0 || static_cast<std::size_t>(id) >= parts_.names.size()) {
          inconsistent("the post-processor adds an id that no token has", std::to_string(id),
                       "post_processor in tokenizer.json");
        }
      }
    }
  }

  TokenizerFile file_;
  const Json& config_;
  const TokenizerSource& source_;
  TokenizerClass class_;
  SpecialTokens::Declared declared_;
  TokenizerParts parts_;
};

}  // namespace rlalgo::text::detail
