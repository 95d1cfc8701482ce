// Where in a text the final answer stands: boxes, formulas between dollar signs or brackets, plain numbers.
//
// A formula stands in $…$, $$…$$, \(…\), \[…\], or between blanks in [ … ]; a bare \frac{1}{2} counts where every
// formula counts. Several joined by "," "and" "or" are one find. Finds are ranked by what announces them:
//   0 "final answer is … I hope"   50 "final answer … is"   100 "answer: …"   200 "answer …"   300 anything
// and among equals the one that ends last wins. \boxed{…} ranks 0 in completions and 50 in the dataset's solutions.
// Source: the order and the reach of each announcement (50 and 100 characters) are those of math-verify 0.9.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/maths/detail/work.hpp>

namespace rlalgo::maths::detail {

// One formula: what stands between its delimiters.
struct Formula {
  std::string_view content;
  bool percent = false;  // a percent sign or word follows the closing delimiter
};

// One find: formulas joined by "and", or plain text that holds a number or an expression of digits.
struct Find {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<Formula> formulas;
  bool last_box = false;  // content runs from the first \boxed{ to the last }: only the last box counts
  bool plain = false;     // no LaTeX: formulas[0].content is a number or an expression of digits
};

inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

inline std::size_t skip_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && is_blank(text[at])) ++at;
  return at;
}

inline bool starts_ignoring_case(std::string_view text, std::size_t at, std::string_view lower) {
  if (text.size() - at < lower.size()) return false;
  for (std::size_t i = 0; i < lower.size(); ++i) {
    const char c = text[at + i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != lower[i]) return false;
  }
  return true;
}

// The end of a percent sign or word at `at`, or `at` itself.
inline std::size_t percent_end(std::string_view text, std::size_t at) {
  for (const std::string_view sign : {"\\%", "%", "Percentage", "percentage", "Percent", "percent", "Pct", "pct"})
    if (text.substr(at).starts_with(sign)) return at + sign.size();
  return at;
}

inline bool holds_box(std::string_view content) {
  MathsWork::charge(content.size() / 16);
  if (content.rfind('}') == std::string_view::npos) return false;
  for (std::size_t at = content.find("\\boxed{"); at != std::string_view::npos; at = content.find("\\boxed{", at + 1))
    if (content.find('}', at + 8) != std::string_view::npos) return true;
  return false;
}

enum class Wanted { any, boxed };

struct Span {
  std::string_view content;
  std::size_t end = 0;  // behind the closing delimiter
};

// Content up to `close`, which no backslash precedes. Inline content stays on its line.
inline std::optional<Span> delimited(std::string_view text, std::size_t open_end, std::string_view close, bool one_line,
                                     Wanted wanted) {
  for (std::size_t at = open_end; at < text.size(); ++at) {
    MathsWork::charge(1);
    if (one_line && text[at] == '\n') return std::nullopt;
    if (!text.substr(at).starts_with(close)) {
      if (close == "$" && text[at] == '\\' && at + 1 < text.size() && text[at + 1] == '$') ++at;
      continue;
    }
    if (text[at - 1] == '\\' || at == open_end) {
      if (close.front() == '\\') return std::nullopt;
      if (at == open_end) return std::nullopt;
      continue;
    }
    const std::string_view content = text.substr(open_end, at - open_end);
    if (wanted == Wanted::boxed && !holds_box(content)) return std::nullopt;
    return Span{content, at + close.size()};
  }
  return std::nullopt;
}

// "-3" or "2.5" or "2,5" filling the braces that open at `at`; the end behind the closing brace.
inline std::size_t braced_number_end(std::string_view text, std::size_t at) {
  constexpr std::size_t none = 0;
  if (at >= text.size() || text[at] != '{') return none;
  std::size_t i = at + 1;
  if (i < text.size() && text[i] == '-') ++i;
  const std::size_t digits = i;
  while (i < text.size() && is_digit(text[i])) ++i;
  if (i == digits) return none;
  if (i + 1 < text.size() && (text[i] == '.' || text[i] == ',') && is_digit(text[i + 1])) {
    ++i;
    while (i < text.size() && is_digit(text[i])) ++i;
  }
  return i < text.size() && text[i] == '}' ? i + 1 : none;
}

// The formula that opens at `at`, if one does.
inline std::optional<Span> formula_at(std::string_view text, std::size_t at, Wanted wanted) {
  const std::string_view rest = text.substr(at);
  const bool escaped = at > 0 && text[at - 1] == '\\';
  if (rest.starts_with("$$") && !escaped)
    if (auto found = delimited(text, at + 2, "$$", false, wanted)) return found;
  if (rest.starts_with("\\[") && !escaped)
    if (auto found = delimited(text, at + 2, "\\]", false, wanted)) return found;
  if (rest.starts_with("$") && !escaped && !(at > 0 && is_digit(text[at - 1])))
    if (auto found = delimited(text, at + 1, "$", true, wanted)) return found;
  if (rest.starts_with("\\(") && !escaped)
    if (auto found = delimited(text, at + 2, "\\)", true, wanted)) return found;
  if (rest.size() > 3 && is_blank(rest[0]) && rest[1] == '[') {
    const std::size_t end = rest.find_first_of("[]\n", 2);
    MathsWork::charge(std::min(end, rest.size()));
    if (end != std::string_view::npos && end > 2 && rest[end] == ']' && end + 1 < rest.size() &&
        is_blank(rest[end + 1]) && (wanted == Wanted::any || holds_box(rest.substr(2, end - 2))))
      return Span{rest.substr(2, end - 2), at + end + 2};
  }
  if (wanted == Wanted::any) {
    const std::size_t frac = at + (rest.starts_with("-") ? 1 : 0);
    if (text.substr(frac).starts_with("\\frac"))
      if (const std::size_t middle = braced_number_end(text, frac + 5); middle != 0)
        if (const std::size_t end = braced_number_end(text, middle); end != 0)
          return Span{text.substr(at, end - at), end};
  }
  return std::nullopt;
}

// A formula and up to five more joined to it.
inline std::optional<Find> formulas_at(std::string_view text, std::size_t at, Wanted wanted) {
  Find find;
  find.begin = at;
  std::size_t next = at;
  for (std::size_t count = 0; count < 6; ++count) {
    std::optional<Span> span;
    if (count == 0) {
      span = formula_at(text, at, wanted);
    } else {
      std::size_t joint = skip_blanks(text, find.end);
      const std::size_t comma = joint < text.size() && text[joint] == ',' ? joint + 1 : joint;
      if (text.substr(comma).starts_with("and"))
        joint = comma + 3;
      else if (text.substr(comma).starts_with("or"))
        joint = comma + 2;
      else if (comma > joint)
        joint = comma;
      else
        break;
      next = skip_blanks(text, joint);
      span = formula_at(text, next, wanted);
    }
    if (!span) break;
    const std::size_t behind = skip_blanks(text, span->end);
    const std::size_t percent = percent_end(text, behind);
    find.formulas.push_back({span->content, percent > behind});
    find.end = percent;
  }
  if (find.formulas.empty()) return std::nullopt;
  return find;
}

using Matcher = std::function<std::optional<Find>(std::string_view, std::size_t)>;

// Every match from left to right, none overlapping another.
inline void find_all(std::string_view text, const Matcher& matcher, std::vector<Find>& out) {
  for (std::size_t at = 0; at < text.size();) {
    MathsWork::charge(1);
    std::optional<Find> found = matcher(text, at);
    if (found) out.push_back(*found);
    at = found && found->end > at ? found->end : at + 1;
  }
}

// `what` within `reach` characters behind the announcement that ends at `at`: the nearest.
inline std::optional<Find> within(std::string_view text, std::size_t at, std::size_t reach, const Matcher& what) {
  for (std::size_t i = at; i <= std::min(text.size(), at + reach); ++i)
    if (std::optional<Find> found = what(text, i)) return found;
  return std::nullopt;
}

// The announcements of `rank` before `what`.
inline Matcher announced(int rank, Matcher what) {
  const auto from = [](std::optional<Find> found, std::size_t begin) {
    if (found) found->begin = begin;
    return found;
  };
  if (rank == 300) return what;
  if (rank == 0)
    return [what, from](std::string_view text, std::size_t at) -> std::optional<Find> {
      if (!starts_ignoring_case(text, at, "final answer is")) return std::nullopt;
      std::size_t next = at + 15;
      if (next < text.size() && text[next] == ':') ++next;
      std::optional<Find> found = what(text, skip_blanks(text, next));
      if (!found) return std::nullopt;
      std::size_t end = found->end;
      if (end < text.size() && text[end] == '.') ++end;
      if (end < text.size() && is_blank(text[end])) ++end;
      if (!text.substr(end).starts_with("I hope") && !text.substr(found->end).starts_with("I hope"))
        return std::nullopt;
      found->end = end + 6;
      return from(std::move(found), at);
    };
  if (rank == 50)
    return [what, from](std::string_view text, std::size_t at) -> std::optional<Find> {
      if (!starts_ignoring_case(text, at, "final answer")) return std::nullopt;
      for (std::size_t i = at + 12; i < text.size() && i <= at + 112; ++i) {
        const std::size_t is = skip_blanks(text, i);
        if (is == i || !starts_ignoring_case(text, is, "is")) continue;
        const std::size_t colon = is + 2 < text.size() && text[is + 2] == ':' ? is + 3 : is + 2;
        if (auto found = what(text, skip_blanks(text, colon))) return from(std::move(found), at);
        if (auto found = what(text, colon)) return from(std::move(found), at);
      }
      return std::nullopt;
    };
  const bool colon = rank == 100;
  return [what, from, colon](std::string_view text, std::size_t at) -> std::optional<Find> {
    if (!starts_ignoring_case(text, at, colon ? "answer:" : "answer")) return std::nullopt;
    return from(within(text, at + (colon ? 7 : 6), 50, what), at);
  };
}

// From the first \boxed{ to the last }.
inline std::optional<Find> plain_box(std::string_view text) {
  const std::size_t begin = text.find("\\boxed{");
  const std::size_t end = text.rfind('}');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin + 8) return std::nullopt;
  Find find;
  find.begin = begin;
  find.end = end + 1;
  find.formulas.push_back({text.substr(begin, end + 1 - begin), false});
  find.last_box = true;
  return find;
}

// A number: "1,234.5", "1 234", "12.5", "12,5", ".5", "-12", with a percent sign behind it. The end, or `at`.
inline std::size_t number_end(std::string_view text, std::size_t at, std::size_t& digits_end) {
  const auto digits_from = [&](std::size_t i) {
    while (i < text.size() && is_digit(text[i])) ++i;
    return i;
  };
  if (at > 0 && is_digit(text[at - 1])) return at;
  std::size_t i = at;
  if (i < text.size() && text[i] == '-') ++i;
  const std::size_t whole = digits_from(i);
  std::size_t end = whole;
  if (whole == i) {
    if (text[at] == '-' || i + 1 >= text.size() || text[i] != '.' || !is_digit(text[i + 1])) return at;
    end = digits_from(i + 1);
  } else {
    std::size_t grouped = whole;
    if (whole - i <= 3 && text[i] != '0')
      while (grouped + 3 < text.size() && (text[grouped] == ',' || text[grouped] == ' ') &&
             is_digit(text[grouped + 1]) && is_digit(text[grouped + 2]) && is_digit(text[grouped + 3]))
        grouped += 4;
    end = grouped;
    const bool separator = grouped > whole ? end < text.size() && text[end] == '.'
                                           : end < text.size() && (text[end] == '.' || text[end] == ',');
    if (separator && end + 1 < text.size() && is_digit(text[end + 1])) end = digits_from(end + 1);
  }
  digits_end = end;
  const std::size_t behind = skip_blanks(text, end);
  const std::size_t percent = percent_end(text, behind);
  const bool sign = percent > behind && text[behind] != '\\';
  return sign ? percent : end;
}

// "=", a blank or the start of the text before `at`, and then "**"; where the number may begin.
inline std::optional<std::size_t> plain_start(std::string_view text, std::size_t at) {
  std::size_t i = at;
  if (i < text.size() && (is_blank(text[i]) || text[i] == '='))
    ++i;
  else if (i != 0)
    return std::nullopt;
  if (text.substr(i).starts_with("**")) i += 2;
  return i;
}

inline std::optional<Find> plain_number_at(std::string_view text, std::size_t at) {
  std::optional<std::size_t> start = plain_start(text, at);
  if (!start || *start >= text.size()) return std::nullopt;
  for (const std::string_view sign : {"$", "€", "£", "¥", "₹"})
    if (text.substr(*start).starts_with(sign)) {
      *start += sign.size();
      break;
    }
  if (*start >= text.size()) return std::nullopt;
  std::size_t digits = 0;
  const std::size_t end = number_end(text, *start, digits);
  if (end == *start) return std::nullopt;
  Find find;
  find.begin = at;
  find.end = end;
  find.plain = true;
  find.formulas.push_back({text.substr(*start, digits - *start), end > digits});
  return find;
}

// Digits, operators and blanks of an expression: the bytes of the one at hand, 0 for anything else.
inline std::size_t expression_width(std::string_view text, std::size_t at) {
  if (is_digit(text[at]) || is_blank(text[at]) || std::string_view(".+-*/^()").find(text[at]) != std::string_view::npos)
    return 1;
  return text.substr(at).starts_with("×") || text.substr(at).starts_with("÷") ? 2 : 0;
}

// Digits and operators ("1/2", "3 + 4"), with a delimiter behind them. Asked for one place after the other, it walks
// through a stretch of digits and blanks once.
class PlainExpression {
 public:
  std::optional<Find> operator()(std::string_view text, std::size_t at) {
    const std::optional<std::size_t> start = plain_start(text, at);
    if (!start) return std::nullopt;
    std::size_t i = *start;
    for (const char c : {'-', '(', '-'})
      if (i < text.size() && text[i] == c) ++i;
    if (i >= text.size() || !is_digit(text[i])) return std::nullopt;
    const std::size_t first = ++i;  // the first end that is possible
    if (i >= end_ || i < begin_ || text.data() != text_.data() || text.size() != text_.size()) measure(text, i);
    if (endless_ || last_operator_ == none || first > last_operator_) return std::nullopt;
    // The end that is taken is the last one with a delimiter behind it and an operator, which something follows, before.
    std::size_t op = std::max(first, operator_ == none ? first : operator_);
    while (!is_operator(text, op)) ++op;
    MathsWork::charge(op - std::max(first, operator_ == none ? first : operator_) + 1);
    operator_ = op;
    for (std::size_t end = end_; end > op + expression_width(text, op);) {
      MathsWork::charge(1);
      if (const auto found = ended(text, at, *start, end)) return found;
      --end;
      while (end > first && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // within × and ÷
    }
    endless_ = true;  // nor is there an end for what begins later
    return std::nullopt;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  static bool is_operator(std::string_view text, std::size_t at) {
    return !is_digit(text[at]) && !is_blank(text[at]) && text[at] != '.' &&
           (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
  }
  static std::optional<Find> ended(std::string_view text, std::size_t at, std::size_t start, std::size_t end) {
    const std::size_t suffix = text.substr(end).starts_with("**") ? end + 2 : end;
    if (suffix < text.size() && !is_blank(text[suffix]) &&
        std::string_view(".,:)$").find(text[suffix]) == std::string_view::npos)
      return std::nullopt;
    Find find;
    find.begin = at;
    find.end = suffix < text.size() ? suffix + 1 : suffix;
    find.plain = true;
    find.formulas.push_back({text.substr(start, end - start), false});
    return find;
  }

  // The stretch from `at` on, and the last operator in it.
  void measure(std::string_view text, std::size_t at) {
    text_ = text;
    begin_ = at;
    last_operator_ = operator_ = none;
    endless_ = false;
    end_ = at;
    for (std::size_t width = 0; end_ < text.size() && (width = expression_width(text, end_)) > 0; end_ += width)
      if (is_operator(text, end_)) last_operator_ = end_;
    MathsWork::charge(end_ - begin_ + 1);
  }

  std::string_view text_;
  std::size_t begin_ = 0, end_ = 0;                     // the stretch that was measured
  std::size_t last_operator_ = none, operator_ = none;  // in it; the first one behind the last place that was asked for
  bool endless_ = false;                                // no end has a delimiter behind it
};

// "=…" or text between the announcement and a plain number that no "=" follows.
inline std::optional<Find> plain_at(std::string_view text, std::size_t at) {
  if (auto found = PlainExpression()(text, at)) return found;
  return plain_number_at(text, at);
}

inline void rank_by_end(std::vector<Find>& finds) {
  std::stable_sort(finds.begin(), finds.end(),
                   [](const Find& a, const Find& b) { return a.end != b.end ? a.end > b.end : a.begin < b.begin; });
}

// What a completion offers: the single best find, or nothing.
inline std::optional<Find> find_in_completion(std::string_view text) {
  for (const int rank : {0, 50, 100, 200}) {
    std::vector<Find> finds;
    find_all(text, announced(rank, [](auto t, auto at) { return formulas_at(t, at, Wanted::any); }), finds);
    if (rank == 0) {
      find_all(
          text, [](auto t, auto at) { return formulas_at(t, at, Wanted::boxed); }, finds);
      if (auto box = plain_box(text)) finds.push_back(*box);
    }
    rank_by_end(finds);
    if (!finds.empty()) return finds.front();
  }
  return std::nullopt;
}

// What a dataset's solution offers: groups of equal rank, each in the order in which to try it.
inline std::vector<std::vector<Find>> finds_in_solution(std::string_view text) {
  std::vector<std::vector<Find>> groups;
  for (const int rank : {0, 50, 100, 200, 300}) {
    std::vector<Find> finds;
    find_all(text, announced(rank, [](auto t, auto at) { return formulas_at(t, at, Wanted::any); }), finds);
    if (rank == 50) {
      find_all(
          text, [](auto t, auto at) { return formulas_at(t, at, Wanted::boxed); }, finds);
      if (auto box = plain_box(text)) finds.push_back(*box);
    }
    if (rank == 300) {
      find_all(text, PlainExpression(), finds);
      find_all(text, plain_number_at, finds);
    } else {
      find_all(text, announced(rank, plain_at), finds);
    }
    rank_by_end(finds);
    if (!finds.empty()) groups.push_back(std::move(finds));
  }
  return groups;
}

}  // namespace rlalgo::maths::detail
