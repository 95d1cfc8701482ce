// Definitions of several.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/several.hpp>

namespace rlalgo::environment {

namespace detail {

inline std::vector<std::string> names_of(std::span<const Several::One> all) {
  std::vector<std::string> out;
  for (const Several::One& one : all) out.push_back(one.name);
  return out;
}

inline std::string joined(std::span<const std::string> words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace detail

RLALGO_INLINE Several::Several(std::vector<One> all) : all_(std::move(all)) {
  if (all_.empty())
    core::raise_usage("environment", 4,
                      {.what = "there are no environments", .expected = "at least one, by its name in the data"});
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].kind.empty()) all_[i].kind = all_[i].name;
    for (std::size_t k = 0; k < i; ++k)
      if (all_[i].name == all_[k].name)
        core::raise_usage("environment", 4,
                          {.what = "two environments have one name",
                           .found = all_[i].name,
                           .remedy = "rename one of them, there and in the column " + std::string(column)});
  }
}

RLALGO_INLINE std::size_t Several::index_of(const Json& row, const std::string& where) const {
  const auto named = row.find(column);
  const bool text = named != row.end() && named->is_string();
  for (std::size_t i = 0; i < all_.size() && text; ++i)
    if (named->get_ref<const std::string&>() == all_[i].name) return i;
  const std::vector<std::string> names = detail::names_of(all_);
  const std::string nearest = text ? core::nearest_name(named->get_ref<const std::string&>(), names) : "";
  core::raise("environment", 3,
              {.what = "a row names no environment",
               .found = named == row.end()
                            ? "no column \"" + std::string(column) + "\""
                            : std::string(column) + ": " + named->dump(-1, ' ', false, Json::error_handler_t::replace),
               .expected = "one of " + detail::joined(names),
               .where = where,
               .remedy = !nearest.empty() ? "did you mean " + nearest + "?"
                                          : "write the environment's name, a text, into that column"});
}

RLALGO_INLINE std::string Several::reward_name() const {
  std::vector<std::string> names;
  for (const RewardName& reward : rewards()) names.push_back(reward.name);
  return detail::joined(names);
}

RLALGO_INLINE std::vector<RewardName> Several::rewards() const {
  std::vector<RewardName> out;
  std::vector<std::string> kinds;
  for (const One& one : all_) {
    const std::string name = one.environments->reward_name();
    if (name.empty()) continue;
    const auto known = std::find(kinds.begin(), kinds.end(), one.kind);
    if (known == kinds.end()) {
      kinds.push_back(one.kind);
      out.push_back({name, {one.name}});
    } else {
      out[static_cast<std::size_t>(known - kinds.begin())].environments.push_back(one.name);
    }
  }
  std::vector<std::string> given;
  for (const RewardName& reward : out) given.push_back(reward.name);
  for (std::size_t k = 0; k < out.size(); ++k)
    if (std::count(given.begin(), given.end(), given[k]) > 1) out[k].name = kinds[k];
  return out;
}

RLALGO_INLINE Json Several::tools() const {
  Json out;
  for (const One& one : all_)
    for (const Json& schema : one.environments->tools()) {
      if (out.is_null()) out = Json::array();
      if (std::find(out.begin(), out.end(), schema) == out.end()) out.push_back(schema);
    }
  return out;
}

RLALGO_INLINE Json Several::tools_of(const Json& row) const {
  return all_[index_of(row, "the row of an episode")].environments->tools_of(row);
}

RLALGO_INLINE std::size_t Several::room_for(std::span<const Start> waiting) {
  std::vector<std::size_t> of;
  for (const Start& start : waiting) of.push_back(index_of(start.row, "the row of an episode"));
  std::vector<std::size_t> left(all_.size());
  for (std::size_t i = 0; i < all_.size(); ++i) {
    std::vector<Start> own;
    for (std::size_t k = 0; k < waiting.size(); ++k)
      if (of[k] == i) own.push_back(waiting[k]);
    if (!own.empty()) left[i] = all_[i].environments->room_for(own);
  }
  std::size_t count = 0;
  while (count < of.size() && left[of[count]] > 0) --left[of[count++]];
  return count;
}

RLALGO_INLINE std::vector<Json> Several::begin(std::span<const Start> starts) {
  std::vector<std::vector<Start>> own(all_.size());
  seats_.clear();
  for (const Start& start : starts) {
    const std::size_t i = index_of(start.row, "the row of an episode");
    seats_.push_back({i, own[i].size()});
    own[i].push_back(start);
    own[i].back().row.erase(column);
  }
  std::vector<std::vector<Json>> first(all_.size());
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (!own[i].empty()) first[i] = all_[i].environments->begin(own[i]);
  std::vector<Json> out;
  for (const Seat& seat : seats_) out.push_back(std::move(first[seat.environment].at(seat.episode)));
  return out;
}

RLALGO_INLINE std::vector<Turn> Several::step(std::span<const Said> said) {
  std::vector<std::vector<Said>> own(all_.size());
  for (const Said& one : said) {
    const Seat& seat = seats_.at(one.episode);
    own[seat.environment].push_back({seat.episode, one.message});
  }
  std::vector<std::vector<Turn>> turns(all_.size());
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (!own[i].empty()) turns[i] = all_[i].environments->step(own[i]);
  std::vector<Turn> out;
  std::vector<std::size_t> next(all_.size());
  for (const Said& one : said) {
    const std::size_t i = seats_[one.episode].environment;
    out.push_back(std::move(turns[i].at(next[i]++)));
  }
  return out;
}

RLALGO_INLINE std::vector<Ending> Several::finish() {
  std::vector<std::vector<Ending>> endings(all_.size());
  for (const Seat& seat : seats_)
    if (endings[seat.environment].empty()) {
      const std::shared_ptr<Environments>& own = all_[seat.environment].environments;
      endings[seat.environment] = own->finish();
      if (own->reward_name().empty())
        for (Ending& ending : endings[seat.environment]) ending.reward = std::numeric_limits<double>::quiet_NaN();
    }
  std::vector<Ending> out;
  for (const Seat& seat : seats_) out.push_back(std::move(endings[seat.environment].at(seat.episode)));
  return out;
}

}  // namespace rlalgo::environment
