// Which of transformers' tokenizer classes reads a model's files, and what that class changes of tokenizer.json.
//
// Most classes take tokenizer.json as it is. Some rebuild the tokenizer from its vocabulary and merges with a pipeline of
// their own, bring roles along (bos_token, eos_token …), and look for added tokens in added_tokens_decoder where
// tokenizer_config.json has one, not in tokenizer.json:
//   LlamaTokenizer, CodeLlamaTokenizer   Metaspace; the first word gets its space at the start of a text only, or, with
//                                        legacy: true, after every added token
//   GemmaTokenizer                       spaces become ▁, each word keeps the one behind it
//   Qwen2Tokenizer, Qwen3_5Tokenizer     NFC, their splitting pattern
//   GPT2Tokenizer, GPTNeoXTokenizer      GPT-2's splitting pattern; the second with NFC and without post-processor
//   CohereTokenizer                      NFC, digits apart, then GPT-2's splitting pattern; extra special tokens are special whatever the
//                                        list of added tokens says of them
// The class is the tokenizer_class of tokenizer_config.json, else of config.json, with these exceptions: models of type
// qwen2 are always Qwen2Tokenizer's, those of qwen3_5, qwen3_5_moe and qwen3_5_moe_text always Qwen3_5Tokenizer's (of qwen3_5_text and
// qwen3_next where no class is named), and qwen3's and those of Qwen's experts where no class is named, as Gemma's are
// GemmaTokenizer's and Cohere's CohereTokenizer's; those of mistral, mixtral, phi3, olmo2, glm4 and granite take tokenizer.json as it is; so does LlamaTokenizer
// where tokenizer.json is byte-level.
//
// Source: transformers 5.23 (AutoTokenizer, TokenizersBackend). Departures: a vocabulary of another kind than the class
// reads (Unigram; no byte alphabet for Qwen2Tokenizer or CohereTokenizer, one for CodeLlamaTokenizer), from which transformers makes
// nonsense, keeps the pipeline of its file, as do classes that are not listed here; fast_tokenizer_files is not read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <rlalgo/text/detail/tokenizer_file.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::text::detail {

enum class TokenizerClass { as_in_file, llama, code_llama, gemma, qwen2, qwen3_5, gpt2, gpt_neox, cohere };

// The files beside tokenizer.json; null where one is absent.
struct TokenizerSource {
  Json config;              // tokenizer_config.json
  Json special_tokens_map;  // special_tokens_map.json
  Json model = {};          // config.json
  Json added = {};          // added_tokens.json
};

[[nodiscard]] inline TokenizerSource read_tokenizer_source(const std::filesystem::path& directory) {
  return {.config = read_json_if_present(directory / "tokenizer_config.json"),
          .special_tokens_map = read_json_if_present(directory / "special_tokens_map.json"),
          .model = read_json_if_present(directory / "config.json"),
          .added = read_json_if_present(directory / "added_tokens.json")};
}

// Empty where there is no such string.
[[nodiscard]] inline std::string string_in(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object.at(key).is_string() ? object.at(key).get<std::string>()
                                                                                  : "";
}

// `byte_level()`: whether the text of tokenizer.json names ByteLevel.
template <class ByteLevel>
[[nodiscard]] TokenizerClass class_of(const TokenizerSource& source, ByteLevel byte_level) {
  const std::string type = string_in(source.model, "model_type");
  std::string name = string_in(source.config, "tokenizer_class");
  if (name.empty()) name = string_in(source.model, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  if (type == "qwen2") return TokenizerClass::qwen2;
  if (type == "qwen3_5" || type == "qwen3_5_moe" || type == "qwen3_5_moe_text") return TokenizerClass::qwen3_5;
  for (const char* as_in_file : {"mistral", "mixtral", "phi3", "olmo2", "glm4", "granite"})
    if (type == as_in_file) return TokenizerClass::as_in_file;
  if (name.empty()) {
    if (type == "qwen3" || type == "qwen2_moe" || type == "qwen3_moe") return TokenizerClass::qwen2;
    if (type == "qwen3_next") return TokenizerClass::qwen2;
    if (type == "qwen3_5_text") return TokenizerClass::qwen3_5;
    if (type == "cohere" || type == "cohere2") return TokenizerClass::cohere;
    const bool gemma = type == "gemma" || type == "gemma2" || type == "gemma3" || type == "gemma3_text";
    return gemma ? TokenizerClass::gemma : TokenizerClass::as_in_file;
  }
  if (name == "LlamaTokenizer") return byte_level() ? TokenizerClass::as_in_file : TokenizerClass::llama;
  if (name == "CodeLlamaTokenizer") return TokenizerClass::code_llama;
  if (name == "GemmaTokenizer") return TokenizerClass::gemma;
  if (name == "Qwen2Tokenizer") return TokenizerClass::qwen2;
  if (name == "Qwen3_5Tokenizer") return TokenizerClass::qwen3_5;
  if (name == "GPT2Tokenizer") return TokenizerClass::gpt2;
  if (name == "GPTNeoXTokenizer") return TokenizerClass::gpt_neox;
  if (name == "CohereTokenizer") return TokenizerClass::cohere;
  return TokenizerClass::as_in_file;
}

// Empty: the one that tokenizer_config.json names, or none.
[[nodiscard]] inline std::string_view name_of(TokenizerClass which) {
  switch (which) {
    case TokenizerClass::llama:
      return "LlamaTokenizer";
    case TokenizerClass::code_llama:
      return "CodeLlamaTokenizer";
    case TokenizerClass::gemma:
      return "GemmaTokenizer";
    case TokenizerClass::qwen2:
      return "Qwen2Tokenizer";
    case TokenizerClass::qwen3_5:
      return "Qwen3_5Tokenizer";
    case TokenizerClass::gpt2:
      return "GPT2Tokenizer";
    case TokenizerClass::gpt_neox:
      return "GPTNeoXTokenizer";
    case TokenizerClass::cohere:
      return "CohereTokenizer";
    case TokenizerClass::as_in_file:
      break;
  }
  return {};
}

// The roles that a class gives where the files do not.
[[nodiscard]] inline Json default_roles(TokenizerClass which) {
  static constexpr const char* end = "<|endoftext|>";
  switch (which) {
    case TokenizerClass::llama:
      return {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    case TokenizerClass::code_llama:
      return {{"bos_token", "<s>"},       {"eos_token", "</s>"},      {"unk_token", "<unk>"},
              {"prefix_token", "▁<PRE>"}, {"middle_token", "▁<MID>"}, {"suffix_token", "▁<SUF>"},
              {"eot_token", "▁<EOT>"},    {"fill_token", "<FILL_ME>"}};
    case TokenizerClass::gemma:
      return {{"bos_token", "<bos>"},
              {"eos_token", "<eos>"},
              {"unk_token", "<unk>"},
              {"pad_token", "<pad>"},
              {"mask_token", "<mask>"}};
    case TokenizerClass::qwen2:
    case TokenizerClass::qwen3_5:
      return {{"eos_token", end}, {"unk_token", end}, {"pad_token", end}};
    case TokenizerClass::gpt2:
      return {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
    case TokenizerClass::gpt_neox:
      return {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}, {"pad_token", "<|padding|>"}};
    case TokenizerClass::cohere:
      return {{"bos_token", "<BOS_TOKEN>"},  {"eos_token", "<|END_OF_TURN_TOKEN|>"},
              {"unk_token", "<UNK>"},        {"pad_token", "<PAD>"},
              {"cls_token", "<CLS>"},        {"sep_token", "<SEP>"},
              {"mask_token", "<MASK_TOKEN>"}};
    case TokenizerClass::as_in_file:
      break;
  }
  return Json::object();
}

// Of files whose tokenizer is not read.
[[nodiscard]] inline SpecialTokens special_tokens_of(const TokenizerSource& source,
                                                     const std::filesystem::path& directory) {
  const TokenizerClass made_by = class_of(source, [&] {
    return read_if_present(directory / "tokenizer.json").value_or("").find("\"ByteLevel\"") != std::string::npos;
  });
  return SpecialTokens::from_config(source.config, source.special_tokens_map, default_roles(made_by));
}

namespace pipelines {

[[nodiscard]] inline Json byte_level(bool prefix_space, bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", true}, {"use_regex", regex}};
}

[[nodiscard]] inline Json split_and_bytes(const char* pattern, bool prefix_space) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(prefix_space, false)})}};
}

[[nodiscard]] inline Json metaspace(const char* scheme) {
  return {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
}

[[nodiscard]] inline Json metaspace_decoder(bool strips) {
  Json steps = Json::array({{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}}});
  if (strips) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

}  // namespace pipelines

// Whether a class writes spaces as ▁, and bytes that it has no token for as <0xNN>.
[[nodiscard]] inline bool has_byte_fallback(TokenizerClass which) {
  return which == TokenizerClass::llama || which == TokenizerClass::code_llama || which == TokenizerClass::gemma;
}

// Whether a class of its own pipeline can read this vocabulary. `bytes`: it is written in the byte alphabet.
[[nodiscard]] inline bool rebuilds(TokenizerClass which, const TokenizerFile& file, bool bytes) {
  return which != TokenizerClass::as_in_file && file.has_merges && file.scores.empty() &&
         has_byte_fallback(which) != bytes;
}

// Puts the pipeline of a class that rebuilds into what was read of tokenizer.json.
inline void rebuild(TokenizerClass which, const Json& config, const std::string& unknown, Json& rest) {
  const auto on = [&](const char* key, bool otherwise) {
    return config.is_object() && config.contains(key) && config.at(key).is_boolean() ? config.at(key).get<bool>()
                                                                                     : otherwise;
  };
  const bool fallback = has_byte_fallback(which);
  const bool space = on("add_prefix_space", fallback);
  const Json nfc = {{"type", "NFC"}};
  rest["model"] = {{"type", "BPE"},        {"dropout", nullptr},        {"unk_token", nullptr},
                   {"fuse_unk", fallback}, {"byte_fallback", fallback}, {"ignore_merges", false}};
  if (which == TokenizerClass::code_llama || which == TokenizerClass::gemma) rest["model"]["unk_token"] = unknown;
  rest["normalizer"] = nullptr;
  rest["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  switch (which) {
    case TokenizerClass::llama:
      rest["pre_tokenizer"] = pipelines::metaspace(!space ? "never" : on("legacy", false) ? "always" : "first");
      rest["decoder"] = pipelines::metaspace_decoder(space);
      break;
    case TokenizerClass::code_llama:
      rest["pre_tokenizer"] = pipelines::metaspace(space ? "first" : "never");
      rest["decoder"] = pipelines::metaspace_decoder(true);
      break;
    case TokenizerClass::gemma:
      rest["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
      rest["pre_tokenizer"] = {
          {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
      rest["decoder"] = pipelines::metaspace_decoder(false);
      break;
    case TokenizerClass::qwen2:
    case TokenizerClass::qwen3_5:
      rest["normalizer"] = nfc;
      rest["pre_tokenizer"] = pipelines::split_and_bytes(
          which == TokenizerClass::qwen2
              ? R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
              : R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          space);
      break;
    case TokenizerClass::gpt2:
    case TokenizerClass::gpt_neox:
      if (which == TokenizerClass::gpt_neox) rest["normalizer"] = nfc;
      rest["pre_tokenizer"] = pipelines::byte_level(space, true);
      break;
    case TokenizerClass::cohere:
      rest["normalizer"] = nfc;
      rest["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers", Json::array({{{"type", "Digits"}, {"individual_digits", true}},
                                                              pipelines::byte_level(space, true)})}};
      break;
    case TokenizerClass::as_in_file:
      break;
  }
}

}  // namespace rlalgo::text::detail
