// What routes ask of a JSON value: how an error quotes it, that it has another type, and whether it is a whole number.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve::detail {

// The bound of numbers that have none.
inline constexpr double any_number = 1e308;

// A value as an error quotes it.
inline std::string quoted(const data::Json& value) {
  constexpr std::size_t longest = 80;
  if (value.is_structured() && value.size() > 8) return std::string("a ") + value.type_name();
  std::string text = value.dump(-1, ' ', false, data::Json::error_handler_t::replace);
  if (text.size() > longest) text = text.substr(0, longest) + "…";
  return text;
}

[[noreturn]] inline void refuse_type(const std::string& place, const data::Json& found, const std::string& expected) {
  refuse_request(400, 3,
                 {.what = "a field has the wrong type", .found = quoted(found), .expected = expected, .where = place},
                 place);
}

// A JSON number that is whole.
inline std::optional<std::int64_t> whole(const data::Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::abs(number) > 9e15 || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

}  // namespace rlalgo::serve::detail
