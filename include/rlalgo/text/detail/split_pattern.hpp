// Regular expressions that pre-tokenizers split by.
//
// The patterns of GPT-2, Llama-3, Qwen2/2.5/3 and Qwen3.5 are matched by hand (they cover every text without gaps, so
// one function gives the end of the match that starts at a position); plain texts are looked for; any other pattern
// runs on PCRE2, translated from Oniguruma's syntax (oniguruma.hpp).
//
// Errors: [rlalgo.text.4] the pattern does not compile, or has no translation.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/oniguruma.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

struct Span {
  std::size_t begin, end;
};

// The hand-matched family: which letters, how many digits, which contractions.
struct KnownPattern {
  std::string_view regex;
  bool gpt2;          // GPT-2's shape; else Llama-3's
  int digits;         // longest run of numbers in one match
  std::uint8_t word;  // class bits of word characters
};

inline constexpr KnownPattern known_patterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", true, 0, letter},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, 3, letter},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, 1, letter},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, 1, letter | mark},
};

// Walks a text by hand. Every method takes the position of a scalar and returns the end of what it matched.
class HandMatcher {
 public:
  HandMatcher(const KnownPattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}

  [[nodiscard]] std::size_t match(std::size_t at) const noexcept {
    const Look now = look(at);
    if (now.value == U'\'') {
      if (const std::size_t end = contraction(at); end != at) return end;
    }
    return pattern_.gpt2 ? match_gpt2(at, now) : match_llama(at, now);
  }

 private:
  struct Look {
    char32_t value;
    std::uint8_t bits;
    std::size_t end;
  };

  [[nodiscard]] Look look(std::size_t at) const noexcept {
    const auto byte = static_cast<std::uint8_t>(text_[at]);
    if (byte < 0x80) return {byte, char_class(byte), at + 1};
    const Scalar scalar = scalar_at(text_, at);
    return {scalar.value, char_class(scalar.value), at + scalar.length};
  }
  [[nodiscard]] bool is_word(const Look& c) const noexcept { return (c.bits & pattern_.word) != 0; }
  [[nodiscard]] bool is_other(const Look& c) const noexcept {  // neither space, letter nor number
    return (c.bits & (pattern_.word | number | space)) == 0;
  }
  [[nodiscard]] bool at_end(std::size_t at) const noexcept { return at >= text_.size(); }

  template <class Predicate>
  [[nodiscard]] std::size_t run(std::size_t at, Predicate predicate) const noexcept {
    while (!at_end(at)) {
      const Look c = look(at);
      if (!predicate(c)) break;
      at = c.end;
    }
    return at;
  }
  [[nodiscard]] std::size_t word_run(std::size_t at) const noexcept {
    return run(at, [&](const Look& c) { return is_word(c); });
  }
  [[nodiscard]] std::size_t other_run(std::size_t at) const noexcept {
    return run(at, [&](const Look& c) { return is_other(c); });
  }

  // 's 't 're 've 'm 'll 'd; Llama-3's shape ignores case, where U+017F (long s) is an s.
  [[nodiscard]] std::size_t contraction(std::size_t at) const noexcept {
    const auto ascii = [&](std::size_t i) -> char {
      if (at_end(i)) return '\0';
      const char c = text_[i];
      return !pattern_.gpt2 && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char first = ascii(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if (!pattern_.gpt2 && text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    const char second = ascii(at + 2);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) {
      return at + 3;
    }
    return at;
  }

  // \s+(?!\S)|\s+ : the run of spaces, less its last one when something follows and more than one is there.
  [[nodiscard]] std::size_t spaces(std::size_t at) const noexcept {
    const std::size_t end = run(at, [](const Look& c) { return (c.bits & space) != 0; });
    if (at_end(end)) return end;
    const std::size_t last = previous_scalar(text_, end);
    return last > at ? last : end;
  }

  [[nodiscard]] std::size_t match_gpt2(std::size_t at, const Look& now) const noexcept {
    Look start = now;
    if (now.value == U' ' && !at_end(now.end)) {
      const Look next = look(now.end);
      if ((next.bits & space) == 0) start = next;
    }
    if ((start.bits & letter) != 0) return word_run(start.end);
    if ((start.bits & number) != 0) return run(start.end, [](const Look& c) { return (c.bits & number) != 0; });
    if (is_other(start)) return other_run(start.end);
    return spaces(at);
  }

  [[nodiscard]] std::size_t match_llama(std::size_t at, const Look& now) const noexcept {
    // [^\r\n\p{L}\p{N}]?\p{L}+
    if (is_word(now)) {
      return word_run(now.end);
    }
    if ((now.bits & (line_end | number)) == 0 && !at_end(now.end)) {
      if (const Look next = look(now.end); is_word(next)) return word_run(next.end);
    }
    if ((now.bits & number) != 0) {
      std::size_t end = now.end;
      for (int i = 1; i < pattern_.digits && !at_end(end); ++i) {
        const Look next = look(end);
        if ((next.bits & number) == 0) break;
        end = next.end;
      }
      return end;
    }
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    std::size_t other = at;
    if (is_other(now)) {
      other = now.end;
    } else if (now.value == U' ' && !at_end(now.end)) {
      if (const Look next = look(now.end); is_other(next)) other = next.end;
    }
    if (other != at) {
      return run(other_run(other), [](const Look& c) { return (c.bits & line_end) != 0; });
    }
    // \s*[\r\n]+ : up to the last line end of the run of spaces
    std::size_t after_line_end = at;
    for (std::size_t i = at; !at_end(i);) {
      const Look c = look(i);
      if ((c.bits & space) == 0) break;
      i = c.end;
      if ((c.bits & line_end) != 0) after_line_end = i;
    }
    return after_line_end != at ? after_line_end : spaces(at);
  }

  const KnownPattern& pattern_;
  std::string_view text_;
};

class SplitPattern {
 public:
  // force_pcre: do not match by hand (tests compare the two).
  explicit SplitPattern(std::string regex, bool force_pcre = false) : regex_(std::move(regex)) {
    for (const KnownPattern& known : known_patterns) {
      if (!force_pcre && known.regex == regex_) known_ = &known;
    }
    if (known_ == nullptr) compile();
  }

  // Matches this text itself.
  [[nodiscard]] static SplitPattern literal(std::string_view text) {
    SplitPattern pattern;
    pattern.regex_ = text;
    pattern.literal_ = !text.empty();
    if (text.empty()) pattern.compile();
    return pattern;
  }

  // Calls visit(span, is_match) for matches and the gaps between them, in order, together covering text[from.begin,
  // from.end).
  template <class Visit>
  void split(std::string_view text, Span from, Visit visit) const {
    const std::string_view part = text.substr(from.begin, from.end - from.begin);
    if (known_ != nullptr) {
      const HandMatcher matcher(*known_, part);
      for (std::size_t at = 0; at < part.size();) {
        const std::size_t end = matcher.match(at);
        visit(Span{from.begin + at, from.begin + end}, true);
        at = end;
      }
      return;
    }
    if (literal_) {
      std::size_t covered = 0;
      for (std::size_t at = part.find(regex_); at != std::string_view::npos; at = part.find(regex_, covered)) {
        if (at > covered) visit(Span{from.begin + covered, from.begin + at}, false);
        covered = at + regex_.size();
        visit(Span{from.begin + at, from.begin + covered}, true);
      }
      if (covered < part.size()) visit(Span{from.begin + covered, from.end}, false);
      return;
    }
    split_pcre(part, from.begin, visit);
  }

 private:
  static constexpr std::uint32_t match_limit = 1'000'000;  // attempts of one match; a sane pattern needs a few per byte

  SplitPattern() = default;

  struct FreeCode {
    void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
  };
  struct FreeContext {
    void operator()(pcre2_compile_context* context) const noexcept { pcre2_compile_context_free(context); }
  };
  struct FreeLimits {
    void operator()(pcre2_match_context* context) const noexcept { pcre2_match_context_free(context); }
  };
  struct FreeMatch {
    void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
  };

  [[noreturn]] void refuse(const std::string& what) const {
    core::raise("text", 4,
                {.what = what,
                 .found = "/" + regex_ + "/",
                 .where = "tokenizer.json",
                 .remedy = "this tokenizer's splitting pattern is not supported"});
  }

  void compile() {
    std::string translated;
    try {
      translated = OnigurumaTranslator(regex_).run();
    } catch (const UntranslatablePattern& pattern) {
      refuse(pattern.reason);
    }
    const std::unique_ptr<pcre2_compile_context, FreeContext> context(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context.get(), 200);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get()),
                FreeCode{});
    if (code_ == nullptr) {
      std::string message(256, '\0');
      const int length = pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message.data()), message.size());
      message.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
      refuse("a splitting pattern does not compile (" + message + " at " + std::to_string(offset) + " in /" +
             translated.substr(0, 200) + "/)");
    }
    limits_.reset(pcre2_match_context_create(nullptr), FreeLimits{});
    pcre2_set_match_limit(limits_.get(), match_limit);
    pcre2_set_heap_limit(limits_.get(), 16 << 10);       // KiB
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it, matching is only slower
  }

  template <class Visit>
  void split_pcre(std::string_view part, std::size_t base, Visit visit) const {
    const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(part.data());
    std::size_t search = 0, covered = 0;
    bool matched_before = false;
    while (search <= part.size()) {
      int found = pcre2_match(code_.get(), subject, part.size(), search, PCRE2_NO_UTF_CHECK, data.get(), limits_.get());
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_.get(), subject, part.size(), search, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                            limits_.get());
      }
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) refuse("matching a splitting pattern failed (PCRE2 error " + std::to_string(found) + ")");
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
      const std::size_t begin = bounds[0], end = bounds[1];
      if (begin == end && matched_before && end == covered) {  // an empty match right after a match does not count
        search += search < part.size() ? scalar_at(part, search).length : 1;
        continue;
      }
      if (begin > covered) visit(Span{base + covered, base + begin}, false);
      visit(Span{base + begin, base + end}, true);
      covered = search = end;
      matched_before = true;
    }
    if (covered < part.size()) visit(Span{base + covered, base + part.size()}, false);
  }

  std::string regex_;
  const KnownPattern* known_ = nullptr;
  bool literal_ = false;
  std::shared_ptr<pcre2_code> code_;
  std::shared_ptr<pcre2_match_context> limits_;
};

}  // namespace rlalgo::text::detail
