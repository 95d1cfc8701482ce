// Trains the quickstart's byte-level BPE and writes tokenizer.json and tokenizer_config.json (ChatML template).
//
//   quickstart_make_tokenizer OUTPUT_DIR [--vocab 512]
//
// The corpus is the word problems of make_problems with their solutions. Pre-tokenization: digits one by one, then runs
// of letters or of other characters with the space before them (what the written pre_tokenizer does on this ASCII
// text).
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <rlalgo/os/atomic_file.hpp>

#include "problems.hpp"

namespace {

using Json = nlohmann::ordered_json;
using Word = std::vector<std::string>;  // symbols, each a string over the byte alphabet

std::string utf8(unsigned code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// GPT-2's byte alphabet: printable Latin-1 bytes stand for themselves, the other 68 become U+0100, U+0101, …
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> alphabet(256);
  unsigned next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool self = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    alphabet[b] = utf8(self ? b : next++);
  }
  return alphabet;
}

std::vector<std::string> pre_tokens(const std::string& text) {
  std::vector<std::string> out;
  const auto letter = [&](std::size_t i) {
    return i < text.size() && std::isalpha(static_cast<unsigned char>(text[i]));
  };
  const auto digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]));
  };
  const auto space = [&](std::size_t i) {
    return i < text.size() && std::isspace(static_cast<unsigned char>(text[i]));
  };
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (!digit(i)) {
      const std::size_t first = text[i] == ' ' && end < text.size() && !digit(end) && !space(end) ? end : i;
      end = first + 1;
      if (letter(first))
        while (letter(end)) ++end;
      else if (!space(first))
        while (end < text.size() && !letter(end) && !digit(end) && !space(end)) ++end;
    }
    out.push_back(text.substr(i, end - i));
    i = end;
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> train_merges(std::map<std::string, std::int64_t> counts,
                                                              const std::vector<std::string>& alphabet,
                                                              std::size_t merges) {
  std::vector<std::pair<Word, std::int64_t>> words;
  for (const auto& [text, count] : counts) {
    Word word;
    for (const unsigned char byte : text) word.push_back(alphabet[byte]);
    words.emplace_back(std::move(word), count);
  }
  std::vector<std::pair<std::string, std::string>> out;
  while (out.size() < merges) {
    std::map<std::pair<std::string, std::string>, std::int64_t> pairs;
    for (const auto& [word, count] : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
    const auto best =
        std::max_element(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == pairs.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    out.emplace_back(left, right);
    for (auto& [word, count] : words) {
      Word merged;
      for (std::size_t i = 0; i < word.size(); ++i) {
        const bool hit = i + 1 < word.size() && word[i] == left && word[i + 1] == right;
        merged.push_back(hit ? left + right : word[i]);
        i += hit;
      }
      word = std::move(merged);
    }
  }
  return out;
}

constexpr const char* chatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: quickstart_make_tokenizer OUTPUT_DIR [--vocab N]\n";
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  const std::size_t vocab_size = argc > 3 ? std::stoul(argv[3]) : 512;
  const std::vector<std::string> specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

  std::map<std::string, std::int64_t> counts;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const quickstart::Problem p = quickstart::make_problem(1, i);
    for (const std::string& token : pre_tokens("user\n" + p.question + "\nassistant\n" + quickstart::right_solution(p)))
      ++counts[token];
  }
  const std::vector<std::string> alphabet = byte_alphabet();
  const auto merges = train_merges(std::move(counts), alphabet, vocab_size - alphabet.size() - specials.size());

  Json vocab = Json::object();
  for (const std::string& symbol : alphabet) vocab[symbol] = vocab.size();
  for (const auto& [left, right] : merges) vocab[left + right] = vocab.size();
  Json added = Json::array();
  Json decoder = Json::object();
  for (const std::string& special : specials) {
    const std::size_t id = vocab.size() + added.size();
    Json token = {{"id", id},        {"content", special},  {"single_word", false}, {"lstrip", false},
                  {"rstrip", false}, {"normalized", false}, {"special", true}};
    added.push_back(token);
    token.erase("id");
    decoder[std::to_string(id)] = token;
  }
  Json merge_list = Json::array();
  for (const auto& [left, right] : merges) merge_list.push_back(Json::array({left, right}));
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json tokenizer;
  tokenizer["version"] = "1.0";
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = nullptr;
  tokenizer["added_tokens"] = added;
  tokenizer["normalizer"] = nullptr;
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", Json::array({{{"type", "Digits"}, {"individual_digits", true}}, byte_level})}};
  tokenizer["post_processor"] = nullptr;
  tokenizer["decoder"] = byte_level;
  tokenizer["model"] = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", vocab},
                        {"merges", merge_list}};
  Json config;
  config["added_tokens_decoder"] = decoder;
  config["bos_token"] = nullptr;
  config["chat_template"] = chatml;
  config["clean_up_tokenization_spaces"] = false;
  config["eos_token"] = "<|im_end|>";
  config["model_max_length"] = 256;
  config["pad_token"] = "<|endoftext|>";
  config["tokenizer_class"] = "PreTrainedTokenizerFast";

  std::filesystem::create_directories(directory);
  rlalgo::os::write_file(directory / "tokenizer.json", tokenizer.dump(1) + "\n");
  rlalgo::os::write_file(directory / "tokenizer_config.json", config.dump(2) + "\n");
  std::cout << directory.string() << ": " << vocab.size() + added.size() << " tokens, " << merges.size() << " merges\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
