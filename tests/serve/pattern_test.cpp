#include <rlalgo/serve/pattern.hpp>

#include <chrono>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using serve::Pattern;

namespace {

bool matches(const Pattern& pattern, const std::string& text) {
  return pattern.accepts(pattern.next(pattern.start(), text));
}
bool matches(const std::string& expression, const std::string& text) { return matches(Pattern(expression), text); }

std::string refused(const std::string& expression) {
  return support::number_raised_by([&] { Pattern pattern(expression); });
}

}  // namespace

TEST_CASE("a text can become a match, is one, or cannot") {
  const Pattern pattern("[0-9]{2}-[a-f]{3}");
  auto state = pattern.next(pattern.start(), "12-");
  CHECK(state != Pattern::dead);
  CHECK(!pattern.accepts(state));
  CHECK(pattern.accepts(pattern.next(state, "abc")));
  CHECK(pattern.next(state, "abcd") == Pattern::dead);
  CHECK(pattern.next(state, "x") == Pattern::dead);
  CHECK(pattern.next(Pattern::dead, "1") == Pattern::dead);
  CHECK(!pattern.accepts(Pattern::dead));
}

TEST_CASE("the syntax") {
  CHECK(matches("", ""));
  CHECK(!matches("", "a"));
  CHECK(matches("a|bc|", ""));
  CHECK(matches("a|bc|", "bc"));
  CHECK(matches("(?:ab)+c?", "ababc"));
  CHECK(!matches("(?:ab)+c?", "c"));
  CHECK(matches("a{0}", ""));
  CHECK(!matches("a{0}", "a"));
  CHECK(matches("a{2,}", "aaaaa"));
  CHECK(!matches("a{2,}", "a"));
  CHECK(matches("(ab|c){1,2}", "cab"));
  CHECK(!matches("(ab|c){1,2}", "ccc"));
  CHECK(matches("(a*)*b", "aaab"));
  CHECK(matches("^a$", "a"));
  CHECK(matches("[]a-c-]+", "]-b"));
  CHECK(matches("[^a-c]", "d"));
  CHECK(!matches("[^a-c]", "b"));
  CHECK(matches("\\d\\w\\s\\D\\W\\S", "1_ x-y"));
  CHECK(matches("\\x41\\u00e9\\.\\n", "A\xC3\xA9.\n"));
  CHECK(matches("a.c",
                "a\xF0\x9F\x99\x82"
                "c"));  // one character, four bytes
  CHECK(!matches("a.c", "a\nc"));
  CHECK(!matches("a.c",
                 "a\xF0\x9F\x99"
                 "c"));
  CHECK(matches(serve::escaped("a.b*[c]{\\}"), "a.b*[c]{\\}"));
  CHECK(!matches(serve::escaped("a.b"), "axb"));
}

TEST_CASE("ranges of characters are exactly their UTF-8") {
  const auto utf8 = [](std::uint32_t c) {
    std::string out;
    if (c < 0x80) return std::string(1, static_cast<char>(c));
    if (c < 0x800) {
      out += static_cast<char>(0xC0 | c >> 6);
    } else {
      if (c < 0x10000) {
        out += static_cast<char>(0xE0 | c >> 12);
      } else {
        out += static_cast<char>(0xF0 | c >> 18);
        out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
      }
      out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    }
    out += static_cast<char>(0x80 | (c & 0x3F));
    return out;
  };
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    std::uint32_t a = random() % 0x11000, b = random() % 0x11000;
    if (i % 4 == 0) a = random() % 0x200, b = random() % 0x900;
    if (a > b) std::swap(a, b);
    const auto usable = [](std::uint32_t c) { return c > 0x7F && (c < 0xD800 || c > 0xDFFF); };
    if (!usable(a) || !usable(b)) continue;
    const Pattern pattern("[" + utf8(a) + "-" + utf8(b) + "]");
    for (int k = 0; k < 200; ++k) {
      const std::uint32_t c = k == 0 ? a : k == 1 ? b : k == 2 ? a - 1 : k == 3 ? b + 1 : random() % 0x11000;
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      INFO(a << " " << b << " " << c);
      CHECK(matches(pattern, utf8(c)) == (a <= c && c <= b));
    }
  }
}

TEST_CASE("random expressions agree with the standard library's") {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::function<std::string(int)> make = [&](int depth) -> std::string {
    switch (pick(depth > 0 ? 6 : 2)) {
      case 0:
        return std::string(1, static_cast<char>('a' + pick(3)));
      case 1:
        return "[ab]";
      case 2:
        return make(depth - 1) + make(depth - 1);
      case 3:
        return "(" + make(depth - 1) + "|" + make(depth - 1) + ")";
      case 4:  // nothing that may be empty is repeated: the standard library takes exponential time for it
        return "([ab]" + make(depth - 1) + ")+";
      default:
        return "(c" + make(depth - 1) + "){1,2}" + (pick(2) == 0 ? "a?" : "");
    }
  };
  for (int i = 0; i < 150; ++i) {
    const std::string expression = make(3);
    const Pattern pattern(expression);
    const std::regex expected(expression);
    for (int k = 0; k < 20; ++k) {
      std::string text;
      for (int n = pick(6); n > 0; --n) text += static_cast<char>('a' + pick(3));
      INFO(expression << " on " << text);
      CHECK(matches(pattern, text) == std::regex_match(text, expected));
    }
  }
}

TEST_CASE("what cannot be read is refused, what is too large ends") {
  for (const char* expression :
       {"(",   ")",   "[a", "a{",  "a{2", "a{3,2}", "*",     "a**",         "a+?",       "(?=a)",         "(?<n>a)",
        "\\1", "\\b", "a^", "a$b", "\\",  "\\xZZ",  "[b-a]", "[[:alpha:]]", "a{999999}", "(a{100}){300}", "\xFF"}) {
    INFO(expression);
    CHECK(refused(expression) == "serve.23");
  }
  CHECK(refused(std::string(1000, '(')) == "serve.23");
  const auto begin = std::chrono::steady_clock::now();
  const Pattern pattern("(a|b)*a(a|b){14}");  // 2¹⁵ states
  std::mt19937 random(3);
  auto state = pattern.start();
  for (int i = 0; i < 200'000 && state != Pattern::dead; ++i) state = pattern.next(state, random() % 2 ? "a" : "b");
  CHECK(state == Pattern::dead);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}
