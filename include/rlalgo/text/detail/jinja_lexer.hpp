// Chat template source → tokens, with transformers' white-space settings: trim_blocks and lstrip_blocks on, one final
// newline dropped, "-" and "+" signs honoured.
//
// Source: Jinja2 3.1, lexer.py; the rules there are regular expressions, here a scanner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/python_text.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

// A template that does not parse.
struct TemplateSyntaxError {
  std::string message;
  int line;
  std::string tag;  // source around it; may be empty
};

enum class TokenKind { data, print_begin, print_end, block_begin, block_end, name, string, integer, real, symbol, end };

struct Token {
  TokenKind kind;
  std::string text;  // data, name, string value, digits, symbol; print_begin, block_begin: source of the whole tag
  int line;
};

class TemplateLexer {
 public:
  explicit TemplateLexer(std::string_view source) : source_(normalize_newlines(source)) {
    if (source_.ends_with('\n')) source_.pop_back();
  }

  [[nodiscard, gnu::cold]] std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

  [[gnu::cold]] static std::string normalize_newlines(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\r') {
        out += '\n';
        if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
      } else {
        out += text[i];
      }
    }
    return out;
  }

 private:
  [[nodiscard, gnu::cold]] bool here(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  [[noreturn]] void error(const std::string& message) const {
    throw TemplateSyntaxError{message, line_, shown(tag_, at_ + 40)};
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  // Source as a message shows it: on one line, not too long.
  [[nodiscard, gnu::cold]] std::string shown(std::size_t from, std::size_t to) const {
    constexpr std::size_t limit = 160;
    std::string out;
    for (std::size_t i = from; i < std::min(to, source_.size());) {
      const std::size_t length = scalar_at(source_, i).length;
      if (out.size() > limit) return out + "…";
      if (static_cast<unsigned char>(source_[i]) > ' ') {
        out += source_.substr(i, length);
      } else if (!out.ends_with(' ')) {
        out += ' ';
      }
      i += length;
    }
    return out;
  }

  [[gnu::cold]] void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    if (to > at_) line_starting_ = source_[to - 1] == '\n';
    at_ = to;
  }
  void skip_spaces() {
    std::size_t to = at_;
    while (to < source_.size()) {
      const Scalar c = scalar_at(source_, to);
      if (!is_python_space(c.value)) break;
      to += c.length;
    }
    advance(to);
  }

  // Text up to the next tag, then that tag.
  void data() {
    std::size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        emit_data(source_.size());
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    tag_ = tag;
    const char kind = source_[tag + 1];
    const char sign =
        tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : '\0';
    emit_data(tag, sign, kind != '{');
    advance(tag + (sign == '\0' ? 2 : 3));
    if (kind == '#') {
      comment();
    } else if (kind == '{') {
      open_ = tokens_.size();
      add(TokenKind::print_begin, "{{");
      code("}}", TokenKind::print_end);
    } else if (!raw()) {
      open_ = tokens_.size();
      add(TokenKind::block_begin, "{%");
      code("%}", TokenKind::block_end);
    }
  }

  // The text before a tag at `end`, stripped as the tag's sign and lstrip_blocks say.
  [[gnu::cold]] void emit_data(std::size_t end, char sign = '\0', bool block = false) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = python_strip(text, {false, true});
    } else if (sign == '\0' && block) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && python_strip(text.substr(line_begin), {}).empty()) {
        text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
    advance(end);
  }

  // After the closing delimiter: "-" eats white space, a plain end of a block or comment eats one newline.
  [[gnu::cold]] void after_tag(char sign, bool block) {
    if (sign == '-') {
      skip_spaces();
    } else if (sign == '\0' && block && here("\n")) {
      advance(at_ + 1);
    }
  }

  // At the closing delimiter, with or without a sign; "+" is only allowed for blocks and comments.
  [[nodiscard, gnu::cold]] bool closes(std::string_view close, char& sign) const {
    const std::string_view rest = std::string_view(source_).substr(at_);
    sign = '\0';
    if (rest.starts_with(close)) return true;
    if (!rest.substr(std::min<std::size_t>(1, rest.size())).starts_with(close)) return false;
    sign = rest[0];
    return sign == '-' || (sign == '+' && close != "}}");
  }

  void comment() {
    const std::size_t close = source_.find("#}", at_);
    if (close == std::string::npos) error("Missing end of comment tag");
    const char before = close > at_ ? source_[close - 1] : '\0';
    advance(close + 2);
    after_tag(before == '-' || before == '+' ? before : '\0', true);
  }

  // {% raw %} … {% endraw %}; the position is just behind "{%" and its sign.
  [[nodiscard]] bool raw() {
    const std::size_t begin = at_;
    const int line = line_;
    const auto word = [&](std::string_view name) {
      skip_spaces();
      if (!here(name)) return false;
      advance(at_ + name.size());
      skip_spaces();
      return true;
    };
    char sign = '\0';
    if (!word("raw") || !closes("%}", sign) || sign == '+') {
      at_ = begin;
      line_ = line;
      return false;
    }
    advance(at_ + (sign == '\0' ? 2 : 3));
    after_tag(sign, false);
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      const std::size_t body = at_;
      const int body_line = line_;
      const bool body_starting = line_starting_;
      const char open =
          tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : '\0';
      at_ = tag + (open == '\0' ? 2 : 3);  // its lines are counted when the body is
      if (word("endraw") && closes("%}", sign)) {
        const std::size_t close = at_;
        at_ = body, line_ = body_line, line_starting_ = body_starting;
        emit_data(tag, open, true);
        advance(close + (sign == '\0' ? 2 : 3));
        after_tag(sign, true);
        return true;
      }
      at_ = body, line_ = body_line, line_starting_ = body_starting;
    }
    error("Missing end of raw directive");
  }

  // The inside of a tag, up to and including its closing delimiter.
  [[gnu::cold]] void code(std::string_view close, TokenKind end) {
    std::string brackets;
    while (true) {
      skip_spaces();
      if (at_ >= source_.size()) error("unexpected end of template: '" + std::string(close) + "' is missing");
      char sign = '\0';
      if (brackets.empty() && closes(close, sign)) {
        advance(at_ + (sign == '\0' ? 2 : 3));
        add(end, std::string(close));
        tokens_[open_].text = shown(tag_, at_);
        after_tag(sign, end == TokenKind::block_end);
        return;
      }
      const char c = source_[at_];
      if (c >= '0' && c <= '9') {
        number();
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<std::uint8_t>(c) >= 0x80) {
        std::size_t to = at_;
        while (to < source_.size() && (is_word(scalar_at(source_, to).value))) to += scalar_at(source_, to).length;
        if (to == at_) error("unexpected character '" + source_.substr(at_, scalar_at(source_, at_).length) + "'");
        add(TokenKind::name, source_.substr(at_, to - at_));
        advance(to);
      } else if (c == '"' || c == '\'') {
        quoted(c);
      } else {
        symbol(brackets);
      }
    }
  }

  void number() {
    const auto digit = [&](std::size_t i) { return i < source_.size() && source_[i] >= '0' && source_[i] <= '9'; };
    const auto digits = [&](std::size_t i) {  // digits with single underscores between
      while (digit(i) || (i < source_.size() && source_[i] == '_' && digit(i + 1))) ++i;
      return i;
    };
    std::size_t to = at_;
    const bool prefixed = source_[at_] == '0' && at_ + 2 < source_.size() &&
                          std::string_view("xXoObB").find(source_[at_ + 1]) != std::string_view::npos;
    if (prefixed) {
      to = at_ + 2;
      while (to < source_.size() && (std::isalnum(static_cast<unsigned char>(source_[to])) != 0 || source_[to] == '_'))
        ++to;
      add(TokenKind::integer, source_.substr(at_, to - at_));
      advance(to);
      return;
    }
    to = digits(at_);
    bool real = false;
    if (at_ == 0 || source_[at_ - 1] != '.') {
      if (to < source_.size() && source_[to] == '.' && digit(to + 1)) {
        to = digits(to + 1);
        real = true;
      }
      if (to < source_.size() && (source_[to] == 'e' || source_[to] == 'E')) {
        const bool sign = to + 1 < source_.size() && (source_[to + 1] == '+' || source_[to + 1] == '-');
        const std::size_t exponent = to + (sign ? 2 : 1);
        if (digit(exponent)) {
          to = digits(exponent);
          real = true;
        }
      }
    }
    std::string text = source_.substr(at_, to - at_);
    std::erase(text, '_');
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(to);
  }

  void quoted(char quote) {
    std::size_t to = at_ + 1;
    while (to < source_.size() && source_[to] != quote) to += source_[to] == '\\' ? 2 : 1;
    if (to >= source_.size()) error("a string is not closed");
    add(TokenKind::string, unescape(std::string_view(source_).substr(at_ + 1, to - at_ - 1)));
    advance(to + 1);
  }

  // Python's escapes.
  [[nodiscard, gnu::cold]] std::string unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      constexpr std::string_view names = "\\'\"abfnrtv", meanings = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t at = names.find(c); at != std::string_view::npos) {
        out += meanings[at];
      } else if (c == '\n') {
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(out, code_point(text.substr(std::min(i + 1, text.size()), digits), digits, 16));
        i += digits;
      } else if (c >= '0' && c <= '7') {
        std::size_t digits = 1;
        while (digits < 3 && i + digits < text.size() && text[i + digits] >= '0' && text[i + digits] <= '7') ++digits;
        append_utf8(out, code_point(text.substr(i, digits), digits, 8));
        i += digits - 1;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }
  [[nodiscard]] char32_t code_point(std::string_view digits, std::size_t wanted, unsigned base) const {
    char32_t value = 0;
    for (const char c : digits) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      if (digit >= static_cast<int>(base)) error("a truncated escape in a string");
      value = value * base + static_cast<char32_t>(digit);
    }
    if (digits.size() != wanted || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      error("an escape in a string is no character");
    return value;
  }

  [[gnu::cold]] void symbol(std::string& brackets) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (here(two)) {
        add(TokenKind::symbol, std::string(two));
        advance(at_ + 2);
        return;
      }
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~<>=.:|,;()[]{}").find(c) == std::string_view::npos)
      error(std::string("unexpected char '") + c + "'");
    if (c == '(' || c == '[' || c == '{') brackets += c;
    if (c == ')' || c == ']' || c == '}') {
      const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets.empty()) error(std::string("unexpected '") + c + "'");
      if (brackets.back() != open)
        error(std::string("unexpected '") + c + "', '" + brackets.back() + "' is still open");
      brackets.pop_back();
    }
    add(TokenKind::symbol, std::string(1, c));
    advance(at_ + 1);
  }

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0, tag_ = 0, open_ = 0;  // position; where the last tag begins; its first token
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace rlalgo::text::detail
