// `datasets[].type` of preference data: the one list of formats, by family.
//
//   pairs     chatml.* llama3.* {default argilla argilla_chat icr intel prompt_pairs ultra} zephyr.nectar
//             chat_template.{default argilla argilla_chat} passthrough.default user_defined.default
//   odds      chat_template.argilla, and every format of pairs
//   unpaired  chatml.* llama3.* {argilla argilla_chat intel prompt_pairs ultra} user_defined.default
//   none      no type, or an empty one: the columns are already prompt, chosen, rejected (completion, label)
//
// A name without a dot means .default. A C++ program passes any RowTransform instead.
// Errors (usage): [rlalgo.data.9] the type is not known; those of the formats.
#pragma once

#include <string>
#include <vector>

#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/chat_template_format.hpp>
#include <rlalgo/data/dialogue_format.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/user_format.hpp>

namespace rlalgo::data {

[[nodiscard]] std::vector<std::string> preference_format_names(PreferenceFamily family);

[[nodiscard]] RowTransform make_preference_transform(const Json& type, PreferenceFamily family,
                                                     const MessageFields& fields, const Render& render,
                                                     const std::string& where = "datasets[].type");

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/preference_transform_impl.hpp>
#endif
