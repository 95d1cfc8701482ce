// The golden rows of preference formats: a dataset row of every type, and the columns it becomes (or that it is an
// error). Recorded from axolotl's prompt strategies; rows with "departure" hold the right answer where axolotl is
// wrong.
#pragma once

#include <fstream>
#include <string>

#include <support/catch.hpp>

#include <rlalgo/data/preference_transform.hpp>
#include <rlalgo/text/chat_template.hpp>

namespace golden_formats {

using rlalgo::data::Json;
using rlalgo::data::PreferenceFamily;

inline rlalgo::data::Render renderer(const std::string& name, bool bos) {
  rlalgo::text::SpecialTokens tokens;
  tokens.named["eos_token"] = "<|im_end|>";
  if (bos) tokens.named["bos_token"] = name == "gemma" ? "<bos>" : "<|begin_of_text|>";
  // What the template of that model prints.
  const std::string gemma =
      "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
      "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif "
      "%}";
  const auto chosen = name == "gemma" ? rlalgo::text::ChatTemplate::from_source(gemma, tokens)
                                      : rlalgo::text::ChatTemplate::select(name, std::nullopt, std::nullopt, tokens);
  return [chosen](const Json& messages, bool generation_prompt) {
    return chosen.render(messages, {.add_generation_prompt = generation_prompt});
  };
}

inline rlalgo::data::MessageFields fields_of(const Json& keys) {
  rlalgo::data::MessageFields out;
  out.messages = keys.value("field_messages", out.messages);
  out.chosen = keys.value("field_chosen", out.chosen);
  out.rejected = keys.value("field_rejected", out.rejected);
  if (keys.contains("message_property_mappings")) {
    out.role = keys["message_property_mappings"].value("role", out.role);
    out.content = keys["message_property_mappings"].value("content", out.content);
  }
  if (keys.contains("roles")) {
    out.roles.clear();
    for (const auto& [target, sources] : keys["roles"].items())
      for (const Json& source : sources) out.roles[source.get<std::string>()] = target;
  }
  return out;
}

// Checks every row whose type starts with `prefix` ("{" = a mapping); returns how many there were.
inline int check(const std::string& prefix, const std::string& rl) {
  std::ifstream file(std::string(rlalgo::support::test_dir) + "/golden/data/preference_formats.jsonl");
  REQUIRE(file.good());
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const Json golden = Json::parse(line);
    const Json& type = golden["type"];
    const std::string name = type.is_string() ? type.get<std::string>() : "{";
    if (golden["rl"] != rl || !name.starts_with(prefix)) continue;
    ++count;
    INFO(golden["id"].get<std::string>());
    const PreferenceFamily family = rl == "kto"    ? PreferenceFamily::unpaired
                                    : rl == "orpo" ? PreferenceFamily::odds
                                                   : PreferenceFamily::pairs;
    rlalgo::data::Render render;
    if (golden.contains("chat_template")) render = renderer(golden["chat_template"], !golden.contains("no_bos"));
    const auto run = [&] {
      const auto transform = rlalgo::data::make_preference_transform(
          type, family, fields_of(golden.value("dataset_keys", Json::object())), render);
      Json row = golden["in"];
      transform(row, "row 1");
      return row;
    };
    if (golden.contains("error")) {
      CHECK_THROWS_AS(run(), rlalgo::core::Error);
      continue;
    }
    const Json row = run();
    for (const auto& [column, value] : golden["out"].items()) {
      INFO(column);
      REQUIRE(row.contains(column));
      CHECK(row[column] == value);
    }
  }
  return count;
}

}  // namespace golden_formats
