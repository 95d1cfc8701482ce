// Random and damaged tokenizer files and templates: each is read, or refused with a numbered error; none crashes, hangs
// or allocates out of proportion. The inputs are counter-based: a failing one is found again by its index.
// RLALGO_FUZZ_COUNT sets how many inputs of each kind there are, RLALGO_FUZZ_FIRST the first index.
#include <support/catch.hpp>
#include <support/damage.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/detail/bundled_templates.hpp>
#include <rlalgo/text/detail/charsmap.hpp>
#include <rlalgo/text/stream_decoder.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace {

using namespace rlalgo;
using text::Json;

thread_local std::size_t largest_allocation = 0;  // of this thread, since it was set to zero

class Random {
 public:
  Random(std::uint32_t kind, std::uint64_t index) : kind_(kind), index_(index) {}
  std::uint32_t below(std::size_t count) {
    const core::PhiloxKey key{.seed = 1000 + kind_, .stream = core::Stream::test};
    return core::philox(key, index_, next_++)[0] % static_cast<std::uint32_t>(count);
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::uint32_t kind_;
  std::uint64_t index_;
  std::uint32_t next_ = 0;
};

// Bytes changed, removed, repeated or moved.
std::string damaged(std::string text, Random& random) {
  const std::uint32_t edits = 1 + random.below(4);
  for (std::uint32_t i = 0; i < edits && !text.empty(); ++i) {
    const std::size_t at = random.below(text.size()), length = 1 + random.below(12);
    switch (random.below(5)) {
      case 0:
        text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random.below(text.size()), length));
        break;
      case 3:
        text.insert(random.below(text.size()), text.substr(at, length * 4));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

const std::vector<std::string>& template_pieces() {
  static const std::vector<std::string> pieces = {"{{ ",
                                                  " }}",
                                                  "{% ",
                                                  " %}",
                                                  "{%- ",
                                                  " -%}",
                                                  "{{- ",
                                                  " -}}",
                                                  "{# ",
                                                  " #}",
                                                  "if ",
                                                  "elif ",
                                                  "else",
                                                  "endif",
                                                  "for ",
                                                  " in ",
                                                  "endfor",
                                                  "set ",
                                                  "endset",
                                                  "macro ",
                                                  "endmacro",
                                                  "call ",
                                                  "endcall",
                                                  "filter ",
                                                  "endfilter",
                                                  "with ",
                                                  "endwith",
                                                  "raw",
                                                  "endraw",
                                                  "break",
                                                  "continue",
                                                  "generation",
                                                  "endgeneration",
                                                  "recursive",
                                                  "is ",
                                                  "not ",
                                                  "and ",
                                                  "or ",
                                                  "defined",
                                                  "string",
                                                  "none",
                                                  "true",
                                                  "messages",
                                                  "message",
                                                  "loop",
                                                  "loop.last",
                                                  "loop.index0",
                                                  "ns",
                                                  "namespace(",
                                                  "x",
                                                  "y",
                                                  "f",
                                                  "m",
                                                  "range(",
                                                  "dict(",
                                                  "cycler(",
                                                  "joiner(",
                                                  "raise_exception(",
                                                  "strftime_now(",
                                                  "(",
                                                  ")",
                                                  "[",
                                                  "]",
                                                  "{",
                                                  "}",
                                                  ".",
                                                  ",",
                                                  ":",
                                                  "=",
                                                  "==",
                                                  "!=",
                                                  "<",
                                                  ">",
                                                  "+",
                                                  "-",
                                                  "*",
                                                  "**",
                                                  "/",
                                                  "//",
                                                  "%",
                                                  "~",
                                                  "|",
                                                  "'a'",
                                                  "\"b\\n\"",
                                                  "'%s'",
                                                  "'{}'",
                                                  "1",
                                                  "0",
                                                  "99999",
                                                  "-1",
                                                  "1e308",
                                                  "9223372036854775807",
                                                  "content",
                                                  "role",
                                                  "text",
                                                  "\n",
                                                  " ",
                                                  "é",
                                                  "😀",
                                                  "\\",
                                                  "tojson",
                                                  "join",
                                                  "map",
                                                  "selectattr",
                                                  "sort",
                                                  "reverse",
                                                  "list",
                                                  "length",
                                                  "trim",
                                                  "upper",
                                                  "replace('', x)",
                                                  "indent",
                                                  "format",
                                                  "groupby",
                                                  "batch(2)",
                                                  "slice(3)",
                                                  "unique",
                                                  "items()",
                                                  "split()",
                                                  "strip()",
                                                  "[::-1]",
                                                  "[1:]",
                                                  "[0]",
                                                  ".x",
                                                  "* 1000",
                                                  "{% for x in range(99) %}",
                                                  "{% endfor %}",
                                                  "{% if x %}",
                                                  "{% endif %}",
                                                  "{% set x = [x, x] %}",
                                                  "{{ x }}",
                                                  "{% set x = x ~ x %}",
                                                  "{% set ns.x = [ns.x] %}",
                                                  "{% set ns = namespace(x=1) %}",
                                                  "{% macro f(x, y=1) %}",
                                                  "{% endmacro %}",
                                                  "{{ f(x) }}",
                                                  "{{ messages | tojson(indent=2) }}",
                                                  "{{ messages[0] }}"};
  return pieces;
}

std::string random_template(Random& random, const std::vector<std::string>& sources) {
  const std::uint32_t kind = random.below(8);
  if (kind == 0) {  // a window of a real template, damaged
    const std::string& source = random.pick(sources);
    return damaged(source.substr(random.below(source.size()), 20 + random.below(300)), random);
  }
  if (kind == 1) return damaged(random.pick(sources), random);
  std::string out;
  const std::uint32_t count = 1 + random.below(30);
  for (std::uint32_t i = 0; i < count; ++i) {
    out += random.pick(template_pieces());
    if (random.below(4) == 0) out += ' ';
    if (kind < 5 && random.below(6) == 0) out += "{{ " + random.pick(template_pieces()) + " }}";
  }
  return kind == 7 ? damaged(out, random) : out;
}

// A tokenizer of a few tokens with the given parts.
std::string small_tokenizer(const std::string& parts, const std::string& model = "") {
  return R"({"added_tokens": [{"id": 9, "content": "<x>", "special": true, "lstrip": true}, {"id": 10, "content": "ab", "single_word": true, "normalized": true}], )" +
         parts + R"( "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true, )" +
         model +
         R"("vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "▁": 4, "<unk>": 5, "<0x61>": 6, "c": 7, "▁a": 8}, "merges": ["a b", ["▁", "a"]]}})";
}

// The table of a compiled normalizer, in base64: b becomes c, é becomes xyz.
std::string charsmap() {
  std::vector<std::uint32_t> trie(256);
  trie[0] = 1U << 10U;                         // children at 1 ^ byte
  trie[1 ^ 'b'] = 'b' | 1U << 8U | 2U << 10U;  // a leaf at 2 ^ this place
  trie[1 ^ 'b' ^ 2] = 1U << 31U;               // "c"
  trie[1 ^ 0xC3] = 0xC3 | 0x10U << 10U;        //
  trie[1 ^ 0xC3 ^ 0x10 ^ 0xA9] = 0xA9 | 1U << 8U | 4U << 10U;
  trie[1 ^ 0xC3 ^ 0x10 ^ 0xA9 ^ 4] = 1U << 31U | 2U;  // "xyz"
  std::vector<unsigned char> bytes;
  const auto put = [&](std::uint32_t word) {
    for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<unsigned char>(word >> shift));
  };
  put(static_cast<std::uint32_t>(trie.size() * 4));
  for (const std::uint32_t unit : trie) put(unit);
  for (const char c : std::string("c\0xyz\0", 6)) bytes.push_back(static_cast<unsigned char>(c));
  return core::base64(bytes);
}

const std::vector<std::string>& small_tokenizers() {
  static const std::vector<std::string> all = {
      small_tokenizer(
          R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}, "decoder": {"type": "ByteLevel"}, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}},)"),
      small_tokenizer(
          R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": true, "strip_right": true}, {"type": "StripAccents"}, {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},)"),
      small_tokenizer(
          R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "MergedWithNext"}, {"type": "WhitespaceSplit"}]}, "decoder": {"type": "Fuse"},)"),
      small_tokenizer(
          R"("pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]},)",
          R"("ignore_merges": true, )"),
      R"({"added_tokens": [{"id": 9, "content": "<x>", "special": true}], "normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}, "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}, "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [["<unk>", 0.0], ["▁", -2.5], ["a", -3], ["▁a", -3.5], ["ab", -4.25], ["b", -5], ["<0x63>", -9]]}})",
      small_tokenizer(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": ")" + charsmap() + R"("},)")};
  return all;
}

// Changes a value somewhere in the tree, or moves one to another place.
void change(Json& tree, Random& random) {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           -1,
                                           0,
                                           1,
                                           1 << 24,
                                           2147483647,
                                           -9223372036854775807LL,
                                           1e308,
                                           "",
                                           "a",
                                           "▁",
                                           "<unk>",
                                           "ByteLevel",
                                           "Sequence",
                                           "Replace",
                                           "Split",
                                           "Metaspace",
                                           "NFD",
                                           "(a+)+$",
                                           "((((",
                                           "[^a]{0,99}+",
                                           "\\p{L}*?\\b",
                                           "(?<=a)b|",
                                           Json::array(),
                                           Json::object(),
                                           Json::parse(R"([["a", "b"]])"),
                                           Json::parse(R"({"Regex": "(a|aa)+$"})"),
                                           Json::parse(R"({"String": ""})"),
                                           Json::parse(R"({"Regex": ""})")};
  Json* at = &tree;
  while (at->is_structured() && !at->empty()) {
    const std::size_t child = random.below(at->size());
    Json* next = at->is_array() ? &(*at)[child] : &std::next(at->begin(), static_cast<std::ptrdiff_t>(child)).value();
    if (random.below(4) == 0) {
      if (random.below(3) == 0) {
        if (at->is_array()) {
          at->erase(child);
        } else {
          at->erase(std::string(std::next(at->begin(), static_cast<std::ptrdiff_t>(child)).key()));
        }
        return;
      }
      if (at->is_array() && random.below(2) == 0) {
        const Json copy = *next;
        for (std::uint32_t i = 1 + random.below(20); i > 0; --i) at->push_back(copy);
        return;
      }
      *next = random.pick(values);
      return;
    }
    at = next;
  }
  *at = random.pick(values);
}

std::string random_input(Random& random) {
  static const std::vector<std::string> pieces = {"a", "b",  "ab", " ",    "  ", "▁", "<x>", "é",       "A",
                                                  "1", "\n", "'s", "\xFF", "日", "c", "!",   "\xE6\x97"};
  std::string out;
  for (std::uint32_t i = random.below(24); i > 0; --i) out += random.pick(pieces);
  return out;
}

// Also under sanitizers, where templates take 18 s and tokenizers 70 s of processor time.
constexpr std::uint64_t default_count = 20'000;

}  // namespace

#ifndef __SANITIZE_ADDRESS__  // which has operators of its own; sizes are checked in the other builds
[[gnu::noinline]] void* operator new(std::size_t size) {
  largest_allocation = std::max(largest_allocation, size);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

TEST_CASE("any template renders or is refused") {
  std::vector<std::string> sources;
  for (const auto& [name, source] : text::detail::bundled_templates) sources.emplace_back(source);
  const Json variables = {
      {"messages",
       Json::parse(
           R"([{"role": "user", "content": "Größe <b>"}, {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]}])")},
      {"x", 3},
      {"y", "ab"},
      {"bos_token", "<s>"},
      {"add_generation_prompt", true}};
  const auto [first, count] = support::fuzz_inputs(default_count);
  std::size_t rendered = 0, refused = 0, failed = 0;
  for (std::uint64_t i = first; i < first + count; ++i) {
    Random random(1, i);
    const std::string source = random_template(random, sources);
    largest_allocation = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::string number = "rendered";
    try {
      static_cast<void>(text::JinjaTemplate(source).render(variables, {.step_limit = 20'000, .now = 1}));
      ++rendered;
    } catch (const core::Error& error) {
      number = std::string(error.what()).substr(0, 15);
      ++(number == "[rlalgo.text.6]" ? refused : failed);
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const bool good = number == "rendered" || number == "[rlalgo.text.6]" || number == "[rlalgo.text.7]" ||
                      number == "[rlalgo.text.8]";
    if (good && seconds < 5 && largest_allocation < (4U << 20U)) continue;
    INFO("input " << i << ": " << Json(source).dump(-1, ' ', true, Json::error_handler_t::replace));
    CHECK(good);
    CHECK(seconds < 5);
    CHECK(largest_allocation < (4U << 20U));
  }
  CHECK(rendered > count / 50);
  CHECK(refused > count / 50);
  CHECK(failed > count / 50);
}

TEST_CASE("any tokenizer.json is read or refused") {
  const auto [first, count] = support::fuzz_inputs(default_count);
  std::size_t used = 0, refused = 0;
  for (std::uint64_t i = first; i < first + count; ++i) {
    Random random(2, i);
    std::string file = random.pick(small_tokenizers());
    bool same_decoder = false;
    if (random.below(3) == 0) {
      file = damaged(std::move(file), random);
    } else {
      Json tree = Json::parse(file);
      for (std::uint32_t edits = random.below(4); edits > 0; --edits) change(tree, random);
      same_decoder = tree.is_object() && tree.contains("decoder") && tree["decoder"] == Json::parse(file)["decoder"];
      file = tree.dump();
    }
    const std::string input = random_input(random);
    largest_allocation = 0;
    const auto begin = std::chrono::steady_clock::now();
    bool good = true;
    std::string what;
    try {
      const text::Tokenizer tokenizer = text::Tokenizer::from_json(file);
      std::vector<std::int32_t> ids = tokenizer.encode(input);
      for (std::uint32_t extra = random.below(4); extra > 0; --extra)
        ids.push_back(static_cast<std::int32_t>(random.below(14)) - 2);
      const std::string decoded = tokenizer.decode(ids, random.below(2) == 0);
      text::StreamDecoder stream(tokenizer);
      std::string streamed;
      for (const std::int32_t id : ids) streamed += stream.push(id);
      streamed += stream.finish();
      // Odd decoders take back text that was there before, which no stream can.
      good = text::detail::is_valid_utf8(decoded) && (!same_decoder || streamed == tokenizer.decode(ids));
      ++used;
    } catch (const core::Error& error) {
      what = error.what();
      good = what.starts_with("[rlalgo.text.") && what[13] >= '2' && what[13] <= '5';
      ++refused;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (good && seconds < 5 && largest_allocation < (16U << 20U)) continue;
    INFO("input " << i << ": " << Json(file).dump(-1, ' ', true, Json::error_handler_t::replace) << " " << what);
    INFO(Json(input).dump(-1, ' ', true, Json::error_handler_t::replace));
    CHECK(good);
    CHECK(seconds < 5);
    CHECK(largest_allocation < (16U << 20U));
  }
  CHECK(used > count / 10);
  CHECK(refused > count / 10);
}

TEST_CASE("a compiled normalizer replaces what its table has") {
  const auto bytes = core::from_base64(charsmap());
  const std::string_view table(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const text::detail::Charsmap map(table);
  CHECK(map.apply("abé") == "acxyz");
  CHECK(map.apply("b\u0301") == "c");  // a cluster is looked up whole, and its first key wins
  CHECK(map.apply("b\u0301\u0301\u0301") == "c\u0301\u0301\u0301");  // unless it is long
  CHECK(map.apply("").empty());
  // Every damage to one byte is refused, or changes what is replaced: nothing outside the table is read.
  for (std::size_t at = 0; at < table.size(); ++at) {
    for (const unsigned char flip : {0x01, 0x80, 0xFF}) {
      std::string damaged(table);
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      try {
        const std::string replaced = text::detail::Charsmap(damaged).apply("abé");
        CHECK(replaced.size() < table.size());
      } catch (const core::Error& error) {
        CHECK(std::string(error.what()).find("[rlalgo.text.5]") == 0);
      }
    }
  }
}

TEST_CASE("deeply nested input does not exhaust the stack") {
  std::string open, close;
  for (int i = 0; i < 100'000; ++i) {
    open += R"({"type": "Sequence", "normalizers": [)";
    close += "]}";
  }
  CHECK_THROWS_WITH(text::Tokenizer::from_json(R"({"normalizer": )" + open + close + "}"),
                    Catch::Contains("[rlalgo.text.2]"));
  const auto fails = [](const std::string& source) {
    CHECK_THROWS_WITH(text::JinjaTemplate(source).render(Json::object()), Catch::Contains("[rlalgo.text.7]"));
  };
  fails("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}");
  fails("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x].index %}{% endfor %}");
  fails("{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] | select %}{% endfor %}");
  fails("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}");
  fails(
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
      "tojson }}");
  fails(
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, "
      "ns.y] %}{% endfor %}{{ ns.x == ns.y }}");
  fails("{% set s = 'ab' * 100000 %}{% for i in range(99999) %}{{ s.find('c') }}{% endfor %}");
  fails("{% set s = 'a' * 100000 %}{{ s | replace('', s) | length }}");
  fails("{% set d = dict([]) %}{% for i in [1, 2, 3] recursive %}{{ loop([1, 2, 3]) }}{% endfor %}");
}
