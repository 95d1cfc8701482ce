// What of a JSON text a value cannot keep: a whole number that 64 bits do not hold (it would become the nearest double), and
// a key that stands twice in one object (one of its values would be lost).
//
// Only for text that is JSON; of any other it says something or nothing. Keys are compared as they are spelled.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>

namespace rlalgo::core {

namespace detail {

// A number's spelling from its sign or first digit on.
[[nodiscard]] inline std::string_view number_at(std::string_view text, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < text.size() && std::string_view("0123456789.eE+-").find(text[end]) != std::string_view::npos) ++end;
  return text.substr(begin, end - begin);
}

[[nodiscard]] inline bool is_kept(std::string_view number) {
  constexpr std::size_t surely = 18;  // digits that 64 bits hold
  if (number.size() <= surely || number.find_first_of(".eE") != std::string_view::npos) return true;
  std::int64_t low = 0;
  std::uint64_t high = 0;
  const char* const end = number.data() + number.size();
  return std::from_chars(number.data(), end, low).ec == std::errc() ||
         std::from_chars(number.data(), end, high).ec == std::errc();
}

}  // namespace detail

[[nodiscard]] inline JsonProblem json_loss(std::string_view text) {
  struct Level {
    bool object;
    std::size_t keys;  // where its keys begin
  };
  std::vector<Level> levels;
  std::vector<std::string_view> keys;
  bool key_next = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t begin = i + 1;
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
      if (key_next) keys.push_back(text.substr(begin, std::min(i, text.size()) - begin));
      key_next = false;
    } else if (c == '{' || c == '[') {
      levels.push_back({c == '{', keys.size()});
      key_next = c == '{';
    } else if ((c == '}' || c == ']') && !levels.empty()) {
      const auto own = keys.begin() + static_cast<std::ptrdiff_t>(levels.back().keys);
      std::sort(own, keys.end());
      if (const auto twice = std::adjacent_find(own, keys.end()); twice != keys.end())
        return {"the key \"" + std::string(*twice) + "\" twice in one object",
                static_cast<std::size_t>(twice->data() - text.data())};
      keys.erase(own, keys.end());
      levels.pop_back();
      key_next = false;
    } else if (c == ',') {
      key_next = !levels.empty() && levels.back().object;
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      const std::string_view number = detail::number_at(text, i);
      if (!detail::is_kept(number))
        return {"a whole number that 64 bits do not hold: " + std::string(number.substr(0, 60)), i};
      i += number.size() - 1;
    }
  }
  return {};
}

}  // namespace rlalgo::core
