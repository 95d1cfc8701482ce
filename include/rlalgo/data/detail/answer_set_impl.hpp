// Definitions of answer_set.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/answer.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/data/id_arena.hpp>

namespace rlalgo::data {

RLALGO_INLINE void AnswerSet::append(std::int64_t row, bool desirable, std::span<const TokenId> prompt,
                                     std::span<const TokenId> completion, std::span<const TokenId> rest) {
  const std::size_t begin = ids_->size();
  ids_->append(prompt);
  ids_->append(completion);
  ids_->append(rest);
  add(row, desirable, begin, prompt.size(), completion.size(), rest.size());
}

RLALGO_INLINE void AnswerSet::append(const AnswerSet& other, std::size_t example) {
  for (std::size_t k = 0; k < per_example_; ++k) {
    const Entry& e = other.entries_[example * per_example_ + k];
    const auto ids = other.ids_->span(e.begin, std::size_t{e.size} + e.rest);
    if (ids_ == other.ids_)
      add(e.row, e.desirable != 0, e.begin, e.prompt, e.size - e.prompt, e.rest);
    else
      append(e.row, e.desirable != 0, ids.first(e.prompt), ids.subspan(e.prompt, e.size - e.prompt),
             ids.subspan(e.size));
  }
}

RLALGO_INLINE void AnswerSet::add(std::int64_t row, bool desirable, std::size_t begin, std::size_t prompt,
                                  std::size_t completion, std::size_t rest) {
  entries_.push_back({row, begin, static_cast<std::uint32_t>(prompt + completion),
                      static_cast<std::uint32_t>(prompt) & 0x7fffffffU, desirable ? 1U : 0U,
                      static_cast<std::uint32_t>(rest)});
  tokens_ += prompt + completion;
}

RLALGO_INLINE AnswerSet AnswerSet::selected(std::span<const std::size_t> order) const {
  AnswerSet out(per_example_, ids_);
  out.entries_.reserve(order.size() * per_example_);
  for (const std::size_t example : order) {
    for (std::size_t k = 0; k < per_example_; ++k) {
      out.entries_.push_back(entries_[example * per_example_ + k]);
      out.tokens_ += out.entries_.back().size;
    }
  }
  return out;
}

RLALGO_INLINE Answer AnswerSet::answer(std::size_t i) const {
  const std::span<const TokenId> all = ids(i);
  Answer out;
  out.row = entries_[i].row;
  out.desirable = entries_[i].desirable != 0;
  out.ids.assign(all.begin(), all.end());
  out.prompt_tokens = static_cast<std::int64_t>(entries_[i].prompt);
  if (!reference_.empty()) out.reference_row = reference_[i];
  if (!mismatched_reference_.empty()) out.mismatched_reference = mismatched_reference_[i];
  return out;
}

RLALGO_INLINE std::span<const TokenId> AnswerSet::ids(std::size_t i) const {
  return ids_->span(entries_[i].begin, entries_[i].size);
}

RLALGO_INLINE std::span<const TokenId> AnswerSet::whole_completion(std::size_t i) const {
  const Entry& e = entries_[i];
  return ids_->span(e.begin, std::size_t{e.size} + e.rest).subspan(e.prompt);
}

RLALGO_INLINE void AnswerSet::set_reference(std::vector<double> reference, std::vector<double> mismatched) {
  reference_ = std::move(reference);
  mismatched_reference_ = std::move(mismatched);
}

}  // namespace rlalgo::data
