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
  };

  template <class Before>
  void insert(std::vector<Entry>& list, double margin, const data::Answer& chosen, const data::Answer& rejected,
              const Before& before) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const Entry& e) { return before(margin, e.margin); });
    if (at == list.end() && list.size() == kept_) return;
    list.insert(at, {margin, chosen, rejected});
    if (list.size() > kept_) list.pop_back();
  }

  static data::Json entries(const std::vector<Entry>& list, const data::Decode& decode) {
    data::Json out = data::Json::array();
    for (const Entry& e : list)
      out.push_back({{"row", e.chosen.row},
                     {"margin", e.margin},
                     {"prompt", decode(e.chosen.prompt())},
                     {"chosen", decode(e.chosen.completion())},
                     {"rejected", decode(e.rejected.completion())}});
    return out;
  }

  std::size_t kept_;
  std::size_t seen_ = 0;
  std::vector<Entry> most_, least_;
};

}  // namespace rlalgo::sampler
