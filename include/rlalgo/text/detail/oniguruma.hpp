// Oniguruma's regular expressions (Ruby's syntax, what tokenizer.json holds) → PCRE2's, with the same meaning.
//
//   \h → a hexadecimal digit      {n,m}+ → (?: … {n,m})+      {,m} → {0,m}      {n}? → (?: … {n})?
//   \s, \w, \d and \p{…} → the same characters as Oniguruma's, whose Unicode is newer than PCRE2's
//
// What has no counterpart is refused: class intersections and nested classes, \W and \H in a class, (?m).
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

// A regular expression that cannot be translated, and why.
struct UntranslatablePattern {
  std::string reason;
};

class OnigurumaTranslator {
 public:
  explicit OnigurumaTranslator(std::string_view regex) : source_(regex) {}

  [[nodiscard]] std::string run() {
    while (at_ < source_.size()) {
      switch (source_[at_]) {
        case '\\':
          begin_atom();
          escape();
          break;
        case '[':
          begin_atom();
          character_class();
          break;
        case '(':
          groups_.push_back(out_.size());
          open_group();
          break;
        case ')':
          if (!groups_.empty()) {
            atom_ = groups_.back();
            groups_.pop_back();
          }
          copy(1);
          break;
        case '{':
          interval();
          break;
        case '*':
        case '+':
        case '?':
        case '|':
        case '^':
        case '$':
          copy(1);
          break;
        default:
          begin_atom();
          copy(scalar_at(source_, at_).length);
      }
    }
    return std::move(out_);
  }

 private:
  static constexpr std::string_view spaces =
      R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
  static constexpr std::string_view hexadecimal = "0-9A-Fa-f";

  [[nodiscard]] char peek(std::size_t ahead = 0) const noexcept {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void begin_atom() { atom_ = out_.size(); }
  void copy(std::size_t count) {
    out_ += source_.substr(at_, count);
    at_ = std::min(at_ + count, source_.size());
  }

  void open_group() {
    copy(1);
    if (peek() != '?') return;
    for (std::size_t i = 1; std::isalpha(static_cast<unsigned char>(peek(i))) != 0 || peek(i) == '-'; ++i) {
      if (peek(i) == 'm') throw UntranslatablePattern{"(?m) is not supported in a splitting pattern"};
    }
    copy(1);
  }

  // {n}, {n,}, {n,m}, {,m}; anything else in braces is text.
  void interval() {
    std::size_t i = 1;
    const auto digits = [&] {
      std::string number;
      while (peek(i) >= '0' && peek(i) <= '9') number += peek(i++);
      return number;
    };
    const std::string low = digits();
    const bool comma = peek(i) == ',';
    if (comma) ++i;
    const std::string high = comma ? digits() : "";
    if (peek(i) != '}' || (low.empty() && high.empty())) {
      begin_atom();
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ += i + 1;
    const std::string text = "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
    const bool again = peek() == '+' || (!comma && peek() == '?');  // a quantifier of the quantified
    if (again) out_.insert(atom_, "(?:");
    out_ += text;
    if (again) out_ += ')';
    if (peek() == '?' || peek() == '+') copy(1);
  }

  // The characters of a shorthand, as the inside of a class; empty if c is none.
  [[nodiscard]] static std::string shorthand(char c) {
    switch (c) {
      case 's':
        return std::string(spaces);
      case 'h':
        return std::string(hexadecimal);
      case 'd':
        return property("Nd", false);
      case 'w':  // Oniguruma's has some superscripts and fractions, too
        return property("L", false) + property("M", false) + property("Nd", false) + property("Nl", false) +
               property("Pc", false) +
               R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
      default:
        return {};
    }
  }

  void escape() {
    const char c = peek(1);
    const auto lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (const std::string inside = shorthand(lower); !inside.empty()) {
      out_ += (c == lower ? "[" : "[^") + inside + "]";
      at_ += 2;
    } else if (lower == 'p' && peek(2) == '{') {
      const auto [name, negated] = property_name();
      out_ += (negated ? "[^" : "[") + property(name, false) + "]";
    } else {
      plain_escape();
    }
  }

  // Escapes that mean one character, or a place.
  void plain_escape() {
    if (peek(1) == 'v') {
      out_ += "\\x0B";
      at_ += 2;
    } else if (peek(1) == 'u') {
      out_.append("\\x{").append(source_.substr(at_ + 2, 4)).append("}");
      at_ = std::min(at_ + 6, source_.size());
    } else if (peek(2) == '{' && source_.find('}', at_) != std::string_view::npos) {  // \x{1F600}, \g{name}
      copy(source_.find('}', at_) + 1 - at_);
    } else if (at_ + 1 < source_.size()) {
      copy(1 + scalar_at(source_, at_ + 1).length);
    } else {
      copy(1);
    }
  }

  // At \p{Name}, \p{^Name} or \P{Name}; goes behind it.
  std::pair<std::string, bool> property_name() {
    bool negated = peek(1) == 'P';
    const std::size_t close = source_.find('}', at_);
    if (close == std::string_view::npos) throw UntranslatablePattern{"\\p{ is not closed"};
    std::string_view name = source_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    at_ = close + 1;
    return {short_name(name), negated};
  }

  static std::string short_name(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 12> known = {{{"letter", "L"},
                                                                                      {"mark", "M"},
                                                                                      {"number", "N"},
                                                                                      {"punctuation", "P"},
                                                                                      {"punct", "P"},
                                                                                      {"symbol", "S"},
                                                                                      {"separator", "Z"},
                                                                                      {"other", "C"},
                                                                                      {"uppercaseletter", "Lu"},
                                                                                      {"lowercaseletter", "Ll"},
                                                                                      {"decimalnumber", "Nd"},
                                                                                      {"digit", "Nd"}}};
    std::string plain;
    for (const char c : name) {
      if (c != '_' && c != ' ' && c != '-') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    for (const auto& [full, abbreviated] : known) {
      if (full == plain) return std::string(abbreviated);
    }
    return std::string(name);
  }

  // \p{name} and the characters that PCRE2 may not know yet, as the inside of a class.
  static std::string property(const std::string& name, bool negated) {
    constexpr std::string_view categories = "CnLuLlLtLmLoMnMeMcNdNlNoZsZlZpCcCfCoCsPdPsPePcPoSmScSkSoPiPf";
    std::string out = (negated ? "\\P{" : "\\p{") + name + "}";
    if (negated || name.empty() || name.size() > 2) return out;
    for (const AddedCharacters& range : added_characters) {
      const std::string_view category = categories.substr(2 * static_cast<std::size_t>(range.category), 2);
      if (category.substr(0, name.size()) != name) continue;
      std::array<char, 48> text{};
      std::snprintf(text.data(), text.size(), "\\x{%X}-\\x{%X}", static_cast<unsigned>(range.first),
                    static_cast<unsigned>(range.last));
      out += text.data();
    }
    return out;
  }

  void character_class() {
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') copy(1);
    while (at_ < source_.size() && peek() != ']') {
      const char c = peek();
      if (c == '&' && peek(1) == '&') {
        throw UntranslatablePattern{"class intersections (&&) are not supported in a splitting pattern"};
      }
      if (c == '[' && peek(1) == ':') {
        const std::size_t close = source_.find(":]", at_);
        copy(close == std::string_view::npos ? 1 : close + 2 - at_);
      } else if (c == '[') {
        throw UntranslatablePattern{"nested character classes are not supported in a splitting pattern"};
      } else if (c != '\\') {
        copy(scalar_at(source_, at_).length);
      } else if (const std::string inside = shorthand(peek(1)); !inside.empty()) {
        out_ += inside;
        at_ += 2;
      } else if (peek(1) == 'S') {
        out_ += "\\S\\x{180E}";
        at_ += 2;
      } else if (peek(1) == 'D') {
        out_ += "\\P{Nd}";
        at_ += 2;
      } else if (peek(1) == 'W' || peek(1) == 'H') {
        throw UntranslatablePattern{"\\W and \\H in a character class are not supported in a splitting pattern"};
      } else if ((peek(1) == 'p' || peek(1) == 'P') && peek(2) == '{') {
        const auto [name, negated] = property_name();
        out_ += property(name, negated);
      } else {
        plain_escape();
      }
    }
    copy(1);
  }

  std::string_view source_;
  std::string out_;
  std::size_t at_ = 0, atom_ = 0;    // atom_: where the last thing that a quantifier can follow begins in out_
  std::vector<std::size_t> groups_;  // where the open groups begin in out_
};

}  // namespace rlalgo::text::detail
