// Definitions of gsm8k.hpp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/gsm8k.hpp>

namespace rlalgo::reward {

namespace detail {

RLALGO_INLINE std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

RLALGO_INLINE std::string_view after_last(std::string_view text, std::string_view mark) {
  const std::size_t at = text.rfind(mark);
  return at == std::string_view::npos ? text : text.substr(at + mark.size());
}

RLALGO_INLINE std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

RLALGO_INLINE std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

RLALGO_INLINE std::optional<double> number(std::string_view text) {
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

RLALGO_INLINE bool same_answer(std::string_view a, std::string_view b) {
  const std::optional<double> x = number(a);
  const std::optional<double> y = number(b);
  return x && y ? *x == *y : trim(a) == trim(b);
}

RLALGO_INLINE std::optional<std::string> gold_answer(const Json& columns) {
  const auto found = columns.is_object() ? columns.find("answer") : columns.end();
  if (found == columns.end() || found->is_null()) return std::nullopt;
  const std::string text = found->is_string() ? found->template get<std::string>() : found->dump();
  return std::string(trim(after_last(text, "####")));
}

}  // namespace detail

RLALGO_INLINE std::string_view final_answer(std::string_view text) {
  if (text.find("<answer>") != std::string_view::npos) {
    const std::string_view tail = detail::after_last(text, "<answer>");
    return detail::trim(tail.substr(0, tail.find("</answer>")));
  }
  if (text.find("####") == std::string_view::npos) text = text.substr(0, text.find("</answer>"));
  return detail::trim(detail::after_last(text, "####"));
}

RLALGO_INLINE double correctness(const std::string& text, const Json& columns) {
  const auto gold = detail::gold_answer(columns);
  if (!gold) return std::numeric_limits<double>::quiet_NaN();
  return detail::same_answer(final_answer(text), *gold) ? 2.0 : 0.0;
}

RLALGO_INLINE double integer_answer(const std::string& text) {
  const std::string_view answer = final_answer(text);
  return !answer.empty() && answer.find_first_not_of("0123456789") == std::string_view::npos ? 0.5 : 0.0;
}

RLALGO_INLINE double strict_format(const std::string& text) {
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

RLALGO_INLINE double soft_format(const std::string& text) {
  const std::string_view all = text;
  constexpr std::string_view open = "<reasoning>", close = "</reasoning>", answer = "<answer>";
  if (!all.starts_with(open)) return 0.0;
  const std::size_t last_end = all.rfind("</answer>");
  for (std::size_t at = all.find(close, open.size()); at != std::string_view::npos; at = all.find(close, at + 1)) {
    std::size_t next = at + close.size();
    if (!all.substr(next).starts_with(answer) && next < all.size() &&
        detail::blanks.find(all[next]) != std::string_view::npos)
      ++next;
    if (last_end != std::string_view::npos && next <= last_end && all.substr(next).starts_with(answer)) return 0.25;
  }
  return 0.0;
}

RLALGO_INLINE double xml_count(const std::string& text) {
  double score = 0.0;
  for (const std::string_view tag : {"<reasoning>", "</reasoning>", "<answer>", "</answer>"})
    if (detail::occurrences(text, tag) == 1) score += 0.125;
  if (detail::occurrences(text, "</answer>") == 1) {
    const auto trailing = static_cast<double>(detail::characters(detail::after_last(text, "</answer>")));
    score -= (trailing - 1.0) * 0.001;
  }
  return score;
}

RLALGO_INLINE double answer_block(const std::string& text) {
  const std::size_t open = text.find("<answer>");
  return open != std::string::npos && text.find("</answer>", open) != std::string::npos ? 1.0 : 0.0;
}

RLALGO_INLINE double hash_accuracy(const std::string& text, const Json& columns) {
  const auto gold = detail::gold_answer(columns);
  if (!gold) return std::numeric_limits<double>::quiet_NaN();
  if (text.find("####") == std::string::npos) return 0.0;
  return detail::same_answer(detail::after_last(text, "####"), *gold) ? 1.0 : 0.0;
}

RLALGO_INLINE double hash_format(const std::string& text) {
  const std::string_view body = detail::trim(text);
  if (detail::occurrences(body, "####") != 1) return 0.0;
  const std::size_t at = body.find("####");
  const bool starts_line = at == 0 || body[at - 1] == '\n';
  return starts_line && detail::number(body.substr(at + 4)) ? 1.0 : 0.0;
}

}  // namespace rlalgo::reward
