// Preference data whose columns and texts the configuration names: `type` as a mapping (user_defined.default).
//
//   pairs     field_prompt, field_system, field_chosen, field_rejected; prompt_format, chosen_format, rejected_format
//   unpaired  field_prompt, field_system, field_completion, field_label; prompt_format, completion_format
//
// Formats are those of format_string.hpp over {prompt}, {system}, {chosen}, {rejected}, {completion}; the default is
// the column alone. A missing system is the empty text.
// Errors: [rlalgo.data.12] an unknown key, or a value that is not a text; [rlalgo.data.10] a row lacks a column.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/format_string.hpp>
#include <rlalgo/data/preference_row.hpp>

namespace rlalgo::data {

namespace detail {

class UserFormat {
 public:
  UserFormat(const Json& type, PreferenceFamily family, const std::string& where);

  void operator()(Json& row, const std::string& where) const {
    const std::string prompt = text_field(row, fields_.at("prompt"), where);
    const std::string system =
        formats_.at("prompt").uses("system") ? optional_text(row, fields_.at("system"), where) : "";
    std::vector<std::pair<std::string, Json>> made;
    made.emplace_back(
        "prompt", formats_.at("prompt")([&](const std::string& name) { return name == "system" ? system : prompt; }));
    for (const std::string& name : answers_) {
      const std::string text = text_field(row, fields_.at(name), where);
      made.emplace_back(name, formats_.at(name)([&](const std::string&) { return text; }));
    }
    if (unpaired_) {
      const Json* label = present(row, fields_.at("label"));
      if (label == nullptr) raise_field(row, fields_.at("label"), "true or false", where);
      made.emplace_back("label", *label);
    }
    for (auto& [name, value] : made) row[name] = std::move(value);
  }

 private:
  bool unpaired_;
  std::vector<std::string> answers_;
  std::map<std::string, std::string> fields_;    // prompt → column
  std::map<std::string, FormatString> formats_;  // prompt → format
};

}  // namespace detail

[[nodiscard]] RowTransform user_format(const Json& type, PreferenceFamily family, const std::string& where);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/user_format_impl.hpp>
#endif
