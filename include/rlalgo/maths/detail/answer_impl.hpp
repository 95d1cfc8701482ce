// Definitions of answer.hpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/maths/answer.hpp>
#include <rlalgo/maths/detail/compare.hpp>
#include <rlalgo/maths/detail/extract.hpp>
#include <rlalgo/maths/detail/node.hpp>
#include <rlalgo/maths/detail/normalize.hpp>
#include <rlalgo/maths/detail/parse.hpp>
#include <rlalgo/maths/detail/work.hpp>

namespace rlalgo::maths {

namespace detail {

inline NodePtr parsed(const std::string& text, bool lenient) {
  try {
    return spread(MathsParser(text, lenient).parse());
  } catch (const Unreadable&) {
    // "a = b = c" with something unreadable in front: the last side counts.
    const std::size_t last = text.rfind('=');
    if (last == std::string::npos || text.find_first_of(",;") != std::string::npos || text.find('=') == last ||
        std::string_view("\\<>!").find(text[last - 1]) != std::string_view::npos)
      return nullptr;
    try {
      return spread(MathsParser(std::string_view(text).substr(last + 1), lenient).parse());
    } catch (const Unreadable&) {
      return nullptr;
    }
  }
}

// "1,234" as a whole is a number, not a list; "0,125" is a decimal.
inline std::string without_thousands(const std::string& text) {
  if (text.starts_with("0,") && text.size() == 5 && text.find_first_not_of("0123456789", 2) == std::string::npos)
    return "0." + text.substr(2);
  std::size_t i = !text.empty() && text[0] == '-' ? 1 : 0, digits = 0;
  std::string out = text.substr(0, i);
  bool any_comma = false;
  for (; i < text.size() && (is_digit(text[i]) || text[i] == ','); ++i) {
    if (text[i] == ',') {
      if (digits == 0 || digits > 3 || (any_comma && digits != 3)) return text;
      any_comma = true;
      digits = 0;
    } else {
      ++digits;
      out += text[i];
    }
  }
  if (!any_comma || digits != 3) return text;
  if (i < text.size() && text[i] == '.') {
    out += text[i++];
    for (; i < text.size() && is_digit(text[i]); ++i) out += text[i];
  }
  return i == text.size() ? out : text;
}

inline Answer read(const Find& find, bool lenient) {
  Answer answer;
  if (find.plain) {
    const Formula& found = find.formulas[0];
    std::string digits = stripped(found.content);
    answer.text = digits;
    const bool number = digits.find_first_not_of("0123456789,. -") == std::string::npos && digits.rfind('-') + 1 <= 1;
    if (number) {
      std::size_t comma = digits.rfind(',');
      const bool grouped = comma != std::string::npos && digits.size() - comma == 4;
      if (comma != std::string::npos && !grouped && digits.find('.') == std::string::npos) digits[comma] = '.';
      std::erase(digits, ',');
      std::erase(digits, ' ');
      answer.text = digits;
    }
    answer.value = parsed(digits, true);
    if (answer.value && found.percent) answer.value = make(Kind::percent, {answer.value});
    return answer;
  }
  std::vector<NodePtr> values;
  for (const Formula& formula : find.formulas) {
    const Normalized text = normalize(formula.content, find.last_box, lenient);
    answer.text += (answer.text.empty() ? "" : " and ") + text.text;
    std::string written = text.text;
    if (lenient && written.size() > 1 && written.back() == '.') written.pop_back();
    NodePtr value = parsed(without_thousands(written), lenient);
    if (value && formula.percent) value = make(Kind::percent, {value});
    if (!value) {
      if (values.empty()) return answer;
      break;
    }
    values.push_back(std::move(value));
  }
  if (values.size() < find.formulas.size()) values.resize(1);
  if (values.size() == 1) {
    answer.value = values[0];
    return answer;
  }
  std::vector<NodePtr> elements;
  for (const NodePtr& value : values)
    if (value->kind == Kind::set)
      elements.insert(elements.end(), value->parts.begin(), value->parts.end());
    else
      elements.push_back(value);
  answer.value = make(Kind::set, std::move(elements));
  return answer;
}

// The answer of a dataset's solution: the first that is read, in the order of the finds.
inline std::optional<Answer> best_answer(std::string_view text) {
  const std::string whole = stripped(text);
  // A bare formula, such as 2\sqrt{3}, is read as one.
  if (whole.find('\\') != std::string::npos && whole.find_first_of("$\n") == std::string::npos &&
      whole.find("\\boxed") == std::string::npos && whole.find("\\(") == std::string::npos &&
      whole.find("\\[") == std::string::npos) {
    Find all;
    all.formulas.push_back({whole, false});
    Answer answer = read(all, true);
    if (answer.read()) return answer;
  }
  std::optional<Answer> first;
  std::vector<const Find*> unread;
  const auto groups = finds_in_solution(text);
  for (const auto& group : groups)
    for (const Find& find : group) {
      // A number within a formula that was not read is not the formula's value.
      const auto holds = [&](const Find* other) { return other->begin <= find.begin && find.end <= other->end; };
      MathsWork::charge(unread.size());
      if (find.plain && std::any_of(unread.begin(), unread.end(), holds)) continue;
      Answer answer = read(find, true);
      if (answer.read()) return answer;
      if (!find.plain) unread.push_back(&find);
      if (!first) first = std::move(answer);
    }
  return first;
}

}  // namespace detail

RLALGO_INLINE std::optional<Answer> completion_answer(std::string_view text, bool* gave_up) {
  const detail::MathsWork work(text.size());
  try {
    const auto found = detail::find_in_completion(text);
    if (!found) return std::nullopt;
    return detail::read(*found, false);
  } catch (const detail::TooMuchWork&) {
    if (gave_up != nullptr) *gave_up = true;
    return std::nullopt;
  }
}

RLALGO_INLINE std::optional<Answer> solution_answer(std::string_view text, bool* gave_up) {
  const detail::MathsWork work(text.size());
  try {
    return detail::best_answer(text);
  } catch (const detail::TooMuchWork&) {
    if (gave_up != nullptr) *gave_up = true;
    return std::nullopt;
  }
}

RLALGO_INLINE std::optional<bool> agrees(const Answer& gold, const std::optional<Answer>& answer, bool* gave_up) {
  // Equal texts agree, but for a completion that writes malformed LaTeX where the solution could be repaired.
  const bool comparable = answer && (gold.read() == answer->read() || gold.text.ends_with('.'));
  if (comparable && !gold.text.empty() && gold.text == answer->text) return true;
  if (!gold.read()) return std::nullopt;
  if (!answer || !answer->read()) return false;
  const detail::MathsWork work(gold.text.size() + answer->text.size());
  try {
    return detail::same_answer(gold.value, answer->value);
  } catch (const detail::TooMuchWork&) {
    if (gave_up != nullptr) *gave_up = true;
    return false;
  }
}

}  // namespace rlalgo::maths
