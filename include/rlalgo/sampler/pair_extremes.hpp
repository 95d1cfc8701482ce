// The most and the least separated pairs of a pass, for the report: where reward(chosen) − reward(rejected) is largest
// and smallest.
//
// pairs.json = {step, split, pairs, most: […], least: […]}; an entry is {row, margin, prompt, chosen, rejected}. `row`
// is the row of the dataset entry the pair was read from. Ties keep the pair that came first.
// Errors: [rlalgo.os.1] the file cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/answer.hpp>
#include <rlalgo/data/decode.hpp>

namespace rlalgo::sampler {

class PairExtremes {
 public:
  explicit PairExtremes(std::size_t kept = 5) : kept_(kept) {}

  [[nodiscard]] std::size_t seen() const noexcept { return seen_; }

  void add(double margin, const data::Answer& chosen, const data::Answer& rejected);

  // For a checkpoint; the texts stand in it, so nothing is asked for again.
  [[nodiscard]] data::Json state(const data::Decode& decode) const;
  void restore(const data::Json& state);
  // Adds what another rank has seen: its state().
  void merge(const data::Json& state);

  void write(const std::filesystem::path& directory, std::int64_t step, const std::string& split,
             const data::Decode& decode) const;

 private:
  struct Entry {
    double margin;
    data::Answer chosen, rejected;
    data::Json text = {};  // of a restored entry, instead of the answers
  };

  // Behind those of `list` that `margin` does not come before.
  template <class Before>
  void insert(std::vector<Entry>& list, Entry entry, const Before& before);
  static data::Json text_of(const Entry& e, const data::Decode& decode);
  static data::Json entries(const std::vector<Entry>& list, const data::Decode& decode);
  static data::Json saved(const std::vector<Entry>& list, const data::Decode& decode);
  static std::vector<Entry> restored(const data::Json& list);

  std::size_t kept_;
  std::size_t seen_ = 0;
  std::vector<Entry> most_, least_;
};

}  // namespace rlalgo::sampler

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/pair_extremes_impl.hpp>
#endif
