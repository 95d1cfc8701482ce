// Rewards for grade-school arithmetic with known answers: correctness, format, and how much of the format is there.
//
//   correctness_reward_func    2    the final answer equals the dataset's
//   int_reward_func            0.5  the final answer consists of digits
//   strict_format_reward_func  0.5  <reasoning>⏎one line⏎</reasoning>⏎<answer>⏎one line⏎</answer> and nothing else
//   soft_format_reward_func    0.25 starts with <reasoning>…</reasoning><answer>…</answer>, at most one blank between
//   xmlcount_reward_func       0.125 per tag of the four that occurs exactly once, minus 0.001 for every character but
//                                   one after the last </answer> when that occurs once
//   format_reward              1    an <answer>…</answer> block somewhere
//   gsm8k_accuracy             1    what follows the last "####" equals the dataset's answer
//   gsm8k_format               1    the last line is "#### <number>" and there is no other "####"
//
// Source: names and values of the GRPO examples of axolotl (the first five: axolotl-cookbook grpo/gsm8k.yaml, after a
// gist of W. Brown; format_reward: examples/grpo); the last two score GSM8K's own notation (Cobbe et al. 2021).
// The final answer of a completion is the text between the last <answer> tags, else what follows the last "####", else
// the whole text. The dataset's is column `answer`, after its last "####" if it has one. A row without it: NaN.
// Departures: axolotl compares strings; here "1,200", "$1200" and "1200.0" are the same number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/reward/function.hpp>

namespace rlalgo::reward {

namespace detail {

inline constexpr std::string_view blanks = " \t\n\r\f\v";

inline std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

inline std::string_view after_last(std::string_view text, std::string_view mark) {
  const std::size_t at = text.rfind(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

inline std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Characters as Python's len() counts them: code points of UTF-8.
inline std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

// "1,200", "$1200", "1200." and "-3.5" are numbers; anything else is not.
inline std::optional<double> number(std::string_view text) {
  text = trim(text);
  std::string digits;
  bool negative = false;
  bool any_digit = false;
  bool point = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      digits += c;
      any_digit = true;
    } else if (c == '.' && !point) {
      digits += c;
      point = true;
    } else if (c == '-' && digits.empty() && !negative) {
      negative = true;
    } else if ((c == ',' && any_digit && !point) || (c == '$' && digits.empty())) {
      continue;
    } else {
      return std::nullopt;
    }
  }
  if (!any_digit) return std::nullopt;
  const double value = std::strtod(digits.c_str(), nullptr);
  return negative ? -value : value;
}

inline bool same_answer(std::string_view a, std::string_view b) {
  const std::optional<double> x = number(a);
  const std::optional<double> y = number(b);
  return x && y ? *x == *y : trim(a) == trim(b);
}

// The text of column `answer`; nothing when the row has none.
inline std::optional<std::string> gold_answer(const Json& columns) {
  const auto found = columns.is_object() ? columns.find("answer") : columns.end();
  if (found == columns.end() || found->is_null()) return std::nullopt;
  const std::string text = found->is_string() ? found->template get<std::string>() : found->dump();
  return std::string(trim(after_last(text, "####")));
}

}  // namespace detail

// The text that a completion offers as its final answer.
[[nodiscard]] inline std::string_view final_answer(std::string_view text) {
  if (text.find("<answer>") != std::string_view::npos) {
    const std::string_view tail = detail::after_last(text, "<answer>");
    return detail::trim(tail.substr(0, tail.find("</answer>")));
  }
  if (text.find("####") == std::string_view::npos) text = text.substr(0, text.find("</answer>"));
  return detail::trim(detail::after_last(text, "####"));
}

[[nodiscard]] inline double correctness(const std::string& text, const Json& columns) {
  const auto gold = detail::gold_answer(columns);
  if (!gold) return std::numeric_limits<double>::quiet_NaN();
  return detail::same_answer(final_answer(text), *gold) ? 2.0 : 0.0;
}

[[nodiscard]] inline double integer_answer(const std::string& text) {
  const std::string_view answer = final_answer(text);
  return !answer.empty() && answer.find_first_not_of("0123456789") == std::string_view::npos ? 0.5 : 0.0;
}

[[nodiscard]] inline double strict_format(const std::string& text) {
  std::string_view rest = text;
  const auto literal = [&](std::string_view expected) {
    if (!rest.starts_with(expected)) return false;
    rest.remove_prefix(expected.size());
    return true;
  };
  const auto line = [&] {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return false;
    rest.remove_prefix(end);
    return true;
  };
  if (!literal("<reasoning>\n") || !line() || !literal("\n</reasoning>\n<answer>\n") || !line() ||
      !literal("\n</answer>"))
    return 0.0;
  // At most one blank, and a final line feed besides.
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  const bool ends = rest.empty() || (rest.size() == 1 && detail::blanks.find(rest[0]) != std::string_view::npos);
  return ends ? 0.5 : 0.0;
}

[[nodiscard]] inline double soft_format(const std::string& text) {
  const std::string_view all = text;
  constexpr std::string_view open = "<reasoning>", close = "</reasoning>", answer = "<answer>";
  if (!all.starts_with(open)) return 0.0;
  for (std::size_t at = all.find(close, open.size()); at != std::string_view::npos; at = all.find(close, at + 1)) {
    std::size_t next = at + close.size();
    if (!all.substr(next).starts_with(answer) && next < all.size() &&
        detail::blanks.find(all[next]) != std::string_view::npos)
      ++next;
    if (all.substr(next).starts_with(answer) && all.find("</answer>", next) != std::string_view::npos) return 0.25;
  }
  return 0.0;
}

[[nodiscard]] inline double xml_count(const std::string& text) {
  double score = 0.0;
  for (const std::string_view tag : {"<reasoning>", "</reasoning>", "<answer>", "</answer>"})
    if (detail::occurrences(text, tag) == 1) score += 0.125;
  if (detail::occurrences(text, "</answer>") == 1) {
    const auto trailing = static_cast<double>(detail::characters(detail::after_last(text, "</answer>")));
    score -= (trailing - 1.0) * 0.001;
  }
  return score;
}

[[nodiscard]] inline double answer_block(const std::string& text) {
  const std::size_t open = text.find("<answer>");
  return open != std::string::npos && text.find("</answer>", open) != std::string::npos ? 1.0 : 0.0;
}

[[nodiscard]] inline double hash_accuracy(const std::string& text, const Json& columns) {
  const auto gold = detail::gold_answer(columns);
  if (!gold) return std::numeric_limits<double>::quiet_NaN();
  if (text.find("####") == std::string::npos) return 0.0;
  return detail::same_answer(detail::after_last(text, "####"), *gold) ? 1.0 : 0.0;
}

[[nodiscard]] inline double hash_format(const std::string& text) {
  const std::string_view body = detail::trim(text);
  if (detail::occurrences(body, "####") != 1) return 0.0;
  const std::size_t at = body.find("####");
  const bool starts_line = at == 0 || body[at - 1] == '\n';
  return starts_line && detail::number(body.substr(at + 4)) ? 1.0 : 0.0;
}

}  // namespace rlalgo::reward
