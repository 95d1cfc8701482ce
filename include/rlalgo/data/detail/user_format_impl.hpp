// Definitions of user_format.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/format_string.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/user_format.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE UserFormat::UserFormat(const Json& type, PreferenceFamily family, const std::string& where)
    : unpaired_(family == PreferenceFamily::unpaired),
      answers_(unpaired_ ? std::vector<std::string>{"completion"} : std::vector<std::string>{"chosen", "rejected"}) {
  std::map<std::string, std::string> values = {
      {"field_prompt", "prompt"}, {"field_system", "system"}, {"prompt_format", "{prompt}"}};
  if (unpaired_) values["field_label"] = "label";
  for (const std::string& name : answers_) {
    values["field_" + name] = name;
    values[name + "_format"] = "{" + name + "}";
  }
  std::vector<std::string> keys;
  for (const auto& [key, value] : values) keys.push_back(key);
  for (const auto& [key, value] : type.items()) {
    const auto known = values.find(key);
    if (known == values.end()) {
      const std::string nearest = core::nearest_name(key, keys);
      std::string all;
      for (const std::string& name : keys) all += (all.empty() ? "" : ", ") + name;
      core::raise_usage("data", 12,
                        {.what = "unknown key in datasets[].type",
                         .found = key,
                         .expected = all,
                         .where = where,
                         .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
    }
    if (!value.is_string() && !value.is_null())
      core::raise_usage("data", 12,
                        {.what = "datasets[].type: " + key + " has the wrong type",
                         .found = excerpt(value),
                         .expected = "a text",
                         .where = where});
    if (value.is_string() && !value.get_ref<const std::string&>().empty()) known->second = value.get<std::string>();
  }
  for (const auto& [key, value] : values) {
    if (key.starts_with("field_")) fields_[key.substr(6)] = value;
    if (key.ends_with("_format")) {
      const std::string name = key.substr(0, key.size() - 7);
      const std::vector<std::string> names =
          name == "prompt" ? std::vector<std::string>{"prompt", "system"} : std::vector<std::string>{name};
      formats_.emplace(name, FormatString(value, names, "datasets[].type." + key, where));
    }
  }
}

}  // namespace detail

RLALGO_INLINE RowTransform user_format(const Json& type, PreferenceFamily family, const std::string& where) {
  return detail::UserFormat(type, family, where);
}

}  // namespace rlalgo::data
