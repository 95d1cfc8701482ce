// Definitions of dialogue_format.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/dialogue_format.hpp>
#include <rlalgo/data/preference_row.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE const std::string& first_text(const Json& row, const std::vector<std::string>& fields,
                                            const std::string& where) {
  for (const std::string& field : fields)
    if (present(row, field) != nullptr || field == fields.back()) return text_field(row, field, where);
  return text_field(row, fields.back(), where);
}

RLALGO_INLINE std::string prompt_of_turns(const Frame& frame, const Json& row, const std::string& field,
                                          const std::string& where) {
  turn_text(row, field, 1, where);  // at least two turns
  const Json& messages = row.at(field);
  std::string out;
  for (std::size_t i = 0; i + 1 < messages.size(); ++i) {
    const Json& message = messages[i];
    const bool has_role = message.is_object() && message.contains("role") && message["role"].is_string();
    out += frame.turn(has_role ? message["role"].get<std::string>() : "user", turn_text(row, field, i, where));
  }
  return out + frame.assistant();
}

RLALGO_INLINE std::string last_turn(const Json& row, const std::string& field, const std::string& where) {
  const Json* messages = present(row, field);
  const std::size_t size = messages != nullptr && messages->is_array() ? messages->size() : 0;
  return turn_text(row, field, size == 0 ? 0 : size - 1, where);
}

RLALGO_INLINE void set_pair(Json& row, std::string prompt, std::string chosen, std::string rejected) {
  row["prompt"] = std::move(prompt);
  row["chosen"] = std::move(chosen);
  row["rejected"] = std::move(rejected);
}

RLALGO_INLINE RowTransform pair_dialogue(Frame frame, const std::string& name) {
  if (name == "argilla_chat")
    return [frame](Json& row, const std::string& at) {
      turn_text(row, "rejected", 1, at);
      set_pair(row, prompt_of_turns(frame, row, "chosen", at), frame.answer(last_turn(row, "chosen", at)),
               frame.answer(last_turn(row, "rejected", at)));
    };
  if (name == "ultra")
    return [frame](Json& row, const std::string& at) {
      set_pair(row, frame.prompt(optional_text(row, "system", at), text_field(row, "prompt", at)),
               frame.answer(turn_text(row, "chosen", 1, at)), frame.answer(turn_text(row, "rejected", 1, at)));
    };
  std::vector<std::string> user, chosen = {"chosen"}, rejected = {"rejected"};
  if (name == "default" || name == "argilla") {
    user = {"prompt", "input", "question", "instruction"};
    chosen.push_back("chosen_response");
    rejected.push_back("rejected_response");
  } else if (name == "icr") {
    user = {"input"};
  } else if (name == "intel") {
    user = {"question"};
  } else if (name == "prompt_pairs") {
    user = {"prompt"};
  } else {
    return {};
  }
  return [=](Json& row, const std::string& at) {
    set_pair(row, frame.prompt(optional_text(row, "system", at), first_text(row, user, at)),
             frame.answer(first_text(row, chosen, at)), frame.answer(first_text(row, rejected, at)));
  };
}

RLALGO_INLINE RowTransform unpaired_dialogue(Frame frame, const std::string& name) {
  if (name == "argilla_chat")
    return [frame](Json& row, const std::string& at) {
      const Json* turns = present(row, "completion");
      // Documented shape: the user's turn in `chosen`, the assistant's in `completion`.
      if (turns != nullptr && turns->is_array() && turns->size() == 1 && present(row, "chosen") != nullptr) {
        Json joined = row["chosen"];
        if (joined.is_array()) joined.push_back((*turns)[0]);
        row["completion"] = std::move(joined);
      }
      std::string prompt = prompt_of_turns(frame, row, "completion", at);
      std::string answer = frame.answer(last_turn(row, "completion", at));
      row["prompt"] = std::move(prompt);
      row["completion"] = std::move(answer);
    };
  const std::string user = name == "argilla"                           ? "instruction"
                           : name == "intel"                           ? "question"
                           : name == "prompt_pairs" || name == "ultra" ? "prompt"
                                                                       : "";
  if (user.empty()) return {};
  return [frame, user](Json& row, const std::string& at) {
    std::string prompt = frame.prompt(optional_text(row, "system", at), text_field(row, user, at));
    std::string answer = frame.answer(text_field(row, "completion", at));
    row["prompt"] = std::move(prompt);
    row["completion"] = std::move(answer);
  };
}

RLALGO_INLINE void nectar_row(Json& row, const std::string& where) {
  const std::string prompt = text_field(row, "prompt", where);
  const Json* answers = present(row, "answers");
  if (answers == nullptr || !answers->is_array()) raise_field(row, "answers", "a list of {answer, rank}", where);
  std::vector<std::pair<double, std::string>> ranked;
  for (const Json& entry : *answers) {
    if (!entry.is_object() || !entry.contains("rank") || !entry["rank"].is_number() || !entry.contains("answer") ||
        !entry["answer"].is_string())
      raise_field(row, "answers", "entries {answer: text, rank: number}", where);
    ranked.emplace_back(entry["rank"].get<double>(), entry["answer"].get<std::string>());
  }
  if (ranked.size() < 2)
    core::raise("data", 21,
                {.what = "the column \"answers\" has too few entries",
                 .found = std::to_string(ranked.size()),
                 .expected = "at least 2, to have a best answer and a runner-up",
                 .where = where});
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  set_pair(row, "<|system|>\n</s>\n<|user|>\n" + prompt + "</s>\n<|assistant|>\n", ranked[0].second, ranked[1].second);
}

}  // namespace detail

RLALGO_INLINE RowTransform dialogue_format(const std::string& name, PreferenceFamily family) {
  const std::string module = name.substr(0, name.find('.')), function = name.substr(name.find('.') + 1);
  if (family == PreferenceFamily::pairs && name == "zephyr.nectar") return detail::nectar_row;
  if ((module != "chatml" && module != "llama3") || family == PreferenceFamily::odds) return {};
  const detail::Frame frame = module == "chatml" ? detail::chatml_frame : detail::llama3_frame;
  return family == PreferenceFamily::pairs ? detail::pair_dialogue(frame, function)
                                           : detail::unpaired_dialogue(frame, function);
}

}  // namespace rlalgo::data
