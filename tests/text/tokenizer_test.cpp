#include <sys/stat.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/text/detail/tokenizer_class.hpp>
#include <rlalgo/text/detail/tokenizer_parts.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace {

using namespace rlalgo;
using text::Json;
using text::Tokenizer;
using Ids = std::vector<std::int32_t>;

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/text";

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.is_open());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What an encoder that fails says.
std::string error_of(const std::string& tokenizer_json, const Json& config = {}) {
  try {
    static_cast<void>(Tokenizer::from_json(tokenizer_json, config));
  } catch (const core::Error& error) {
    return error.what();
  }
  return "no error";
}

// A byte-level tokenizer over a, b, c and the merges given, with any further fields.
std::string tiny(const std::string& merges = R"(["a b", "ab c"])", const std::string& more = "") {
  return R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}, )" +
         more +
         R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "bc": 5, "Ġ": 6}, "merges": )" +
         merges + "}}";
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

bool has(const std::string& where, const std::string& what) { return where.find(what) != std::string::npos; }

// Counter-based, so that every run sees the same texts.
std::string random_text(std::uint64_t index) {
  static const std::vector<std::string> pieces = {
      "a",          "B", "word",     "日本",         "é",  "é",   "😀",  " ",  "  ", "\n", "\r\n",
      "\t",         "1", "23",       "4567",         "'s", "'LL", "'",  ".",  ",",  "!?", "_",
      "<|im_end|>", "ſ", "\xC2\xA0", "\xE3\x80\x80", "½",  "٣",   "'ſ", "नि", "-",  "=>", "\xEF\xBB\xBF"};
  std::string text;
  const core::PhiloxKey key{.seed = 11, .stream = core::Stream::test};
  const std::uint32_t length = core::philox(key, index, 0)[0] % 24;
  for (std::uint32_t i = 1; i <= length; ++i) text += pieces[core::philox(key, index, i)[0] % pieces.size()];
  return text;
}

}  // namespace

// ids recorded from the Python package tokenizers 0.23 by scripts/fixtures/text_tokenizers.py; RLALGO_TOKENIZER_CASES
// names a larger directory of the same form
TEST_CASE("models of Qwen3.5 have the tokenizer class that transformers takes for their type") {
  using text::detail::TokenizerClass;
  const auto of = [](const char* type, const char* named) {
    text::detail::TokenizerSource source;
    source.model = {{"model_type", type}};
    if (*named != '\0') source.config = {{"tokenizer_class", named}};
    return text::detail::class_of(source, [] { return true; });
  };
  for (const char* type : {"qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text"})
    for (const char* named : {"", "Qwen2Tokenizer", "TokenizersBackend", "PreTrainedTokenizerFast"})
      CHECK(of(type, named) == TokenizerClass::qwen3_5);
  CHECK(of("qwen3_5_text", "") == TokenizerClass::qwen3_5);
  CHECK(of("qwen3_5_text", "Qwen2TokenizerFast") == TokenizerClass::qwen2);
  CHECK(of("qwen3_5_text", "TokenizersBackend") == TokenizerClass::as_in_file);
  CHECK(of("qwen3_next", "") == TokenizerClass::qwen2);
  CHECK(of("qwen3_next", "TokenizersBackend") == TokenizerClass::as_in_file);
}

TEST_CASE("encodes and decodes as the tokenizers library does") {
  std::vector<std::filesystem::path> all;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (entry.path().string().ends_with(".cases.json")) all.push_back(entry.path());
  }
  REQUIRE(all.size() == 12);
  if (const char* more = std::getenv("RLALGO_TOKENIZER_CASES")) {
    for (const auto& entry : std::filesystem::directory_iterator(more)) {
      if (entry.path().string().ends_with(".cases.json")) all.push_back(entry.path());
    }
  }
  for (const std::filesystem::path& path : all) {
    const std::string style = path.stem().stem().string();
    const Tokenizer tokenizer = Tokenizer::from_directory(path.parent_path() / style);
    const Json cases = Json::parse(read(path));
    const std::size_t count = cases["texts"].size();
    REQUIRE(count > 40);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count && wrong < 20; ++i) {
      const Json& entry = cases["texts"][i];
      const auto input = entry.is_string() ? entry.get<std::string>() : from_hex(entry["hex"].get<std::string>());
      const auto text = entry.is_string() ? input : entry["text"].get<std::string>();
      // A null stands for: as without special tokens, or as the text.
      const auto plain = cases["plain_ids"][i].get<Ids>();
      const auto with_special = cases["ids"][i].is_null() ? plain : cases["ids"][i].get<Ids>();
      const auto decoded = cases["decoded"][i].is_null() ? text : cases["decoded"][i].get<std::string>();
      const auto skipped = cases["skipped"][i].is_null() ? text : cases["skipped"][i].get<std::string>();
      const bool good = tokenizer.encode(input, false) == plain && tokenizer.encode(input) == with_special &&
                        tokenizer.decode(plain, false) == decoded && tokenizer.decode(plain) == skipped;
      if (good) continue;
      ++wrong;
      INFO(path.string() << " " << Json(text).dump(-1, ' ', true));
      CHECK(tokenizer.encode(input, false) == plain);
      CHECK(tokenizer.encode(input) == with_special);
      CHECK(Json(tokenizer.decode(plain, false)).dump(-1, ' ', true) == Json(decoded).dump(-1, ' ', true));
      CHECK(Json(tokenizer.decode(plain)).dump(-1, ' ', true) == Json(skipped).dump(-1, ' ', true));
    }
    CHECK(wrong == 0);
  }
}

// Recorded from transformers 5.23 by scripts/fixtures/text_tokenizer_configs.py; RLALGO_TOKENIZER_CONFIGS names a larger
// file of the same form.
TEST_CASE("reads a tokenizer's files as transformers does") {
  const char* more = std::getenv("RLALGO_TOKENIZER_CONFIGS");
  const Json all = Json::parse(read(more != nullptr ? std::filesystem::path(more) : golden / "configs.json"));
  REQUIRE(all["cases"].size() > 700);
  std::size_t wrong = 0;
  for (const Json& entry : all["cases"]) {
    if (wrong >= 10) break;
    const rlalgo::support::ScratchDirectory directory;
    const auto name = entry["tokenizer"].get<std::string>();
    Json spec = all["tokenizers"][name];
    spec["post_processor"] = all["post_processors"][name][entry["post"].get<std::string>()];
    directory.write("tokenizer.json", spec.dump());
    for (const auto& [file, content] : entry["files"].items()) directory.write(file, content.dump());
    const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
    const Json& expected = all["outcomes"][entry["outcome"].get<std::size_t>()];
    Json found = {{"class", expected["class"]}, {"roles", Json::object()},  {"ids", Json::array()},
                  {"plain", Json::array()},     {"skipped", Json::array()}, {"size", tokenizer.vocab_size()}};
    for (const auto& [role, token] : expected["roles"].items())
      found["roles"][role] = tokenizer.special_tokens().get(role);
    for (const auto& [role, token] : tokenizer.special_tokens().named)
      if (role != "pad_token" || !tokenizer.special_tokens().pad_is_eos) found["roles"][role] = token;
    for (const Json& text : all["texts"]) {
      found["ids"].push_back(tokenizer.encode(text.get<std::string>()));
      found["plain"].push_back(tokenizer.encode(text.get<std::string>(), false));
    }
    for (const Json& ids : expected["plain"]) found["skipped"].push_back(tokenizer.decode(ids.get<Ids>()));
    if (found == expected) continue;
    ++wrong;
    INFO(entry.dump(-1, ' ', true));
    CHECK(found.dump(-1, ' ', true) == expected.dump(-1, ' ', true));
  }
  CHECK(wrong == 0);
}

TEST_CASE("a saved tokenizer is read with the same class without the model's config.json") {
  const Json all = Json::parse(read(golden / "configs.json"));
  const rlalgo::support::ScratchDirectory directory, target;
  directory.write("tokenizer.json", all["tokenizers"]["bytes"].dump());
  directory.write("tokenizer_config.json", "{}");
  directory.write("config.json", R"({"model_type": "qwen2"})");
  const Tokenizer tokenizer = Tokenizer::from_directory(directory.path());
  tokenizer.save(target.path());
  CHECK(Json::parse(read(target.path() / "tokenizer_config.json"))["tokenizer_class"] == "Qwen2Tokenizer");
  const Tokenizer again = Tokenizer::from_directory(target.path());
  CHECK(again.encode("it's  2024") == tokenizer.encode("it's  2024"));
  CHECK(again.pad_token() == "<|endoftext|>");
}

TEST_CASE("a unigram model takes the split of the highest score") {
  const auto unigram = [](const std::string& more = "", const std::string& vocabulary = "") {
    return R"({"model": {"type": "Unigram", )" + more +
           R"("vocab": [["<unk>", 0], ["a", -1], ["b", -1.5], ["ab", -2], ["abc", -10], ["aa", -2])" + vocabulary +
           "]}}";
  };
  const Tokenizer t = Tokenizer::from_json(unigram(R"("unk_id": 0, )"));
  CHECK(t.encode("ab") == Ids{3});           // −2 > −1 − 1.5
  CHECK(t.encode("abc") == Ids{4});          // −10 > −2 − (10 + 10), c being unknown
  CHECK(t.encode("aa") == Ids{5});           // −2 = −1 − 1: the longer last piece
  CHECK(t.encode("aab") == Ids{1, 3});       // −1 − 2 > −2 − 1.5
  CHECK(t.encode("xyaéz") == Ids{0, 1, 0});  // unknown neighbours are one
  CHECK(t.encode("<unk>") == Ids{0});        // the token itself stands for nothing else
  CHECK(t.token_id("abc") == 4);
  CHECK(t.vocab_size() == 6);
  // What an unknown character costs decides: −12 − 12 against (−12 − 10) − 3 and (−12 − 10) − 1.
  const std::string ends =
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["xy", -12], ["z", -12], ["yz", )";
  CHECK(Tokenizer::from_json(ends + "-3]]}}").encode("xyz") == Ids{1, 2});
  CHECK(Tokenizer::from_json(ends + "-1]]}}").encode("xyz") == Ids{0, 3});
  const Tokenizer bytes = Tokenizer::from_json(
      unigram(R"("unk_id": 0, "byte_fallback": true, )", R"(, ["<0xC3>", -30], ["<0xA9>", -30], ["a", -1])"));
  CHECK(bytes.encode("é") == Ids{6, 7});
  CHECK(bytes.encode("a") == Ids{8});   // of two entries the last one
  CHECK(bytes.encode("éx") == Ids{0});  // fused first, and x has no byte token
  CHECK_THROWS_WITH(Tokenizer::from_json(unigram()).encode("ax"), Catch::Contains("[rlalgo.text.5]"));
  CHECK(Tokenizer::from_json(unigram()).encode("ab") == Ids{3});
  CHECK(has(error_of(unigram(R"("unk_id": 6, )")), "[rlalgo.text.5]"));
  CHECK(has(error_of(unigram("", R"(, ["x"])")), "[rlalgo.text.2]"));
  CHECK(has(error_of(unigram("", R"(, [1, "x"])")), "[rlalgo.text.2]"));
  CHECK(has(error_of(unigram("", R"(, ["x", 1, 2])")), "[rlalgo.text.2]"));
  CHECK(has(error_of(unigram("", R"(, "x")")), "[rlalgo.text.2]"));
  CHECK(has(error_of(R"({"model": {"type": "Unigram", "vocab": {"a": 1}}})"), "[rlalgo.text.5]"));
  CHECK(has(error_of(R"({"model": {"type": "BPE", "vocab": [["a", 1]], "merges": []}})"), "[rlalgo.text.5]"));
}

TEST_CASE("merges the lowest rank first, the leftmost on ties") {
  // "abc": rank 0 is b+c, so a+bc remains, and no merge makes a+bc.
  CHECK(Tokenizer::from_json(tiny(R"(["b c", "a b", "ab c"])")).encode("abc") == Ids{0, 5});
  // rank 0 is a+b, then ab+c
  CHECK(Tokenizer::from_json(tiny()).encode("abc") == Ids{4});
  // pairs instead of strings are the same merges
  CHECK(Tokenizer::from_json(tiny(R"([["a", "b"], ["ab", "c"]])")).encode("abcab") == Ids{4, 3});
  // bytes that are not in the vocabulary are dropped, as there is no unknown token; what was beside them meets
  CHECK(Tokenizer::from_json(tiny()).encode("axb") == Ids{3});
  CHECK(Tokenizer::from_json(tiny()).encode("abxc") == Ids{4});
}

TEST_CASE("short and long pre-tokens merge alike") {
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "gpt2");
  text::detail::TokenizerFile file = text::detail::parse_tokenizer_file(read(golden / "gpt2/tokenizer.json"), "gpt2");
  const text::detail::TokenizerParts parts =
      text::detail::TokenizerBuilder(std::move(file), {}, text::detail::TokenizerClass::as_in_file).build();
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::string piece = random_text(i);
    if (piece.size() > 64) piece.resize(64);
    Ids by_scan, by_heap;
    std::get<text::detail::Bpe>(parts.model).merge(piece, by_scan);
    std::get<text::detail::Bpe>(parts.model).merge(piece, by_heap, true);
    CHECK(by_scan == by_heap);
  }
  // 100,000 letters in one pre-token: quadratic work would take minutes
  const std::string text(100'000, 'e');
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
}

TEST_CASE("hand-written matchers split as the regular expressions they stand for") {
  using text::detail::Span;
  for (const text::detail::KnownPattern& known : text::detail::known_patterns) {
    const text::detail::SplitPattern by_hand{std::string(known.regex)}, by_pcre(std::string(known.regex), true);
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::string text = random_text(i);
      std::vector<std::size_t> ends_by_hand, ends_by_pcre;
      by_hand.split(text, {0, text.size()},
                    [&](Span span, bool match) { ends_by_hand.push_back(match ? span.end : 0); });
      by_pcre.split(text, {0, text.size()},
                    [&](Span span, bool match) { ends_by_pcre.push_back(match ? span.end : 0); });
      INFO(Json(text).dump() << " " << known.regex);
      REQUIRE(ends_by_hand == ends_by_pcre);
    }
  }
}

// Expected pieces are those of the Python package tokenizers 0.23 (pre_tokenizers.Split).
TEST_CASE("patterns mean what they mean to Oniguruma") {
  const auto pieces = [](const std::string& regex, const std::string& text) {
    std::string out;
    text::detail::SplitPattern(regex).split(text, {0, text.size()}, [&](text::detail::Span span, bool match) {
      out += (match ? "<" : "(") + text.substr(span.begin, span.end - span.begin) + (match ? ">" : ")");
    });
    return out;
  };
  CHECK(pieces(R"(\h+)", "xAF09 g1") == "(x)<AF09>( g)<1>");
  CHECK(pieces(R"(\H)", "aG1") == "(a)<G>(1)");
  CHECK(pieces("a{1,2}+b", "aaaaab ab") == "<aaaaab>( )<ab>");
  CHECK(pieces("(ab|c){2}+d", "ababccd") == "<ababccd>");
  CHECK(pieces("a{2}?b", "aab b") == "<aab>( )<b>");
  CHECK(pieces("a{,2}b", "aaab") == "(a)<aab>");
  CHECK(pieces("a{x}", "a{x}") == "<a{x}>");
  CHECK(pieces(R"(\w+)", "½ⓐ_é²-x") == "<½ⓐ_é²>(-)<x>");
  CHECK(pieces(R"(\s)", "a\u180E\u0085b") == "(a\u180E)<\u0085>(b)");
  CHECK(pieces(R"([^\S\n]+)", "a \n\u180E\tb") == "(a)< >(\n\u180E)<\t>(b)");
  CHECK(pieces(R"(\p{Lu}+)", "aÄ\u1C89b") == "(a)<Ä\u1C89>(b)");
  CHECK(pieces(R"(\P{L}+)", "a1\u1C89") == "(a)<1>(\u1C89)");
  CHECK(pieces(R"([\p{^L}]+)", "a12b") == "(a)<12>(b)");
  CHECK(pieces(R"(\u00e9|\x{1F600})", "aé😀") == "(a)<é><😀>");
  CHECK(pieces(".+", "a\r\nb") == "<a\r>(\n)<b>");
  CHECK(pieces("^b$", "a\nb\nc") == "(a\n)<b>(\nc)");
}

TEST_CASE("reads ill-formed UTF-8 as replacement characters") {
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "gpt2");
  const std::string fffd = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"a\xFFz", "a" + fffd + "z"},          // a byte that never occurs
      {"\xE6\x97", fffd},                    // a truncated character is one piece
      {"\xE6\x97x", fffd + "x"},             //
      {"\xC0\xAF", fffd + fffd},             // an overlong form: no byte of it can begin a character
      {"\xED\xA0\x80", fffd + fffd + fffd},  // a surrogate
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", fffd + "\xF0\x9F\x98\x80"},
      {"\xF4\x90\x80\x80", fffd + fffd + fffd + fffd},  // above U+10FFFF
      {"\x80\x80", fffd + fffd},
  };
  for (const auto& [bad, good] : pairs) {
    CHECK(tokenizer.encode(bad) == tokenizer.encode(good));
    CHECK(tokenizer.decode(tokenizer.encode(bad)) == good);
  }
}

TEST_CASE("knows its special tokens") {
  const std::string added =
      R"("added_tokens": [{"id": 7, "content": "<e>", "special": true}, {"id": 8, "content": "<t>", "special": false}], )";
  SECTION("from tokenizer_config.json") {
    const Tokenizer tokenizer =
        Tokenizer::from_json(tiny(R"(["a b", "ab c"])", added),
                             Json{{"eos_token", "<e>"}, {"bos_token", Json{{"content", "<s>"}, {"lstrip", false}}}});
    CHECK(tokenizer.eos_token() == "<e>");
    CHECK(tokenizer.eos_id() == 7);
    CHECK(tokenizer.pad_id() == 7);  // no pad_token: the end token pads
    CHECK(tokenizer.special_tokens().pad_is_eos);
    CHECK(tokenizer.bos_id() == 9);  // not in tokenizer.json: added, one above the highest id
    CHECK(tokenizer.vocab_size() == 10);
    CHECK(tokenizer.is_special(7));
    CHECK_FALSE(tokenizer.is_special(8));
    CHECK_FALSE(tokenizer.is_special(-1));
    CHECK_FALSE(tokenizer.unk_id());
    CHECK(tokenizer.encode("abc<s>ab<e><t>") == Ids{4, 9, 3, 7, 8});
    CHECK(tokenizer.decode(Ids{4, 9, 3, 7, 8}) == "abcab<t>");
    CHECK(tokenizer.decode(Ids{4, 9, 3, 7, 8}, false) == "abc<s>ab<e><t>");
    CHECK(tokenizer.decode(Ids{4, -5, 1000, 3}) == "abcab");  // ids that no token has
    CHECK(tokenizer.token_id("Ġ") == 6);
    CHECK(tokenizer.token(6) == "Ġ");
    CHECK_FALSE(tokenizer.token_id("zz"));
  }
  SECTION("a role makes an ordinary added token special") {
    const Tokenizer tokenizer =
        Tokenizer::from_json(tiny(R"(["a b", "ab c"])", added), Json{{"eos_token", "<t>"}, {"pad_token", "<e>"}});
    CHECK(tokenizer.is_special(8));
    CHECK(tokenizer.pad_id() == 7);
    CHECK(tokenizer.decode(Ids{4, 8}) == "abc");
  }
  SECTION("add_bos_token and add_eos_token do not count beside tokenizer.json") {
    Json config = {{"eos_token", "<e>"}, {"bos_token", "<t>"}, {"add_bos_token", true}, {"add_eos_token", true}};
    CHECK(Tokenizer::from_json(tiny(R"(["a b", "ab c"])", added), config).encode("ab") == Ids{3});
    const std::string begin =
        R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<t>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<t>": {"ids": [8]}}}, )";
    config["add_bos_token"] = false;
    CHECK(Tokenizer::from_json(tiny(R"(["a b", "ab c"])", added + begin), config).encode("ab") == Ids{8, 3});
    CHECK(Tokenizer::from_json(tiny(R"(["a b", "ab c"])", added + begin), config).encode("ab", false) == Ids{3});
  }
  SECTION("added_tokens_decoder names tokens that tokenizer.json lacks") {
    const Tokenizer tokenizer = Tokenizer::from_json(
        tiny(), Json{{"added_tokens_decoder", Json{{"7", Json{{"content", "<x>"}, {"special", true}}}}}});
    CHECK(tokenizer.encode("ab<x>") == Ids{3, 7});
  }
}

TEST_CASE("many threads encode at once") {
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "qwen2");
  std::vector<Ids> expected;
  {
    const Tokenizer other = Tokenizer::from_directory(golden / "qwen2");
    for (std::uint64_t i = 0; i < 200; ++i) expected.push_back(other.encode(random_text(i)));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < 200; ++i) wrong += tokenizer.encode(random_text(i)) != expected[i] ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("saves what it was loaded from") {
  const std::filesystem::path out =
      std::filesystem::temp_directory_path() / ("rlalgo_text_" + std::to_string(::getpid()));
  std::filesystem::create_directories(out);
  const Tokenizer tokenizer = Tokenizer::from_directory(golden / "llama3");
  tokenizer.save(out);
  const Tokenizer again = Tokenizer::from_directory(out);
  CHECK(again.encode("Hello <|im_end|> 123") == tokenizer.encode("Hello <|im_end|> 123"));
  CHECK(again.pad_id() == tokenizer.pad_id());
  CHECK_FALSE(again.special_tokens().pad_is_eos);  // the saved configuration names the padding token
  std::filesystem::remove_all(out);
}

TEST_CASE("says what is wrong with a tokenizer") {
  const std::filesystem::path nowhere = std::filesystem::temp_directory_path() / "rlalgo_no_such_directory";
  CHECK_THROWS_WITH(Tokenizer::from_directory(nowhere), Catch::Contains("[rlalgo.text.1]") &&
                                                            Catch::Contains("tokenizer.json") &&
                                                            Catch::Contains("rlalgo_no_such_directory"));

  CHECK(has(error_of("{\"model\": "), "[rlalgo.text.2]"));
  CHECK(has(error_of("[1, 2]"), "[rlalgo.text.2]"));
  CHECK(has(error_of("version https://git-lfs.github.com/spec/v1"), "[rlalgo.text.2]"));
  CHECK(has(error_of(tiny("[1]")), "[rlalgo.text.2]"));
  CHECK(has(error_of(tiny(R"(["a b c"])")), "[rlalgo.text.2]"));
  CHECK(has(error_of(tiny(R"([["a"]])")), "[rlalgo.text.2]"));
  CHECK(has(error_of(tiny(R"(["a b"])", R"("added_tokens": [{"id": 3}], )")), "[rlalgo.text.2]"));
  CHECK(has(error_of(R"({"model": {"type": "BPE", "vocab": {"a": "x"}, "merges": []}})"), "'a'"));
  CHECK(
      has(error_of(tiny(), Json{{"added_tokens_decoder", Json{{"x", Json{{"content", "<x>"}}}}}}), "[rlalgo.text.5]"));

  const std::string word_piece = error_of(R"({"model": {"type": "WordPiece", "vocab": {"a": 0}}})");
  CHECK(has(word_piece, "[rlalgo.text.3]"));
  CHECK(has(word_piece, "'WordPiece'"));
  CHECK(has(word_piece, "Unigram"));
  CHECK(has(error_of("{}"), "[rlalgo.text.3]"));
  CHECK(has(error_of(tiny("[]", R"("normalizer": {"type": "Nmt"}, )")), "'Nmt'"));
  const auto precompiled = [&](const std::string& map) {
    return error_of(tiny("[]", R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + map + R"("}, )"));
  };
  CHECK(has(error_of(tiny("[]", R"("normalizer": {"type": "Precompiled"}, )")), "precompiled_charsmap"));
  CHECK(has(precompiled("?"), "base64"));
  CHECK(has(precompiled(""), "[rlalgo.text.5]"));
  CHECK(has(precompiled("CAAAAAAAAAA="), "[rlalgo.text.5]"));  // a trie of 8 bytes, of which 4 are there
  CHECK(has(precompiled("BAAAAAAAAAA="), "no error"));         // one unit, no replacement
  CHECK(has(error_of(tiny("[]", R"("post_processor": {"type": "Odd"}, )")), "'Odd'"));
  CHECK(has(
      error_of(
          R"({"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"),
      "'BertPreTokenizer'"));
  CHECK(
      has(error_of(R"({"decoder": {"type": "WordPiece"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"),
          "decoder"));
  CHECK(has(error_of(R"({"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 0}, "merges": []}})"), "dropout"));
  CHECK(has(error_of(R"({"model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 0}, "merges": []}})"),
            "end_of_word_suffix"));

  const auto split = [](const std::string& regex) {
    return error_of(R"({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": ")" + regex +
                    R"("}}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  };
  CHECK(has(split("(a"), "[rlalgo.text.4]"));
  CHECK(has(split("[a&&b]"), "[rlalgo.text.4]"));
  CHECK(has(split("[a[b]]"), "nested"));
  CHECK(has(split("(?m:a)"), "[rlalgo.text.4]"));
  CHECK(split("a+") == "no error");

  const std::string no_merges = error_of(R"({"model": {"type": "BPE", "vocab": {"a": 0}}})");
  CHECK(has(no_merges, "[rlalgo.text.5]"));
  CHECK(has(no_merges, "merges"));
  CHECK(has(error_of(tiny(R"(["a q"])")), "'q'"));
  CHECK(has(error_of(tiny(R"(["b a"])")), "'ba'"));
  CHECK(has(error_of(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"), "[rlalgo.text.5]"));
  CHECK(has(error_of(R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})"), "[rlalgo.text.5]"));
  CHECK(has(
      error_of(tiny(
          "[]",
          R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}}, )")),
      "'<s>'"));
  CHECK(
      has(error_of(tiny("[]", R"("post_processor": {"type": "BertProcessing", "cls": ["x", 99], "sep": ["y", 1]}, )")),
          "99"));
}

TEST_CASE("a tokenizer file is a regular file, and no deeper than others") {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("rlalgo_text_fifo_" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  const auto error = [&] {
    try {
      (void)Tokenizer::from_directory(directory);
    } catch (const rlalgo::core::Error& raised) {
      return std::string(raised.what());
    }
    return std::string();
  };
  REQUIRE(::mkfifo((directory / "tokenizer.json").c_str(), 0600) == 0);
  CHECK_THAT(error(), Catch::Contains("[rlalgo.text.1]") && Catch::Contains("a named pipe"));
  std::filesystem::remove(directory / "tokenizer.json");
  std::filesystem::create_symlink("/dev/zero", directory / "tokenizer.json");
  CHECK_THAT(error(), Catch::Contains("[rlalgo.text.1]") && Catch::Contains("a device"));
  std::filesystem::remove(directory / "tokenizer.json");
  std::filesystem::create_symlink("tokenizer.json", directory / "tokenizer.json");
  CHECK_THAT(error(), Catch::Contains("[rlalgo.text.1]") && Catch::Contains("symbolic links"));
  std::filesystem::remove(directory / "tokenizer.json");
  std::ofstream(directory / "tokenizer.json") << R"({"model": {"extra": )" << std::string(100000, '[');
  CHECK_THAT(error(), Catch::Contains("[rlalgo.text.2]") && Catch::Contains("deep"));
  std::filesystem::remove_all(directory);
}
