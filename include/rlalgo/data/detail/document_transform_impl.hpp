// Definitions of document_transform.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/document_transform.hpp>
#include <rlalgo/data/matching_transform.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/template_columns.hpp>

namespace rlalgo::data {

namespace detail {

// The first of these columns that has a value; a text, "" where there is none.
RLALGO_INLINE std::string first_text(const Json& row, std::initializer_list<const char*> columns,
                                     const std::string& where) {
  for (const char* column : columns) {
    const auto cell = row.find(column);
    if (cell == row.end() || cell->is_null()) continue;
    if (!cell->is_string())
      core::raise("data", 10,
                  {.what = std::string("the column \"") + column + "\" is no text",
                   .found = excerpt(*cell),
                   .expected = "a text",
                   .where = where});
    return cell->get<std::string>();
  }
  return {};
}

RLALGO_INLINE void cut(std::vector<TokenId>& ids, std::int64_t length) {
  if (static_cast<std::int64_t>(ids.size()) > length) ids.resize(static_cast<std::size_t>(length));
}

// The id of a mark that is one token.
RLALGO_INLINE std::optional<TokenId> single_token(const DocumentTools& tools, const std::string& mark) {
  const std::vector<TokenId> ids = tools.encode(mark, false);
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

RLALGO_INLINE Document conversation(const Json& messages, const TemplateColumns& columns, bool last_alone,
                                    const DocumentTools& tools, const DocumentConfig& config) {
  Document out;
  if (messages.empty()) {
    out.prompt_length = 0;
    return out;
  }
  out.ids = tools.encode(tools.render(messages, false, columns), false);
  cut(out.ids, config.length);
  out.loss_mask.assign(out.ids.size(), 0);
  std::vector<std::size_t> answers;
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (messages[i]["role"] == "assistant") answers.push_back(i);
  if (last_alone && answers.size() > 1) answers.erase(answers.begin(), answers.end() - 1);
  Json shown = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (std::find(answers.begin(), answers.end(), i) != answers.end()) {
      const std::size_t begin = tools.encode(tools.render(shown, true, columns), false).size();
      shown.push_back(messages[i]);
      const std::size_t end = tools.encode(tools.render(shown, false, columns), false).size();
      for (std::size_t t = begin; t < std::min(end, out.ids.size()); ++t) out.loss_mask[t] = 1;
      continue;
    }
    shown.push_back(messages[i]);
  }
  const auto prompt_length = [&] {
    return std::find(out.loss_mask.begin(), out.loss_mask.end(), 1) - out.loss_mask.begin();
  };
  if (config.mask_thinking && last_alone)
    mask_thoughts(out.ids, static_cast<std::size_t>(prompt_length()), out.loss_mask, tools);
  out.prompt_length = prompt_length();
  return out;
}

RLALGO_INLINE Document prompt_and_completion(const Json& row, const std::string& where, const DocumentTools& tools,
                                             const DocumentConfig& config) {
  std::vector<TokenId> prompt = tools.encode(first_text(row, {"input", "prompt", "question"}, where), true);
  std::vector<TokenId> completion = tools.encode(first_text(row, {"output", "completion", "answer"}, where), false);
  if (static_cast<std::int64_t>(prompt.size() + completion.size()) > config.length) {
    if (static_cast<std::int64_t>(prompt.size()) >= config.length) cut(prompt, config.length - 1);
    cut(completion, std::max<std::int64_t>(config.length - static_cast<std::int64_t>(prompt.size()), 1));
  }
  Document out;
  out.prompt_length = static_cast<std::int64_t>(prompt.size());
  out.loss_mask.assign(prompt.size(), 0);
  out.loss_mask.insert(out.loss_mask.end(), completion.size(), 1);
  out.ids = std::move(prompt);
  out.ids.insert(out.ids.end(), completion.begin(), completion.end());
  return out;
}

// The column's whole numbers from `least` to `most`; nothing where there is none.
RLALGO_INLINE std::vector<std::int64_t> whole_numbers(const Json& row, const char* column, std::int64_t least,
                                                      std::int64_t most, const std::string& where) {
  const auto cell = row.find(column);
  if (cell == row.end() || cell->is_null()) return {};
  const auto wrong = [&](const Json& found) {
    core::raise("data", 10,
                {.what = std::string("the column \"") + column + "\" has the wrong type",
                 .found = excerpt(found),
                 .expected = "whole numbers from " + std::to_string(least) + " to " + std::to_string(most),
                 .where = where});
  };
  if (!cell->is_array()) wrong(*cell);
  std::vector<std::int64_t> out;
  for (const Json& item : *cell) {
    if (!item.is_number_integer() || item.get<std::int64_t>() < least || item.get<std::int64_t>() > most) wrong(item);
    out.push_back(item.get<std::int64_t>());
  }
  return out;
}

}  // namespace detail

RLALGO_INLINE void mask_thoughts(std::span<const TokenId> ids, std::size_t begin, std::vector<std::uint8_t>& mask,
                                 const DocumentTools& tools) {
  const auto open = detail::single_token(tools, "<think>"), close = detail::single_token(tools, "</think>");
  if (!open || !close) return;
  constexpr std::size_t opened_before = 5;  // tokens of the generation prompt in which a thought may begin
  bool thinking = false;
  for (std::size_t i = begin - std::min(begin, opened_before); i < ids.size(); ++i) {
    if (ids[i] == *open) thinking = true;
    const bool last = thinking && ids[i] == *close;
    if (thinking) mask[i] = 0;
    if (last) thinking = false;
  }
}

RLALGO_INLINE const std::vector<std::string>& document_transform_names() {
  static const std::vector<std::string> names = {"ebft_pretrain.transform", "ebft_strided_structured.transform",
                                                 "ebft_strided_chat.transform", "ebft_reasoning.transform_strided"};
  return names;
}

RLALGO_INLINE Document document_of(const std::string& name, const Json& row, const std::string& where,
                                   const DocumentTools& tools, const DocumentConfig& config) {
  TemplateColumns columns = template_columns(row, where);
  if (columns.tools.empty()) columns.tools = nullptr;
  if (name == "ebft_strided_chat.transform" || name == "ebft_reasoning.transform_strided")
    return detail::conversation(messages_of(row, where), columns, name == "ebft_reasoning.transform_strided", tools,
                                config);
  require_no_template_columns(columns, where);
  if (name == "ebft_strided_structured.transform") return detail::prompt_and_completion(row, where, tools, config);
  if (!row.contains("question") && !row.contains("text"))
    core::raise("data", 10,
                {.what = "the row has no text", .expected = "a column \"question\" or \"text\"", .where = where});
  Document out;
  out.ids = tools.encode(detail::first_text(row, {row.contains("question") ? "question" : "text"}, where), true);
  detail::cut(out.ids, config.length);
  out.loss_mask.assign(out.ids.size(), 1);
  return out;
}

RLALGO_INLINE Document document_of_ids(const Json& row, const std::string& where, std::int64_t vocabulary,
                                       const DocumentConfig& config) {
  constexpr std::int64_t untrained = -100;
  const auto ids = detail::whole_numbers(row, "input_ids", 0, vocabulary - 1, where);
  const auto labels = detail::whole_numbers(row, "labels", untrained, vocabulary - 1, where);
  const auto attended = detail::whole_numbers(row, "attention_mask", 0, 1, where);
  const auto wrong = [&](const std::string& found, const std::string& expected) {
    core::raise("data", 10,
                {.what = "the row's token ids cannot be read", .found = found, .expected = expected, .where = where});
  };
  if (ids.empty()) wrong("no input_ids", "input_ids, a list of token ids");
  for (const auto* column : {&labels, &attended})
    if (!column->empty() && column->size() != ids.size())
      wrong(std::to_string(column->size()) + " entries for " + std::to_string(ids.size()) + " token ids",
            "labels and attention_mask as long as input_ids");
  Document out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!attended.empty() && attended[i] == 0) continue;
    out.ids.push_back(static_cast<TokenId>(ids[i]));
    out.loss_mask.push_back(labels.empty() || labels[i] != untrained ? 1 : 0);
  }
  detail::cut(out.ids, config.length);
  out.loss_mask.resize(out.ids.size());
  const auto given = row.find("prompt_length");
  if (given != row.end() && !given->is_null()) {
    if (!given->is_number_integer() || given->get<std::int64_t>() < 0)
      wrong("prompt_length " + detail::excerpt(*given), "a number of tokens");
    out.prompt_length = std::min(given->get<std::int64_t>(), static_cast<std::int64_t>(out.ids.size()));
  } else if (const auto begin = std::find(out.loss_mask.begin(), out.loss_mask.end(), 1) - out.loss_mask.begin();
             begin > 0) {
    out.prompt_length = begin;
  }
  return out;
}

}  // namespace rlalgo::data
