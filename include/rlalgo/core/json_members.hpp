// Members of a JSON value that a stranger sent, whatever it is: what is absent, or of another kind than expected, reads as
// nothing. `Json` is a nlohmann::basic_json; this header needs none of it.
#pragma once

#include <string>

namespace rlalgo::core {

// null where the value is no object or has no such member.
template <class Json>
[[nodiscard]] const Json& member(const Json& value, const char* key) {
  static const Json nothing;
  if (!value.is_object()) return nothing;
  const auto found = value.find(key);
  return found != value.end() ? *found : nothing;
}

template <class Json>
[[nodiscard]] std::string text_member(const Json& value, const char* key, std::string otherwise = {}) {
  const Json& found = member(value, key);
  return found.is_string() ? found.template get<std::string>() : otherwise;
}

// Empty unless it is one.
template <class Json>
[[nodiscard]] Json object_member(const Json& value, const char* key) {
  const Json& found = member(value, key);
  return found.is_object() ? found : Json::object();
}
template <class Json>
[[nodiscard]] Json list_member(const Json& value, const char* key) {
  const Json& found = member(value, key);
  return found.is_array() ? found : Json::array();
}

}  // namespace rlalgo::core
