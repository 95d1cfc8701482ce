// What a NeMo Gym's row says of itself: the names in it, and words to know it by.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace rlalgo::remote::detail {

[[nodiscard]] inline std::string named_in(const nlohmann::ordered_json& row, const char* key, const char* type) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_object()) return {};
  if (type != nullptr && found->value("type", "") != type) return {};
  const auto name = found->find("name");
  return name != found->end() && name->is_string() ? name->get<std::string>() : std::string();
}

// Its first words, to know a row by.
[[nodiscard]] inline std::string row_words(const nlohmann::ordered_json& row) {
  const auto params = row.find("responses_create_params");
  std::string text = params == row.end() ? row.dump() : (*params).value("input", nlohmann::ordered_json()).dump();
  return text.size() <= 160 ? text : text.substr(0, 160) + "…";
}

}  // namespace rlalgo::remote::detail
