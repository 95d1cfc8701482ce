// The answers that completions of prompts are matched with, as tokens, encoded once: what they limit and what they teach.
//
// Errors: [rlalgo.config.33] a row without a ground truth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/document_transform.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/feature/text_matching.hpp>

namespace rlalgo::feature {

class GroundTruths {
 public:
  // A text as token ids, without added special tokens.
  using Encode = std::function<std::vector<data::TokenId>(const std::string& text)>;

  explicit GroundTruths(Encode encode) : encode_(std::move(encode)) {}

  // Encodes what was not encoded before.
  const std::vector<data::TokenId>& add(const data::Json& columns) {
    const std::string* const text = text_of(columns);
    if (text == nullptr) return none_;
    const auto [entry, added] = ids_.try_emplace(*text);
    if (added) entry->second = encode_(*text);
    return entry->second;
  }
  // Of a row that was added; empty for others.
  [[nodiscard]] const std::vector<data::TokenId>& of(const data::Json& columns) const {
    const std::string* const text = text_of(columns);
    const auto found = text == nullptr ? ids_.end() : ids_.find(*text);
    return found == ids_.end() ? none_ : found->second;
  }

  // Every prompt must have a ground truth; `as_answers`: its tokens become the prompt's answer, which a likelihood term is of.
  void require(std::vector<data::TokenizedPrompt>& prompts, bool as_answers) {
    for (data::TokenizedPrompt& prompt : prompts) {
      const std::vector<data::TokenId>& truth = add(prompt.columns);
      if (truth.empty())
        core::raise("config", 33,
                    {.what = "a row has no ground truth, so there is nothing that completions could match",
                     .expected = "a column ground_truth with a text",
                     .where = "dataset row " + std::to_string(prompt.row),
                     .remedy = "drop the row, or set datasets[].type: ebft_….transform"});
      if (as_answers) prompt.answer_ids = truth;
    }
  }

 private:
  static const std::string* text_of(const data::Json& columns) {
    const auto truth = columns.find(TextMatching::truth_column);
    return truth == columns.end() || !truth->is_string() ? nullptr : &truth->get_ref<const std::string&>();
  }

  Encode encode_;
  std::unordered_map<std::string, std::vector<data::TokenId>> ids_;
  std::vector<data::TokenId> none_;
};

// Tokens that the completions of a prompt may take: `factor` times its ground truth's, 64 at least.
[[nodiscard]] inline std::function<std::int64_t(const data::TokenizedPrompt&)> limit_by_truth(
    std::shared_ptr<const GroundTruths> truths, double factor) {
  return [truths = std::move(truths), factor](const data::TokenizedPrompt& prompt) {
    const auto tokens = static_cast<double>(truths->of(prompt.columns).size());
    return std::max<std::int64_t>(static_cast<std::int64_t>(tokens * factor), 64);
  };
}

// Takes the thoughts of answers out of their likelihood; prompts are tokenized.
inline void mask_thoughts(std::vector<data::TokenizedPrompt>& prompts, const data::DocumentTools& tools) {
  for (data::TokenizedPrompt& prompt : prompts) {
    std::vector<data::TokenId> ids = prompt.ids;
    ids.insert(ids.end(), prompt.answer_ids.begin(), prompt.answer_ids.end());
    std::vector<std::uint8_t> mask(ids.size(), 1);
    data::mask_thoughts(ids, prompt.ids.size(), mask, tools);
    prompt.answer_mask.assign(mask.begin() + static_cast<std::ptrdiff_t>(prompt.ids.size()), mask.end());
  }
}

}  // namespace rlalgo::feature
