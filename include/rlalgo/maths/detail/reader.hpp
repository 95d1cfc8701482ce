// Reads a formula's text piece by piece: blanks, commands, numerals, braces.
//
// A formula that is not understood raises Unreadable, which parsing catches; it never leaves the room.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/maths/detail/extract.hpp>
#include <rlalgo/maths/detail/node.hpp>
#include <rlalgo/maths/detail/work.hpp>

namespace rlalgo::maths::detail {

struct Unreadable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class MathsReader {
 public:
  explicit MathsReader(std::string_view text) : text_(text) {
    if (text.size() > longest) throw Unreadable("long");
  }

 protected:
  static constexpr std::size_t longest = 4000;
  static constexpr int deepest = 100;

  void skip() {
    MathsWork::charge(1);
    for (;;) {
      at_ = skip_blanks(text_, at_);
      bool skipped = false;
      for (const std::string_view space : {"\\,", "\\;", "\\:", "\\ ", "\\quad", "\\qquad", "~"})
        if (ahead(space) && !(space.size() > 2 && is_letter(after(space.size())))) {
          // "5\,000" is five thousand: the number has read it already; any other thin space is a space.
          at_ += space.size();
          skipped = true;
          break;
        }
      if (!skipped) return;
    }
  }
  [[nodiscard]] bool ahead(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  [[nodiscard]] char after(std::size_t distance) const {
    return at_ + distance < text_.size() ? text_[at_ + distance] : '\0';
  }
  bool take(std::string_view what) {
    skip();
    if (!ahead(what)) return false;
    if (what.size() > 1 && what[0] == '\\' && is_letter(what[1]) && is_letter(after(what.size()))) return false;
    at_ += what.size();
    return true;
  }
  void need(std::string_view what) {
    if (!take(what)) throw Unreadable("expected another");
  }
  bool take_any(std::initializer_list<std::string_view> list) {
    for (const std::string_view what : list)
      if (take(what)) return true;
    return false;
  }
  [[nodiscard]] std::string command_ahead() {
    skip();
    if (after(0) != '\\' || !is_letter(after(1))) return {};
    std::size_t end = at_ + 1;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    return std::string(text_.substr(at_ + 1, end - at_ - 1));
  }
  struct Depth {
    explicit Depth(int& depth) : depth_(depth) {
      if (++depth_ > deepest) throw Unreadable("depth");
    }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    ~Depth() { --depth_; }
    int& depth_;
  };

  NodePtr number() {
    std::string digits;
    const auto three_digits = [&](std::size_t from) {
      return is_digit(after(from)) && is_digit(after(from + 1)) && is_digit(after(from + 2)) &&
             !is_digit(after(from + 3));
    };
    while (is_digit(after(0))) digits += text_[at_++];
    while (!digits.empty() && ahead("\\,") && three_digits(2)) {
      digits += text_.substr(at_ + 2, 3);
      at_ += 5;
    }
    if (after(0) == '.' && is_digit(after(1))) {
      digits += digits.empty() ? "0." : ".";
      for (++at_; is_digit(after(0));) digits += text_[at_++];
    }
    if (digits.empty()) throw Unreadable("number");
    if (take("_")) (void)single_or_group();  // the base of a numeral
    const std::size_t first = digits.find_first_not_of('0');
    if (first == std::string::npos) return make(Kind::number, "0");
    digits.erase(0, first > 0 && digits[first] == '.' ? first - 1 : first);
    return make(Kind::number, digits);
  }

  std::string single_or_group() {
    skip();
    if (ahead("{")) return braced_text();
    if (after(0) == '\\') {
      const std::string name = command_ahead();
      at_ += name.size() + 1;
      return name;
    }
    return at_ < text_.size() ? std::string(1, text_[at_++]) : std::string();
  }

  // The raw text between the braces that open here.
  std::string braced_text() {
    need("{");
    std::size_t open = 1;
    const std::size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '{') ++open;
      if (text_[at_] == '}' && --open == 0) return std::string(text_.substr(begin, at_++ - begin));
    }
    throw Unreadable("unclosed");
  }

  static std::string letters_of(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c >= 'A' && c <= 'Z')
        out += static_cast<char>(c - 'A' + 'a');
      else if (is_letter(c) || is_digit(c) || (static_cast<unsigned char>(c) & 0x80U) != 0)
        out += c;
    }
    return out;
  }

  // The relation that stands here, read; "" when none does.
  std::string relation_ahead() {
    static const std::vector<std::pair<std::string_view, std::string_view>> list = {
        {"\\leqslant", "<="}, {"\\geqslant", ">="}, {"\\leq", "<="}, {"\\geq", ">="},   {"\\le", "<="},
        {"\\ge", ">="},       {"\\neq", "!="},      {"\\ne", "!="},  {"\\approx", "~"}, {"\\lt", "<"},
        {"\\gt", ">"},        {"\\in", "in"},       {"<=", "<="},    {">=", ">="},      {"!=", "!="},
        {"==", "="},          {"=", "="},           {"<", "<"},      {">", ">"}};
    for (const auto& [written, meant] : list)
      if (take(written)) return std::string(meant);
    return {};
  }

  // Whether another factor of a product begins here.
  bool factor_ahead() {
    skip();
    const char c = after(0);
    if (is_letter(c) || is_digit(c) || c == '(' || c == '{') return true;
    if (c == '|') return !in_bars_;
    if (c == '[') return false;
    if (c == '.' && is_digit(after(1))) return true;
    if (c != '\\') return false;
    if (after(1) == '{') return true;
    const std::string name = command_ahead();
    static constexpr std::string_view no_factor[] = {
        "cdot", "times", "ast",      "div",   "pm",    "mp",       "cup", "cap",  "setminus", "backslash",
        "le",   "leq",   "leqslant", "ge",    "geq",   "geqslant", "ne",  "neq",  "approx",   "in",
        "lt",   "gt",    "rfloor",   "rceil", "rvert", "rangle",   "end", "circ", "rbrace",   "rbrack",
        "to",   "cdots", "ldots",    "dots",  "quad",  "qquad",    "mid"};
    for (const std::string_view other : no_factor)
      if (name == other) return false;
    return !name.empty();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool in_bars_ = false;  // a bar closes an absolute value
};

}  // namespace rlalgo::maths::detail
