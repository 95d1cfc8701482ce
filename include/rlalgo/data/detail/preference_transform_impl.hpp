// Definitions of preference_transform.hpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/chat_template_format.hpp>
#include <rlalgo/data/dialogue_format.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/preference_transform.hpp>
#include <rlalgo/data/user_format.hpp>

namespace rlalgo::data {

RLALGO_INLINE std::vector<std::string> preference_format_names(PreferenceFamily family) {
  std::vector<std::string> out;
  const bool pairs = family != PreferenceFamily::unpaired;
  const std::vector<std::string> functions =
      pairs ? std::vector<std::string>{"default", "argilla", "argilla_chat", "icr", "intel", "prompt_pairs", "ultra"}
            : std::vector<std::string>{"argilla", "argilla_chat", "intel", "prompt_pairs", "ultra"};
  for (const char* module : {"chatml.", "llama3."})
    for (const std::string& function : functions) out.push_back(module + function);
  if (pairs)
    for (const char* name : {"zephyr.nectar", "chat_template.default", "chat_template.argilla",
                             "chat_template.argilla_chat", "passthrough.default"})
      out.push_back(name);
  out.push_back("user_defined.default");
  return out;
}

RLALGO_INLINE RowTransform make_preference_transform(const Json& type, PreferenceFamily family,
                                                     const MessageFields& fields, const Render& render,
                                                     const std::string& where) {
  const bool empty = type.is_null() || (type.is_string() && type.get_ref<const std::string&>().empty());
  if (empty) return [](Json&, const std::string&) {};
  if (type.is_object()) return user_format(type, family, where);
  std::string name = type.is_string() ? type.get<std::string>() : type.dump();
  if (name.find('.') == std::string::npos) name += ".default";
  if (name == "passthrough.default" && family != PreferenceFamily::unpaired) return [](Json&, const std::string&) {};
  if (name == "user_defined.default") return user_format(Json::object(), family, where);
  RowTransform out = chat_template_format(name, family, fields, render);
  if (!out) out = dialogue_format(name, family == PreferenceFamily::odds ? PreferenceFamily::pairs : family);
  if (!out && family == PreferenceFamily::odds)
    out = chat_template_format(name, PreferenceFamily::pairs, fields, render);
  if (out) return out;
  const std::vector<std::string> names = preference_format_names(family);
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  const std::string nearest = core::nearest_name(name, names);
  core::raise_usage("data", 9,
                    {.what = "Failed to load dataset transform function for type " + detail::excerpt(type),
                     .expected = all + ", a mapping, or no type",
                     .where = where,
                     .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
}

}  // namespace rlalgo::data
