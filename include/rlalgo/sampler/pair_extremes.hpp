// The most and the least separated pairs of a pass, for the report: where reward(chosen) − reward(rejected) is largest
// and smallest.
//
// pairs.json = {step, split, pairs, most: […], least: […]}; an entry is {row, margin, prompt, chosen, rejected}. `row`
// is the row of the dataset entry the pair was read from. Ties keep the pair that came first.
// Errors: [rlalgo.core.1] the file cannot be written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/data/answer.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/run/samples_log.hpp>

namespace rlalgo::sampler {

class PairExtremes {
 public:
  explicit PairExtremes(std::size_t kept = 5) : kept_(kept) {}

  [[nodiscard]] std::size_t seen() const noexcept { return seen_; }

  void add(double margin, const data::Answer& chosen, const data::Answer& rejected) {
    ++seen_;
    if (std::isnan(margin)) return;
    insert(most_, margin, chosen, rejected, [](double a, double b) { return a > b; });
    insert(least_, margin, chosen, rejected, [](double a, double b) { return a < b; });
  }

  // For a checkpoint; the texts stand in it, so nothing is asked for again.
  [[nodiscard]] data::Json state(const data::Decode& decode) const {
    return {{"pairs", seen_}, {"most", saved(most_, decode)}, {"least", saved(least_, decode)}};
  }
  void restore(const data::Json& state) {
    seen_ = state.at("pairs").get<std::size_t>();
    most_ = restored(state.at("most"));
    least_ = restored(state.at("least"));
  }

  void write(const std::filesystem::path& directory, std::int64_t step, const std::string& split,
             const data::Decode& decode) const {
    const data::Json out = {{"step", step},
                            {"split", split},
                            {"pairs", seen_},
                            {"most", entries(most_, decode)},
                            {"least", entries(least_, decode)}};
    core::write_file(directory / run::pairs_file, out.dump(1, ' ', false, data::Json::error_handler_t::replace) + "\n");
  }

 private:
  struct Entry {
    double margin;
    data::Answer chosen, rejected;
    data::Json text = {};  // of a restored entry, instead of the answers
  };

  template <class Before>
  void insert(std::vector<Entry>& list, double margin, const data::Answer& chosen, const data::Answer& rejected,
              const Before& before) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const Entry& e) { return before(margin, e.margin); });
    if (at == list.end() && list.size() == kept_) return;
    list.insert(at, {margin, chosen, rejected, {}});
    if (list.size() > kept_) list.pop_back();
  }

  static data::Json entries(const std::vector<Entry>& list, const data::Decode& decode) {
    data::Json out = data::Json::array();
    for (const Entry& e : list) out.push_back(text_of(e, decode));
    return out;
  }

  static data::Json text_of(const Entry& e, const data::Decode& decode) {
    if (!e.text.is_null()) return e.text;
    return {{"row", e.chosen.row},
            {"margin", e.margin},
            {"prompt", decode(e.chosen.prompt())},
            {"chosen", decode(e.chosen.completion())},
            {"rejected", decode(e.rejected.completion())}};
  }

  // Entries as [sign of an infinite margin or 0, text]: JSON has no infinities, and of UTF-8 only whole sequences.
  static data::Json saved(const std::vector<Entry>& list, const data::Decode& decode) {
    data::Json out = data::Json::array();
    for (const Entry& e : list) {
      const std::string text = text_of(e, decode).dump(-1, ' ', false, data::Json::error_handler_t::replace);
      out.push_back({std::isinf(e.margin) ? (e.margin > 0 ? 1 : -1) : 0, data::Json::parse(text)});
    }
    return out;
  }
  static std::vector<Entry> restored(const data::Json& list) {
    std::vector<Entry> out;
    for (const data::Json& e : list) {
      const int sign = e.at(0).get<int>();
      out.push_back({sign == 0 ? e.at(1).at("margin").get<double>() : sign * HUGE_VAL, {}, {}, e.at(1)});
    }
    return out;
  }

  std::size_t kept_;
  std::size_t seen_ = 0;
  std::vector<Entry> most_, least_;
};

}  // namespace rlalgo::sampler
