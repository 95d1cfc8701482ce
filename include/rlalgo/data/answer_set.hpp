// All answers of a preference dataset, packed: token ids end to end, and one small entry per answer.
//
// Examples are numbered; a pair is two answers (chosen, rejected), an unpaired example is one. Entries are in dataset
// order. Reference log-probs computed before training lie beside the entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/data/answer.hpp>

namespace rlalgo::data {

class AnswerSet {
 public:
  // `per_example`: 2 for pairs, 1 for unpaired data.
  explicit AnswerSet(std::size_t per_example = 2) : per_example_(per_example) {}

  [[nodiscard]] std::size_t per_example() const noexcept { return per_example_; }
  [[nodiscard]] std::size_t answers() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t examples() const noexcept { return entries_.size() / per_example_; }
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  // `row` is the example's row in the dataset it was read from.
  void append(std::int64_t row, bool desirable, std::span<const TokenId> prompt, std::span<const TokenId> completion) {
    Entry e{row, ids_.size(), 0, prompt.size(), desirable};
    ids_.insert(ids_.end(), prompt.begin(), prompt.end());
    ids_.insert(ids_.end(), completion.begin(), completion.end());
    e.end = ids_.size();
    entries_.push_back(e);
  }

  // Example `example` of another set, as example number examples() of this one.
  void append(const AnswerSet& other, std::size_t example) {
    for (std::size_t k = 0; k < per_example_; ++k) {
      const Entry& e = other.entries_[example * per_example_ + k];
      const auto ids = std::span(other.ids_).subspan(e.begin, e.end - e.begin);
      append(e.row, e.desirable, ids.first(e.prompt), ids.subspan(e.prompt));
    }
  }

  // Answer number `i` with its own copy of the ids.
  [[nodiscard]] Answer answer(std::size_t i) const {
    const Entry& e = entries_[i];
    Answer out;
    out.row = e.row;
    out.desirable = e.desirable;
    out.ids.assign(ids_.begin() + static_cast<std::ptrdiff_t>(e.begin),
                   ids_.begin() + static_cast<std::ptrdiff_t>(e.end));
    out.prompt_tokens = static_cast<std::int64_t>(e.prompt);
    if (!reference_.empty()) out.reference_row = reference_[i];
    if (!mismatched_reference_.empty()) out.mismatched_reference = mismatched_reference_[i];
    return out;
  }
  [[nodiscard]] std::span<const TokenId> completion(std::size_t i) const {
    const Entry& e = entries_[i];
    return std::span(ids_).subspan(e.begin + e.prompt, e.end - e.begin - e.prompt);
  }
  [[nodiscard]] std::int64_t tokens(std::size_t i) const {
    return static_cast<std::int64_t>(entries_[i].end - entries_[i].begin);
  }
  [[nodiscard]] std::int64_t row(std::size_t i) const { return entries_[i].row; }
  [[nodiscard]] bool desirable(std::size_t i) const { return entries_[i].desirable; }
  [[nodiscard]] const std::vector<TokenId>& ids() const noexcept { return ids_; }

  // One number per answer: Σ of the reference's log-probs over its completion, and over its mismatched completion.
  void set_reference(std::vector<double> reference, std::vector<double> mismatched = {}) {
    reference_ = std::move(reference);
    mismatched_reference_ = std::move(mismatched);
  }
  [[nodiscard]] bool has_reference() const noexcept { return !reference_.empty(); }

 private:
  struct Entry {
    std::int64_t row;
    std::size_t begin, end, prompt;
    bool desirable;
  };
  std::size_t per_example_;
  std::vector<TokenId> ids_;
  std::vector<Entry> entries_;
  std::vector<double> reference_, mismatched_reference_;  // [answers] or empty
};

}  // namespace rlalgo::data
