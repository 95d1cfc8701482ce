// Definitions of pair_extremes.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/answer.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/sampler/pair_extremes.hpp>

namespace rlalgo::sampler {

template <class Before>
void PairExtremes::insert(std::vector<Entry>& list, Entry entry, const Before& before) {
  const auto at =
      std::find_if(list.begin(), list.end(), [&](const Entry& e) { return before(entry.margin, e.margin); });
  if (at == list.end() && list.size() == kept_) return;
  list.insert(at, std::move(entry));
  if (list.size() > kept_) list.pop_back();
}

RLALGO_INLINE void PairExtremes::add(double margin, const data::Answer& chosen, const data::Answer& rejected) {
  ++seen_;
  if (std::isnan(margin)) return;
  insert(most_, {margin, chosen, rejected, {}}, std::greater<>());
  insert(least_, {margin, chosen, rejected, {}}, std::less<>());
}

RLALGO_INLINE void PairExtremes::merge(const data::Json& state) {
  seen_ += state.at("pairs").get<std::size_t>();
  for (Entry& e : restored(state.at("most"))) insert(most_, std::move(e), std::greater<>());
  for (Entry& e : restored(state.at("least"))) insert(least_, std::move(e), std::less<>());
}

RLALGO_INLINE data::Json PairExtremes::state(const data::Decode& decode) const {
  return {{"pairs", seen_}, {"most", saved(most_, decode)}, {"least", saved(least_, decode)}};
}

RLALGO_INLINE void PairExtremes::restore(const data::Json& state) {
  seen_ = state.at("pairs").get<std::size_t>();
  most_ = restored(state.at("most"));
  least_ = restored(state.at("least"));
}

RLALGO_INLINE void PairExtremes::write(const std::filesystem::path& directory, std::int64_t step,
                                       const std::string& split, const data::Decode& decode) const {
  const data::Json out = {{"step", step},
                          {"split", split},
                          {"pairs", seen_},
                          {"most", entries(most_, decode)},
                          {"least", entries(least_, decode)}};
  os::write_file(directory / run::pairs_file, out.dump(1, ' ', false, data::Json::error_handler_t::replace) + "\n");
}

RLALGO_INLINE data::Json PairExtremes::text_of(const Entry& e, const data::Decode& decode) {
  if (!e.text.is_null()) return e.text;
  return {{"row", e.chosen.row},
          {"margin", e.margin},
          {"prompt", decode(e.chosen.prompt())},
          {"chosen", decode(e.chosen.completion())},
          {"rejected", decode(e.rejected.completion())}};
}

RLALGO_INLINE data::Json PairExtremes::entries(const std::vector<Entry>& list, const data::Decode& decode) {
  data::Json out = data::Json::array();
  for (const Entry& e : list) out.push_back(text_of(e, decode));
  return out;
}

// Entries as [sign of an infinite margin or 0, text]: JSON has no infinities, and of UTF-8 only whole sequences.
RLALGO_INLINE data::Json PairExtremes::saved(const std::vector<Entry>& list, const data::Decode& decode) {
  data::Json out = data::Json::array();
  for (const Entry& e : list) {
    const std::string text = text_of(e, decode).dump(-1, ' ', false, data::Json::error_handler_t::replace);
    out.push_back({std::isinf(e.margin) ? (e.margin > 0 ? 1 : -1) : 0, data::Json::parse(text)});
  }
  return out;
}

RLALGO_INLINE std::vector<PairExtremes::Entry> PairExtremes::restored(const data::Json& list) {
  std::vector<Entry> out;
  for (const data::Json& e : list) {
    const int sign = e.at(0).get<int>();
    out.push_back({sign == 0 ? e.at(1).at("margin").get<double>() : sign * HUGE_VAL, {}, {}, e.at(1)});
  }
  return out;
}

}  // namespace rlalgo::sampler
