// Definitions of preference_tokens.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/located.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/preference_tokens.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/table.hpp>
#include <rlalgo/data/template_columns.hpp>

namespace rlalgo::data {

RLALGO_INLINE void raise_nothing_left(std::int64_t rows, const std::string& name) {
  core::raise("data", 26,
              {.what = "no row is left to train on",
               .found = std::to_string(rows) + " rows, all longer than sequence_len",
               .where = name,
               .remedy = "raise sequence_len, or set excess_length_strategy: truncate"});
}

namespace detail {

RLALGO_INLINE Source source_of(const Json& row, const std::string& field, const std::string& where) {
  const Json* cell = present(row, field);
  if (cell == nullptr) raise_field(row, field, "a text or a list of messages", where);
  if (!cell->is_string() && !cell->is_array()) raise_field(row, field, "a text or a list of messages", where);
  if (cell->empty() || (cell->is_string() && cell->get_ref<const std::string&>().empty()))
    core::raise("data", 23,
                {.what = "the column \"" + field + "\" is empty",
                 .expected = "a text or a list of messages",
                 .where = where,
                 .remedy = "fill it, or remove the row"});
  if (cell->is_array()) check_prompt(*cell, where);
  return {*cell, cell->is_string() ? cell->get<std::string>() : ""};
}

RLALGO_INLINE std::size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t size = std::min(a.size(), b.size());
  std::size_t n = 0;
  while (n < size && a[n] == b[n]) ++n;
  return n;
}

RLALGO_INLINE void extract_prompt(Json& row, const std::string& where) {
  if (present(row, "prompt") != nullptr) return;
  const Json* chosen = present(row, "chosen");
  const Json* rejected = present(row, "rejected");
  if (chosen == nullptr || rejected == nullptr || chosen->type() != rejected->type()) return;
  if (chosen->is_array()) {
    std::size_t n = 0;
    while (n + 1 < std::min(chosen->size(), rejected->size()) && (*chosen)[n] == (*rejected)[n]) ++n;
    if (n == 0) raise_field(row, "prompt", "a prompt, or answers that begin alike", where);
    const auto slice = [](const Json& list, std::size_t from, std::size_t to) {
      Json out = Json::array();
      for (std::size_t i = from; i < to; ++i) out.push_back(list[i]);
      return out;
    };
    Json prompt = slice(*chosen, 0, n), win = slice(*chosen, n, chosen->size()),
         lose = slice(*rejected, n, rejected->size());
    row["prompt"] = std::move(prompt);
    row["chosen"] = std::move(win);
    row["rejected"] = std::move(lose);
    return;
  }
  if (!chosen->is_string()) return;
  const std::string win = chosen->get<std::string>(), lose = rejected->get<std::string>();
  std::size_t n = 0;
  while (n + 1 < std::min(win.size(), lose.size()) && win[n] == lose[n]) ++n;
  while (n > 0 && (static_cast<unsigned char>(win[n]) & 0xC0U) == 0x80U) --n;  // not inside a character
  if (n > 0 && win[n - 1] == ' ') --n;
  if (n == 0) raise_field(row, "prompt", "a prompt, or answers that begin alike", where);
  row["prompt"] = win.substr(0, n);
  row["chosen"] = win.substr(n);
  row["rejected"] = lose.substr(n);
}

RLALGO_INLINE void place_text_prompt(Json& row, bool pair, const std::string& where) {
  const Json* const text = present(row, "prompt");
  const Json* const first = present(row, pair ? "chosen" : "completion");
  const Json* const second = pair ? present(row, "rejected") : first;
  if (text == nullptr || !text->is_string() || first == nullptr || second == nullptr) return;
  if (!first->is_array() && !second->is_array()) return;
  const auto refuse = [&](const std::string& found) {
    core::raise("data", 34,
                {.what = "the prompt is a text, and the answers are conversations that it is no turn of",
                 .found = found,
                 .expected = "answers that begin with the assistant, or with the turn that the prompt is",
                 .where = where,
                 .remedy = "write the prompt as messages, [{\"role\": \"user\", \"content\": …}]"});
  };
  const auto role = [](const Json& message) {
    const auto found = message.is_object() ? message.find("role") : message.end();
    return message.is_object() && found != message.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const auto begins = [&](const Json& answer) {
    return answer.is_string() || (!answer.empty() && role(answer[0]) == "assistant");
  };
  if (begins(*first) && begins(*second)) {
    row["prompt"] = Json::array({message("user", text->get<std::string>())});
    return;
  }
  if (!first->is_array() || !second->is_array()) refuse("a text and a conversation");
  std::size_t n = 0;
  while (n + 1 < std::min(first->size(), second->size()) && (*first)[n] == (*second)[n]) ++n;
  bool held = false;
  for (std::size_t i = 0; i < n; ++i)
    held = held || (role((*first)[i]) == "user" && (*first)[i].contains("content") && (*first)[i]["content"] == *text);
  if (!held) refuse(excerpt(*text));
  const auto part = [](const Json& list, std::size_t from, std::size_t to) {
    Json out = Json::array();
    for (std::size_t i = from; i < to; ++i) out.push_back(list[i]);
    return out;
  };
  Json prompt = part(*first, 0, n), win = part(*first, n, first->size()), lose = part(*second, n, second->size());
  row["prompt"] = std::move(prompt);
  row[pair ? "chosen" : "completion"] = std::move(win);
  if (pair) row["rejected"] = std::move(lose);
}

RLALGO_INLINE void PreferenceTokenizer::add(Json row, std::int64_t number, const std::string& where, AnswerSet& out,
                                            TokenizeCounts& counts) const {
  core::located(where, [&] { add_here(row, number, where, out, counts); });
}

RLALGO_INLINE void PreferenceTokenizer::add_here(Json& row, std::int64_t number, const std::string& where,
                                                 AnswerSet& out, TokenizeCounts& counts) const {
  ++counts.rows;
  const bool unpaired = config_.family == PreferenceFamily::unpaired;
  const bool pair = !unpaired || (present(row, "completion") == nullptr && present(row, "chosen") != nullptr);
  if (pair) extract_prompt(row, where);
  place_text_prompt(row, pair, where);
  TemplateColumns columns = template_columns(row, where, config_.tools_column);
  if (config_.end == EndRule::id && columns.tools.empty()) columns.tools = nullptr;  // as TRL's apply_chat_template
  const Source prompt = source_of(row, "prompt", where);
  std::vector<Source> answers;
  std::vector<bool> desirable;
  if (pair) {
    answers = {source_of(row, "chosen", where), source_of(row, "rejected", where)};
    desirable = {true, false};
  } else {
    answers = {source_of(row, "completion", where)};
    desirable = {label_of(row, where)};
  }
  if (!prompt.messages()) require_no_template_columns(columns, where);
  counts.answers += static_cast<std::int64_t>(answers.size());
  if (config_.filter && !fits(prompt, answers, columns, where, counts)) return;
  Tokens tokens =
      config_.end == EndRule::text ? end_with_text(prompt, answers, columns) : end_with_id(prompt, answers, columns);
  if (!within_length(tokens, where, counts)) return;
  if (pair && tokens.answers[0] == tokens.answers[1]) ++counts.identical;
  counts.kept += unpaired ? static_cast<std::int64_t>(answers.size()) : 1;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    counts.desirable += unpaired && desirable[i];
    const std::vector<TokenId> none;
    out.append(number, desirable[i], tokens.prompts[i], tokens.answers[i], unpaired ? tokens.rests[i] : none);
  }
}

RLALGO_INLINE bool PreferenceTokenizer::label_of(const Json& row, const std::string& where) {
  const Json* label = present(row, "label");
  if (label != nullptr && label->is_boolean()) return label->get<bool>();
  if (label != nullptr && label->is_number_integer() && (*label == 0 || *label == 1)) return *label == 1;
  core::raise("data", 24,
              {.what = "the label is not true or false",
               .found = label == nullptr ? "no label" : excerpt(*label),
               .where = where,
               .remedy = "true marks a desirable completion, false an undesirable one"});
}

RLALGO_INLINE std::pair<std::int64_t, std::int64_t> PreferenceTokenizer::lengths(const Source& prompt,
                                                                                 const Source& answer,
                                                                                 const TemplateColumns& columns) const {
  const auto length = [&](const std::string& text) {
    return static_cast<std::int64_t>(tools_.encode(text, false).size());
  };
  if (!prompt.messages()) return {length(prompt.text), length(answer.text)};
  const auto [head, whole] = texts(prompt, answer, columns);
  const std::int64_t prompt_length = length(head);
  return {prompt_length, std::max<std::int64_t>(length(whole) - prompt_length, 0)};
}

RLALGO_INLINE bool PreferenceTokenizer::fits(const Source& prompt, std::vector<Source>& answers,
                                             const TemplateColumns& columns, const std::string& where,
                                             TokenizeCounts& counts) const {
  if (!config_.max_length) return true;
  const std::int64_t limit = *config_.max_length;
  for (Source& answer : answers) {
    const auto [prompt_length, answer_length] = lengths(prompt, answer, columns);
    if (prompt_length + answer_length <= limit) continue;
    if (config_.excess == Excess::raise)
      core::raise("data", 25,
                  {.what = "a row is longer than sequence_len",
                   .found = std::to_string(prompt_length) + " + " + std::to_string(answer_length) + " tokens",
                   .expected = "at most " + std::to_string(limit),
                   .where = where,
                   .remedy = "raise sequence_len, or set excess_length_strategy: drop or truncate"});
    const std::int64_t room = limit - prompt_length;
    if (config_.excess == Excess::truncate && room > 0 && !answer.messages()) {
      const std::vector<TokenId> ids = tools_.encode(answer.text, false);
      answer.text = tools_.decode(std::span(ids).first(std::min(ids.size(), static_cast<std::size_t>(room))));
      const auto [head, cut] = lengths(prompt, answer, columns);
      if (!answer.text.empty() && head + cut <= limit) {
        ++counts.truncated;
        continue;
      }
    }
    ++counts.too_long;
    return false;
  }
  return true;
}

RLALGO_INLINE std::vector<TokenId> PreferenceTokenizer::encode_once(const std::string& text,
                                                                    bool special_tokens) const {
  std::vector<TokenId> ids = tools_.encode(text, special_tokens);
  if (tools_.bos && ids.size() > 1 && ids[0] == *tools_.bos && ids[1] == *tools_.bos) ids.erase(ids.begin());
  return ids;
}

RLALGO_INLINE std::pair<std::string, std::string> PreferenceTokenizer::texts(const Source& prompt, const Source& answer,
                                                                             const TemplateColumns& columns) const {
  if (!prompt.messages()) return {prompt.text, prompt.text + answer.text};
  Json whole = prompt.value;
  if (answer.messages())
    for (const Json& m : answer.value) whole.push_back(m);
  else
    whole.push_back(Json{{"role", "assistant"}, {"content", answer.text}});
  return {tools_.render(prompt.value, true, columns), tools_.render(whole, false, columns)};
}

RLALGO_INLINE PreferenceTokenizer::Tokens PreferenceTokenizer::end_with_text(const Source& prompt,
                                                                             const std::vector<Source>& answers,
                                                                             const TemplateColumns& columns) const {
  std::vector<std::vector<TokenId>> whole;
  std::size_t boundary = static_cast<std::size_t>(-1);
  const bool special = !prompt.messages();
  for (const Source& answer : answers) {
    auto [head, full] = texts(prompt, answer, columns);
    if (special && !answer.messages() && !full.ends_with(tools_.eos_text)) full += tools_.eos_text;
    whole.push_back(encode_once(full, special));
    boundary = std::min(boundary, common_prefix(encode_once(head, special), whole.back()));
  }
  boundary = std::max<std::size_t>(boundary, 1);  // nothing predicts the first token: it stays context
  Tokens out;
  for (const auto& ids : whole) {
    const auto split = ids.begin() + static_cast<std::ptrdiff_t>(std::min(boundary, ids.size()));
    out.prompts.emplace_back(ids.begin(), split);
    out.answers.emplace_back(split, ids.end());
  }
  return out;
}

RLALGO_INLINE PreferenceTokenizer::Tokens PreferenceTokenizer::end_with_id(const Source& prompt,
                                                                           const std::vector<Source>& answers,
                                                                           const TemplateColumns& columns) const {
  Tokens out;
  for (const Source& answer : answers) {
    const auto [head, full] = texts(prompt, answer, columns);
    const std::vector<TokenId> ids = tools_.encode(full, false);
    const std::size_t common = common_prefix(tools_.encode(head, false), ids);
    const bool begins = tools_.bos && (common == 0 || ids.front() != *tools_.bos);
    const auto split = ids.begin() + static_cast<std::ptrdiff_t>(
                                         std::min(ids.size(), begins ? common : std::max<std::size_t>(common, 1)));
    auto& start = out.prompts.emplace_back(ids.begin(), split);
    if (tools_.bos && (start.empty() || start.front() != *tools_.bos)) start.insert(start.begin(), *tools_.bos);
    auto& end = out.answers.emplace_back(split, ids.end());
    if (tools_.eos && (end.empty() || end.back() != *tools_.eos)) end.push_back(*tools_.eos);
  }
  return out;
}

RLALGO_INLINE bool PreferenceTokenizer::within_length(Tokens& tokens, const std::string& where,
                                                      TokenizeCounts& counts) const {
  tokens.rests.resize(tokens.answers.size());
  for (std::size_t i = 0; i < tokens.answers.size(); ++i) {
    auto& prompt = tokens.prompts[i];
    auto& answer = tokens.answers[i];
    if (config_.max_length) {
      const auto limit = static_cast<std::size_t>(*config_.max_length);
      const std::size_t size = prompt.size() + answer.size();
      if (config_.keep_end && size > limit) {
        ++counts.cut;
        const std::size_t cut = size - limit;
        if (cut >= prompt.size()) {  // the first kept token stays as context: nothing else predicts the next one
          answer.erase(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(cut - prompt.size()));
          prompt = {answer.front()};
          answer.erase(answer.begin());
        } else {
          prompt.erase(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(cut));
        }
      } else if (prompt.size() >= limit) {
        ++counts.prompt_fills;
        return false;
      } else if (size > limit) {
        ++counts.cut;
        tokens.rests[i].assign(answer.begin() + static_cast<std::ptrdiff_t>(limit - prompt.size()), answer.end());
        answer.resize(limit - prompt.size());
      }
    }
    if (prompt.empty() || answer.empty())
      core::raise("data", 23,
                  {.what = prompt.empty() ? "the prompt has no tokens" : "the answer has no tokens",
                   .expected = "at least one",
                   .where = where});
  }
  return true;
}

}  // namespace detail

RLALGO_INLINE AnswerSet tokenize_preferences(const Table& table, const TokenizeConfig& config, const TextTools& tools,
                                             TokenizeCounts& counts, const std::string& name) {
  AnswerSet out(config.family == PreferenceFamily::unpaired ? 1 : 2);
  const detail::PreferenceTokenizer tokenizer(config, tools);
  for (std::size_t i = 0; i < table.size(); ++i)
    tokenizer.add(table.row(i), static_cast<std::int64_t>(i), table.where(i), out, counts);
  if (out.empty()) raise_nothing_left(counts.rows, name);
  return out;
}

}  // namespace rlalgo::data
