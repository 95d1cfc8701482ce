// Definitions of fields.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

RLALGO_INLINE Json parse_body(std::string_view body) {
  auto [value, problem] = core::read_json<Json>(body);
  if (!problem.text.empty())
    refuse_request(400, 1,
                   {.what = "the body is not JSON",
                    .found = problem.text,
                    .where = "byte " + std::to_string(problem.byte),
                    .remedy = "send one JSON object"});
  if (!value.is_object())
    refuse_request(400, 1,
                   {.what = "the body is no JSON object",
                    .found = std::string("a JSON ") + value.type_name(),
                    .expected = "{\"name\": value, …}"});
  return std::move(value);
}

RLALGO_INLINE std::vector<data::TokenId> token_ids(const Json& list, std::int64_t vocab, const std::string& place) {
  if (!list.is_array())
    refuse_request(400, 3, {.what = "token ids are no list", .found = detail::quoted(list), .where = place}, place);
  std::vector<data::TokenId> out;
  out.reserve(list.size());
  for (const Json& one : list) {
    const std::optional<std::int64_t> id = detail::whole(one);
    if (!one.is_number() || (!id && one.is_number_float() && std::abs(one.get<double>()) < 9e15))
      refuse_request(400, 3,
                     {.what = "a list of token ids holds something else",
                      .found = detail::quoted(one),
                      .expected = "whole numbers",
                      .where = place},
                     place);
    if (!id || *id < 0 || *id >= vocab)
      refuse_request(400, 4,
                     {.what = "a token id is outside the model's vocabulary",
                      .found = detail::quoted(one),
                      .expected = "0 to " + std::to_string(vocab - 1),
                      .where = place},
                     place);
    out.push_back(static_cast<data::TokenId>(*id));
  }
  return out;
}

RLALGO_INLINE Fields::Fields(const Json& object, std::string place) : object_(object), place_(std::move(place)) {
  if (!object.is_object())
    refuse_request(400, 3, {.what = "an object is expected", .found = detail::quoted(object), .where = place_}, place_);
}

RLALGO_INLINE const Json* Fields::find(const std::string& name) {
  read_.insert(name);
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

RLALGO_INLINE const Json& Fields::required(const std::string& name) {
  const Json* const value = find(name);
  if (value == nullptr)
    refuse_request(400, 2, {.what = "a field is missing", .expected = place_of(name)}, place_of(name));
  return *value;
}

RLALGO_INLINE std::string Fields::place_of(const std::string& name) const {
  return place_.empty() ? name : place_ + "." + name;
}

RLALGO_INLINE void Fields::wrong_type(const std::string& name, const Json& found, const std::string& expected) const {
  detail::refuse_type(place_of(name), found, expected);
}

RLALGO_INLINE void Fields::out_of_range(const std::string& name, const std::string& found,
                                        const std::string& expected) const {
  const std::string place = place_of(name);
  refuse_request(400, 4, {.what = "a value is out of range", .found = found, .expected = expected, .where = place},
                 place);
}

RLALGO_INLINE std::optional<double> Fields::number(const std::string& name, double least, double most) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(name, *value, "a number");
  const double out = value->get<double>();
  if (!(out >= least && out <= most)) {
    std::string range = Json(least).dump() + " to " + Json(most).dump();
    if (most >= 1e300) range = "at least " + Json(least).dump();
    out_of_range(name, detail::quoted(*value), range);
  }
  return out;
}

RLALGO_INLINE std::optional<std::int64_t> Fields::integer(const std::string& name, std::int64_t least,
                                                          std::int64_t most) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(name, *value, "a whole number");
  const std::optional<std::int64_t> out = detail::whole(*value);
  if (!out && value->is_number_float() && std::abs(value->get<double>()) < 9e15)
    wrong_type(name, *value, "a whole number");
  if (!out || *out < least || *out > most)
    out_of_range(name, detail::quoted(*value), std::to_string(least) + " to " + std::to_string(most));
  return out;
}

RLALGO_INLINE bool Fields::flag(const std::string& name, bool otherwise) {
  const Json* const value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong_type(name, *value, "true or false");
  return value->get<bool>();
}

RLALGO_INLINE std::optional<std::string> Fields::text(const std::string& name) {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(name, *value, "a text");
  return value->get<std::string>();
}

RLALGO_INLINE std::string Fields::required_text(const std::string& name) {
  const Json& value = required(name);
  if (!value.is_string()) wrong_type(name, value, "a text");
  return value.get<std::string>();
}

RLALGO_INLINE const Json* Fields::object(const std::string& name) {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_object()) wrong_type(name, *value, "an object");
  return value;
}

RLALGO_INLINE const Json* Fields::list(const std::string& name) {
  const Json* const value = find(name);
  if (value != nullptr && !value->is_array()) wrong_type(name, *value, "a list");
  return value;
}

RLALGO_INLINE std::vector<std::string> Fields::texts(const std::string& name) {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) wrong_type(name, *value, "a text, or a list of texts");
  std::vector<std::string> out;
  for (const Json& one : *value) {
    if (!one.is_string()) wrong_type(name, one, "a text, or a list of texts");
    out.push_back(one.get<std::string>());
  }
  return out;
}

RLALGO_INLINE std::vector<data::TokenId> Fields::ids(const std::string& name, std::int64_t vocab) {
  const Json* const value = find(name);
  return value == nullptr ? std::vector<data::TokenId>() : token_ids(*value, vocab, place_of(name));
}

RLALGO_INLINE std::vector<std::string> Fields::unread() const {
  std::vector<std::string> out;
  for (const auto& [name, value] : object_.items())
    if (!read_.contains(name)) out.push_back(name);
  return out;
}

}  // namespace rlalgo::serve
