// All answers of a preference dataset: one small entry per answer, and their token ids in an arena that several sets
// can share (a shuffled, deduplicated or held-out set is other entries over the same ids).
//
// Examples are numbered; a pair is two answers (chosen, rejected), an unpaired example is one. Entries are in dataset
// order. Reference log-probs computed before training lie beside the entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/data/answer.hpp>
#include <rlalgo/data/id_arena.hpp>

namespace rlalgo::data {

class AnswerSet {
 public:
  // `per_example`: 2 for pairs, 1 for unpaired data.
  explicit AnswerSet(std::size_t per_example = 2, std::shared_ptr<IdArena> ids = std::make_shared<IdArena>())
      : per_example_(per_example), ids_(std::move(ids)) {}

  [[nodiscard]] std::size_t per_example() const noexcept { return per_example_; }
  [[nodiscard]] std::size_t answers() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t examples() const noexcept { return entries_.size() / per_example_; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  // `row` is the example's row in the dataset it was read from; `rest` what was cut off the completion's end.
  void append(std::int64_t row, bool desirable, std::span<const TokenId> prompt, std::span<const TokenId> completion,
              std::span<const TokenId> rest = {});

  // Example `example` of another set, as example number examples() of this one. Ids of another arena are copied.
  void append(const AnswerSet& other, std::size_t example);

  // An entry over ids that lie in the arena already.
  void add(std::int64_t row, bool desirable, std::size_t begin, std::size_t prompt, std::size_t completion,
           std::size_t rest = 0);

  // Examples order[0], order[1], … as a set over the same ids.
  [[nodiscard]] AnswerSet selected(std::span<const std::size_t> order) const;

  // Answer number `i` with its own copy of the ids.
  [[nodiscard]] Answer answer(std::size_t i) const;
  // Prompt and completion of answer `i`.
  [[nodiscard]] std::span<const TokenId> ids(std::size_t i) const;
  [[nodiscard]] std::span<const TokenId> completion(std::size_t i) const { return ids(i).subspan(entries_[i].prompt); }
  // With what was cut off its end: as it follows another prompt.
  [[nodiscard]] std::span<const TokenId> whole_completion(std::size_t i) const;
  [[nodiscard]] std::size_t rest(std::size_t i) const { return entries_[i].rest; }
  [[nodiscard]] std::int64_t tokens(std::size_t i) const { return static_cast<std::int64_t>(entries_[i].size); }
  [[nodiscard]] std::int64_t row(std::size_t i) const { return entries_[i].row; }
  [[nodiscard]] bool desirable(std::size_t i) const { return entries_[i].desirable != 0; }
  // Of all answers.
  [[nodiscard]] std::size_t all_tokens() const noexcept { return tokens_; }
  [[nodiscard]] const std::shared_ptr<IdArena>& arena() const noexcept { return ids_; }

  // One number per answer: Σ of the reference's log-probs over its completion, and over its mismatched completion.
  void set_reference(std::vector<double> reference, std::vector<double> mismatched = {});
  [[nodiscard]] bool has_reference() const noexcept { return !reference_.empty(); }

 private:
  struct Entry {
    std::int64_t row;
    std::uint64_t begin;
    std::uint32_t size;
    std::uint32_t prompt : 31, desirable : 1;
    std::uint32_t rest;  // tokens behind these, cut off
  };
  std::size_t per_example_;
  std::shared_ptr<IdArena> ids_;
  std::vector<Entry> entries_;
  std::size_t tokens_ = 0;
  std::vector<double> reference_, mismatched_reference_;  // [answers] or empty
};

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/answer_set_impl.hpp>
#endif
