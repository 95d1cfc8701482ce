// What a NeMo Gym's row says of itself: the names in it, and words to know it by.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <rlalgo/core/json_members.hpp>

namespace rlalgo::remote::detail {

[[nodiscard]] inline std::string named_in(const nlohmann::ordered_json& row, const char* key, const char* type) {
  const nlohmann::ordered_json& found = core::member(row, key);
  if (type != nullptr && core::text_member(found, "type") != type) return {};
  return core::text_member(found, "name");
}

// Its first words, to know a row by.
[[nodiscard]] inline std::string row_words(const nlohmann::ordered_json& row) {
  const nlohmann::ordered_json& params = core::member(row, "responses_create_params");
  const std::string text = (params.is_object() ? core::member(params, "input") : row).dump();
  return text.size() <= 160 ? text : text.substr(0, 160) + "…";
}

}  // namespace rlalgo::remote::detail
